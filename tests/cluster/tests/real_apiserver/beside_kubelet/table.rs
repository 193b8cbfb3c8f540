//! The same pods ended by winddown and by the kubelet's own graceful shutdown, in figures.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use winddown_node_tests::document::replace_between;
use winddown_node_tests::scenario::TestResult;
use winddown_node_tests::{PodBehavior, PodLog, Suite, TestPod, in_long_form};

use super::DOWN;
use super::budget::GUARDED;
use super::machine::{Ends, Machine, WITH_VOLUMES, Wanted};
use crate::RealApi;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/companion.md");
const MARKS: [&str; 2] = [
    "<!-- Written by `make beside-kubelet`. -->",
    "<!-- End of the shutdowns beside a kubelet. -->",
];
const HEAD: &str = "\
| what happens | who terminates the pods | power-off to last exit | longest pause between groups | last exit to lock's release | \
exited by themselves | started again | static pod last | hooks run | sidecar last | grace that was kept | \
volumes free before the lock went | report |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
";

/// Names parts of scenes that alone are played, separated by commas, and after a `!` of those that are not; all without it.
const CHOICE: &str = "WINDDOWN_SCENES";
/// How often each scene is played; the table has the run whose last exit is the median.
const RUNS: &str = "WINDDOWN_RUNS";

/// What happens to the machine that goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    Calm,
    VolumeInUse,
    ApiAway,
    ApiSilent,
    Killed,
    HundredPods,
    ManyPods,
    Hooks,
    HooksAway,
    HooksKilled,
    Booted,
    Refused,
    Crio,
}

const SCENES: [(Scene, &str); 13] = [
    (Scene::Calm, "seven pods and a static one"),
    (Scene::VolumeInUse, "volumes of two of them are in use for 1.5 s longer"),
    (Scene::ApiAway, "the API server is unavailable"),
    (Scene::ApiSilent, "the API server is silent"),
    (Scene::Killed, "the one who terminates them is killed in the middle"),
    (Scene::HundredPods, "a hundred pods and a static one"),
    (Scene::ManyPods, "250 pods and a static one"),
    (Scene::Hooks, "hooks, a sidecar and a pod that ignores SIGTERM"),
    (Scene::HooksAway, "the same, and the API server is unavailable"),
    (Scene::HooksKilled, "the same, and the one who terminates them is killed during a hook"),
    (Scene::Booted, "the API server was unavailable when winddown and the kubelet started"),
    (Scene::Refused, "a disruption budget refuses the eviction of two of them"),
    (Scene::Crio, "seven pods and a static one, in CRI-O"),
];

/// Those that are played on Debian's next release as well.
const NEXT: [Scene; 3] = [Scene::Calm, Scene::ApiAway, Scene::Killed];
/// The time of each group there, where a process takes some fifteen times as long to start.
const NEXT_SECONDS: [u32; 3] = [20; 3];

/// The grace period of the pod that ignores SIGTERM, in seconds: shorter than its group's time.
const SHORT: u32 = 3;

/// How the pods of a machine ended.
#[derive(Debug)]
struct Account {
    last_exit: Duration,
    /// None: a group was asked before the one before it had ended.
    longest_pause: Option<Duration>,
    lock_outlived: String,
    pods: usize,
    ended_by_themselves: usize,
    started_again: usize,
    /// None: it is not asked to end.
    static_pod_was_last: Option<bool>,
    /// Where a pod has a volume: whether it was unmounted before the lock was released.
    volumes_were_free: Option<bool>,
    /// How many hooks ran, in all.
    hooks_run: usize,
    /// How many pods and sidecars have one, and whether each of these ran once.
    hooks: usize,
    each_hook_ran_once: bool,
    /// Where a pod has a sidecar: whether that was asked after the pod's other container had exited.
    sidecar_was_last: Option<bool>,
    /// Where a pod ignores SIGTERM: how long it was left after that.
    grace: Option<Duration>,
    report: String,
}

// === impl Scene ===

