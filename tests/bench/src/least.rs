//! The least program that does what any agent has to do, beside the agent: it keeps the connections, looks as often,
//! hears the same signal, and learns from the kernel of the same exits. What it needs is the floor of the agent's figures.

mod direct;
mod exits;
mod notes;

use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{MissedTickBehavior, interval};
use winddown_shared::error_chain;
use zbus::{Connection, MatchRule, MessageStream, message};

pub(crate) use direct::start as start_direct;
use exits::Exits;
pub(crate) use notes::Notes;

/// The log of the one pod that is none of the agent's: this program asks it to terminate. It follows the prefix of the
/// other logs.
pub(crate) const VICTIM: &str = "victim";

/// How often an idle agent looks: at the node for eviction, at the sizes of logs, at the watchdog, at the manifests.
const LOOKS: [(u64, &str); 4] =
    [(10, "/proc/meminfo"), (10, "/var/log"), (15, "/run/systemd"), (20, "/etc")];
/// How often it asks the runtime for its health.
const HEALTH: Duration = Duration::from_secs(15);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Idles and ends, beside the pods whose logs begin with `prefix`: the first `critical` are critical. On a node, `socket`
/// is its runtime's.
pub(crate) async fn run(
    prefix: String,
    critical: usize,
    notes: String,
    socket: Option<String>,
) -> Result<String, String> {
    let notes = Path::new(&notes);
    let ran = beside(&prefix, critical, notes, socket.as_deref()).await;
    ran.map(|()| "done".to_owned()).map_err(|error| error_chain(&*error))
}

async fn beside(
    prefix: &str,
    critical: usize,
    notes: &Path,
    socket: Option<&str>,
) -> Result<(), Failure> {
    let (pods, victim) = pods(prefix);
    let victim = victim.ok_or("no victim runs")?;
    let bus = Connection::system().await?;
    let rule = MatchRule::builder().msg_type(message::Type::Signal).member("PrepareForShutdown");
    let mut signals = MessageStream::for_match_rule(rule.build()?, &bus, None).await?;
    let exits = Exits::watch(&pods, critical)?;
    for (seconds, path) in LOOKS {
        tokio::spawn(look(Duration::from_secs(seconds), path));
    }
    if let Some(socket) = socket {
        let runtime = direct::connect(socket).await?;
        tokio::spawn(ask(runtime));
    }
    std::fs::write(notes, "ready\n")?;
    signals.next().await.ok_or("the bus went away")??;
    kill_process(victim, Signal::TERM)?;
    let exits = tokio::task::spawn_blocking(move || exits.join()).await??;
    std::fs::write(notes, format!("ready\n{exits}"))?;
    Ok(())
}

async fn look(every: Duration, path: &str) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let _ = std::hint::black_box(std::fs::read(path));
    }
}

async fn ask(mut runtime: direct::Runtime) {
    let mut ticks = interval(HEALTH);
    loop {
        ticks.tick().await;
        let _ = runtime.status(direct::StatusRequest::default()).await;
    }
}

/// The processes of the pods whose logs begin so, each with its number; and of the victim.
fn pods(prefix: &str) -> (Vec<(usize, Pid)>, Option<Pid>) {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut victim = None;
    let mut pods = Vec::new();
    for process in processes {
        let Ok(line) = std::fs::read_to_string(process.path().join("cmdline")) else { continue };
        let mut words = line.split('\0').skip(1);
        let Some(pod) = words.next().filter(|word| *word == "pod").and(words.next()) else {
            continue;
        };
        let Some(which) = pod.strip_prefix(prefix) else { continue };
        let name = process.file_name();
        let pid = name.to_str().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
        match (which.parse(), pid) {
            (Ok(number), Some(pid)) => pods.push((number, pid)),
            (_, pid) if which == VICTIM => victim = pid,
            _ => {}
        }
    }
    (pods, victim)
}
