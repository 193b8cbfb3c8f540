//! A pod for tests of whole clusters: does what its kind of pod does, and writes down what happens to it.
//!
//!     workload web PORT MS      answers; after SIGTERM for MS longer, as a load balancer still sends requests
//!     workload work MS          has done its work after MS; SIGTERM cuts it short
//!     workload keep MS          needs MS after SIGTERM, and must be the only one of its name
//!
//! Each pod has a file `logs/POD_NAME.POD_UID` in the shared folder, with lines `WHAT NANOSECONDS NODE_NAME`.

#![allow(clippy::disallowed_methods, reason = "tests write what they see")]

use std::error::Error;
use std::fs::{File, TryLockError};
use std::future::pending;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use winddown_node_tests::SHARED;

/// How long an answer takes, and that to a request of `/long`.
const WORK: Duration = Duration::from_millis(20);
const LONG_WORK: Duration = Duration::from_secs(1);
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\ndone\n";

/// Where a pod writes down what happens to it.
struct Journal {
    file: File,
    node: String,
}

// === impl Journal ===

impl Journal {
    fn open() -> Result<Self, Box<dyn Error>> {
        let [name, uid, node] = ["POD_NAME", "POD_UID", "NODE_NAME"]
            .map(|name| std::env::var(name).unwrap_or_default());
        let path = format!("{SHARED}/logs/{name}.{uid}");
        Ok(Self { file: File::options().create(true).append(true).open(path)?, node })
    }

    /// Written at once: a kill loses nothing.
    fn say(&mut self, what: &str) -> Result<(), Box<dyn Error>> {
        let line = format!("{what} {} {}\n", UNIX_EPOCH.elapsed()?.as_nanos(), self.node);
        Ok(self.file.write_all(line.as_bytes())?)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("workload: {error}");
            ExitCode::from(2)
        }
    }
}

async fn run(args: &[&str]) -> Result<ExitCode, Box<dyn Error>> {
    let mut journal = Journal::open()?;
    let mut asked = signal(SignalKind::terminate())?;
    let (kind, numbers) = args.split_first().ok_or("usage: workload web|work|keep NUMBER…")?;
    let milliseconds = Duration::from_millis(numbers.last().ok_or("no time")?.parse()?);
    let mut served = Served::default();
    if *kind == "web" {
        let port: u16 = numbers[0].parse()?;
        served.listener = Some(TcpListener::bind(("0.0.0.0", port)).await?);
    }
    let lock = (*kind == "keep").then(|| only_one(&mut journal)).transpose()?;
    journal.say("START")?;
    tokio::select! {
        () = served.serve() => {}
        () = sleep(milliseconds), if *kind == "work" => {
            journal.say("DONE")?;
            return Ok(ExitCode::SUCCESS);
        }
        _ = asked.recv() => journal.say("TERM")?,
    }
    if *kind == "work" {
        journal.say("CUT")?;
        return Ok(ExitCode::FAILURE);
    }
    let _ = timeout(milliseconds, served.serve()).await;
    drop(served.listener.take());
    while served.clients.join_next().await.is_some() {}
    journal.say("EXIT")?;
    drop(lock);
    Ok(ExitCode::SUCCESS)
}

/// The lock that has this pod's name for all nodes, as its volume would be.
fn only_one(journal: &mut Journal) -> Result<File, Box<dyn Error>> {
    let path = format!("{SHARED}/locks/{}", std::env::var("POD_NAME")?);
    let file = File::options().create(true).append(true).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => journal.say("DOUBLED")?,
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    Ok(file)
}

/// A listener, if there is one, and the requests in progress.
#[derive(Default)]
struct Served {
    listener: Option<TcpListener>,
    clients: JoinSet<()>,
}

// === impl Served ===

impl Served {
    async fn serve(&mut self) {
        let Some(listener) = &self.listener else { return pending().await };
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    // A client that disconnects before it is served is no reason to stop.
                    if let Ok((client, _)) = accepted {
                        self.clients.spawn(async move {
                            let _ = answer(client).await;
                        });
                    }
                }
                Some(_) = self.clients.join_next() => {}
            }
        }
    }
}

async fn answer(mut client: TcpStream) -> std::io::Result<()> {
    let mut request = BufReader::new(&mut client).lines();
    let mut is_long = false;
    while let Some(line) = request.next_line().await?.filter(|line| !line.is_empty()) {
        is_long |= line.starts_with("GET /long ");
    }
    sleep(if is_long { LONG_WORK } else { WORK }).await;
    client.write_all(ANSWER).await?;
    client.shutdown().await
}