impl Scene {
    fn wanted(self, ends: Ends) -> Wanted {
        let usual = Wanted::by(ends);
        match self {
            Self::VolumeInUse => Wanted { volumes: true, ..usual },
            Self::Crio => Wanted { crio: true, ..usual },
            Self::HundredPods => {
                let ordinary = (0..80).map(|n| TestPod::new(format!("web-{n}"), 0, 1000));
                let critical =
                    (0..20).map(|n| TestPod::new(format!("agent-{n}"), 2_000_000_000, 1000));
                let pods = ordinary.chain(critical).map(TestPod::in_container).collect();
                Wanted { pods, seconds: [40, 10, 30], ..usual }
            }
            Self::ManyPods => {
                let ordinary = (0..200).map(|n| TestPod::new(format!("web-{n}"), 0, 1000));
                let critical =
                    (0..50).map(|n| TestPod::new(format!("agent-{n}"), 2_000_000_000, 1000));
                let pods = ordinary.chain(critical).map(TestPod::in_container).collect();
                Wanted { pods, seconds: [60, 10, 50], ..usual }
            }
            Self::Hooks | Self::HooksAway | Self::HooksKilled => {
                let mut pods = usual.pods;
                (pods[0].behavior, pods[0].grace_seconds) = (PodBehavior::Lasting, SHORT);
                pods[1].has_hook = true;
                (pods[2].has_hook, pods[2].has_sidecar) = (true, true);
                pods[6].has_hook = true;
                Wanted { pods, ..usual }
            }
            Self::Calm
            | Self::ApiAway
            | Self::ApiSilent
            | Self::Killed
            | Self::Booted
            | Self::Refused => usual,
        }
    }

    /// Who ends the pods, one after the other.
    fn by(self) -> &'static [Ends] {
        match self {
            Self::Calm | Self::HundredPods => &[Ends::Winddown, Ends::Kubelet, Ends::Requests],
            _ => &[Ends::Winddown, Ends::Kubelet],
        }
    }

    /// Asks for the power-off, and plays the scene.
    async fn play(self, machine: &mut Machine, ends: Ends) -> TestResult<Account> {
        match self {
            Self::ApiAway | Self::HooksAway | Self::HooksKilled => machine.cut_off().await,
            Self::Booted => {
                machine.cut_off().await;
                machine.start_again(ends).await?;
            }
            Self::Refused => machine.guard(GUARDED).await?,
            Self::ApiSilent => machine.silence(),
            Self::VolumeInUse => {
                for pod in WITH_VOLUMES {
                    machine.use_volume_of(pod, "1.5").await?;
                }
            }
            _ => {}
        }
        if ends == Ends::Requests {
            let asked = u64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_nanos())?;
            for (_, group) in machine.groups() {
                machine.delete(&group).await?;
            }
            return Account::of(machine, ends, asked).await;
        }
        let asked = machine.scenario.power_off().await?;
        if matches!(self, Self::Killed | Self::HooksKilled) {
            match self {
                Self::Killed => machine.scenario.someone_is_asked().await?,
                _ => machine.hooks_of_first_group_run().await?,
            }
            machine.kill(ends).await?;
        }
        machine.scenario.node.wait_off(DOWN).await?;
        let mut account = Account::of(machine, ends, asked).await?;
        if ends == Ends::Winddown {
            trace_pauses(machine)?;
            if self == Self::Refused {
                machine.assert_consent_was_sought(GUARDED)?;
            }
        }
        if self == Self::VolumeInUse {
            let released = machine.scenario.lock_released_at().await?;
            let is_free = |pod| machine.unmounted_at(pod).is_ok_and(|at| at <= released);
            account.volumes_were_free = Some(WITH_VOLUMES.into_iter().all(is_free));
        }
        Ok(account)
    }
}

/// Says what was done between the last exit of a group and the first SIGTERM of the next: seen and asked by the agent,
/// taken by the API server, done by the kubelet and the container runtime.
fn trace_pauses(machine: &Machine) -> TestResult {
    let report = machine.scenario.newest_report()?;
    let started: Timestamp = report["startedAt"].as_str().ok_or("no start")?.parse()?;
    let pods = report["groups"].as_array().into_iter().flatten();
    let pods: Vec<&Value> = pods.flat_map(|g| g["pods"].as_array().into_iter().flatten()).collect();
    let logs = machine.scenario.logs();
    let mut groups = machine.groups();
    groups.retain(|(_, pods)| !pods.is_empty());
    for pair in groups.windows(2) {
        let [(_, before), (name, next)] = pair else { continue };
        let Some(exit) = before.iter().flat_map(|pod| ends_of(&logs[*pod])).max().copied() else {
            continue;
        };
        let Some(term) = next.iter().flat_map(|pod| &logs[*pod].terms).min().copied() else {
            continue;
        };
        let exit = i128::from(exit) - started.as_nanosecond();
        let term = (i128::from(term) - started.as_nanosecond() - exit) / 1_000_000;
        let of = |group: &[&str], field: &str| -> Vec<i128> {
            let of_group =
                pods.iter().filter(|pod| group.contains(&pod["name"].as_str().unwrap_or("")));
            of_group
                .filter_map(|pod| pod[field].as_i64())
                .map(|ms| i128::from(ms) - exit / 1_000_000)
                .collect()
        };
        println!(
            "{name}: after the last exit of the group before it, in ms: seen {:?}, asked {:?}, taken {:?}, SIGTERM {term}",
            of(before, "exitMs").into_iter().max(),
            of(next, "requestedMs").into_iter().min(),
            of(next, "sigtermMs").into_iter().min(),
        );
    }
    Ok(())
}

/// When the pod exited, or was last seen before it was killed.
fn ends_of(log: &PodLog) -> impl Iterator<Item = &u64> {
    log.exits.iter().chain(log.lasts.last())
}

fn time(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

// === impl Account ===

impl Account {
    async fn of(machine: &Machine, ends: Ends, asked: u64) -> TestResult<Self> {
        let logs = machine.scenario.logs();
        let fixed = machine.log_of_static_pod()?;
        let spans: Vec<_> = machine
            .groups()
            .into_iter()
            .filter_map(|(_, pods)| {
                let logs = || pods.iter().map(|pod| &logs[*pod]);
                let first = logs().flat_map(|log| &log.terms).min()?;
                Some((*first, logs().flat_map(ends_of).max().copied()?))
            })
            .collect();
        let pauses = spans.windows(2).map(|pair| pair[1].0.checked_sub(pair[0].1));
        let has_static = ends != Ends::Requests;
        let all: Vec<&PodLog> = logs.values().chain(has_static.then_some(&fixed)).collect();
        let exits = || all.iter().flat_map(|log| log.exits.iter().copied());
        let last_exit = exits().max().ok_or("no pod exited by itself")?;
        let last_of_others = logs.values().flat_map(ends_of).max().copied();
        let lock_outlived = match ends {
            Ends::Requests => String::new(),
            _ => match machine.scenario.lock_released_at().await?.checked_sub(last_exit) {
                Some(nanoseconds) => time(Duration::from_nanos(nanoseconds)),
                None => "released before".to_owned(),
            },
        };
        let sidecars: Vec<(&TestPod, PodLog)> = machine.sidecars();
        let hooked = machine.scenario.pods.iter().filter(|pod| pod.has_hook);
        let hooks: Vec<usize> = hooked
            .map(|pod| logs[&pod.name].hooks.len())
            .chain(sidecars.iter().map(|(_, log)| log.hooks.len()))
            .collect();
        let is_last = |(pod, log): &(&TestPod, PodLog)| {
            let own = logs[&pod.name].exits.last();
            own.is_some_and(|own| log.terms.first().is_some_and(|term| term >= own))
        };
        let sidecar_was_last = (!sidecars.is_empty()).then(|| sidecars.iter().all(is_last));
        let lasting =
            machine.scenario.pods.iter().filter(|pod| pod.behavior == PodBehavior::Lasting);
        let grace = lasting
            .map(|pod| &logs[&pod.name])
            .map(|log| {
                log.lasts.last().zip(log.terms.first()).map_or(0, |(last, term)| last - term)
            })
            .min()
            .map(Duration::from_nanos);
        let report = match ends {
            Ends::Winddown => {
                let report = machine.scenario.newest_report()?;
                report["outcome"].as_str().unwrap_or("without an outcome").to_owned()
            }
            Ends::Kubelet => "none".to_owned(),
            Ends::Requests => String::new(),
        };
        Ok(Self {
            last_exit: Duration::from_nanos(last_exit - asked),
            longest_pause: pauses
                .collect::<Option<Vec<u64>>>()
                .and_then(|pauses| pauses.into_iter().max())
                .map(Duration::from_nanos),
            lock_outlived,
            pods: all.len(),
            ended_by_themselves: all.iter().filter(|log| !log.exits.is_empty()).count(),
            started_again: all.iter().map(|log| log.starts.len()).sum::<usize>() - all.len(),
            volumes_were_free: None,
            hooks_run: hooks.iter().sum(),
            hooks: hooks.len(),
            each_hook_ran_once: hooks.iter().all(|runs| *runs == 1),
            sidecar_was_last,
            grace,
            static_pod_was_last: has_static.then(|| fixed.terms.first().copied() >= last_of_others),
            report,
        })
    }

    /// What must hold of pods that winddown ends.
    fn check(&self, name: &str, scene: Scene) {
        let stubborn = usize::from(self.grace.is_some());
        assert_eq!(self.ended_by_themselves + stubborn, self.pods, "{name}: {self:?}");
        assert_eq!(self.started_again, 0, "{name}: {self:?}");
        assert_eq!(self.static_pod_was_last, Some(true), "{name}: {self:?}");
        let report = if stubborn == 0 { "clean" } else { "forced" };
        assert_eq!(self.report, report, "{name}: {self:?}");
        // An agent that starts while the API server is away does not know the pods' priorities.
        assert!(scene == Scene::Booted || self.longest_pause.is_some(), "{name}: {self:?}");
        assert!(self.each_hook_ran_once, "{name}: {self:?}");
        // An agent that starts while the API server is away does not know which containers are sidecars.
        let knows_sidecars = scene != Scene::HooksKilled;
        assert!(!knows_sidecars || self.sidecar_was_last != Some(false), "{name}: {self:?}");
        let least = Duration::from_secs(SHORT.into()) - Duration::from_millis(500);
        assert!(self.grace.is_none_or(|grace| grace >= least), "{name}: {self:?}");
        assert!(
            scene != Scene::VolumeInUse || self.volumes_were_free == Some(true),
            "{name}: {self:?}"
        );
    }

    fn hooks(&self) -> String {
        match (self.hooks, self.each_hook_ran_once) {
            (0, _) => String::new(),
            (hooks, true) => format!("{hooks} of {hooks}, each once"),
            (hooks, false) => format!("{} of {hooks}", self.hooks_run),
        }
    }

    fn row(&self, scene: &str, who: &str) -> String {
        let yes = |is| if is { "yes" } else { "no" };
        format!(
            "| {scene} | {who} | {} | {} | {} | {} of {} | {} | {} | {} | {} | {} | {} | {} |\n",
            time(self.last_exit),
            self.longest_pause.map_or_else(|| "none: not in order".to_owned(), time),
            self.lock_outlived,
            self.ended_by_themselves,
            self.pods,
            self.started_again,
            self.static_pod_was_last.map_or("", yes),
            self.hooks(),
            self.sidecar_was_last.map_or("", yes),
            self.grace
                .map(|grace| format!("{:.1} of {SHORT} s", grace.as_secs_f64()))
                .unwrap_or_default(),
            self.volumes_were_free.map_or("", yes),
            self.report
        )
    }
}

/// Plays a scene that the API server may have to have controllers for. None, after saying so, where a program is missing.
async fn account(
    test: &str,
    scene: Scene,
    suite: Suite,
    ends: Ends,
) -> TestResult<Option<Account>> {
    if scene == Scene::Refused && RealApi::with_controllers(test).await.is_none() {
        return Ok(None);
    }
    let usual = scene.wanted(ends);
    let seconds = if suite == Suite::Bookworm { usual.seconds } else { NEXT_SECONDS };
    let wanted = Wanted { suite, seconds, ..usual };
    let Some(mut machine) = Machine::set_with(test, wanted).await? else {
        return Ok(None);
    };
    if ends == Ends::Winddown {
        machine.give_agent_its_rights().await?;
    }
    machine.scenario.node.weigh_as_on_a_machine()?;
    let _ahead = Ahead::of_the_node();
    scene.play(&mut machine, ends).await.map(Some)
}

/// While it lives, this process, and with it the API server and the network to it, do not wait for the node's processes:
/// in a cluster they have processors of their own. The kernel shares processors between sessions, of which a node has
/// hundreds.
struct Ahead;

impl Ahead {
    const FILE: &str = "/proc/self/autogroup";

    fn of_the_node() -> Self {
        // A kernel without these groups shares them between processes.
        let _ = std::fs::write(Self::FILE, "-15");
        Self
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let _ = std::fs::write(Self::FILE, "0");
    }
}

/// How often, as the variable says; once without it.
pub(crate) fn number(variable: &str) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// The scenes with the release that each is played on, and their names.
fn scenes() -> impl Iterator<Item = (Scene, Suite, String)> {
    let usual = SCENES.into_iter().map(|(scene, name)| (scene, Suite::Bookworm, name.to_owned()));
    let next = SCENES.into_iter().filter(|(scene, _)| NEXT.contains(scene));
    let next = next.map(|(scene, name)| {
        let suite = Suite::Sid;
        let (systemd, containerd) = (suite.systemd(), suite.containerd());
        let on = format!("systemd {systemd}, cgroup v2, containerd {containerd}");
        (scene, suite, format!("{name}; {on}"))
    });
    usual.chain(next).filter(|(_, _, name)| is_chosen(name))
}

fn is_chosen(scene: &str) -> bool {
    let Ok(chosen) = std::env::var(CHOICE) else { return true };
    let (not, parts): (Vec<_>, Vec<_>) = chosen.split(',').partition(|part| part.starts_with('!'));
    parts.iter().any(|part| scene.contains(part))
        && !not.iter().any(|part| scene.contains(&part[1..]))
}

/// Each scene with both, one after the other. The way to the API server must not wait for the rest of the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scene_by_winddown_and_by_the_kubelet_itself() -> TestResult {
    let test = "every_scene_by_winddown_and_by_the_kubelet_itself";
    if !in_long_form(test, "two dozen nodes take minutes") {
        return Ok(());
    }
    let mut table = HEAD.to_owned();
    'scenes: for (scene, suite, name) in scenes() {
        for ends in scene.by().iter().copied() {
            // One after the other: a node that runs beside it would take its processors.
            let mut accounts = Vec::new();
            for _ in 0..number(RUNS) {
                let Some(account) = account(test, scene, suite, ends).await? else {
                    continue 'scenes;
                };
                println!("{name}, {ends:?}: {account:#?}");
                if ends == Ends::Winddown {
                    account.check(&name, scene);
                }
                accounts.push(account);
            }
            accounts.sort_by_key(|account| account.last_exit);
            let median = &accounts[accounts.len() / 2];
            table += &match ends {
                Ends::Winddown => median.row(&name, "winddown"),
                Ends::Kubelet => median.row("", "the kubelet"),
                Ends::Requests => median.row("", "bare deletions"),
            };
        }
    }
    println!("{table}");
    if std::env::var_os("WINDDOWN_WRITE_PAGES").is_some() && std::env::var_os(CHOICE).is_none() {
        replace_between(Path::new(PAGE), MARKS, &table)?;
    }
    Ok(())
}
