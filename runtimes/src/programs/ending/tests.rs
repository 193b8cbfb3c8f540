use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use tokio::sync::{broadcast, watch};
use winddown_engine::probing::ProbeState;
use winddown_shared::{PodUid, WallClock, WallTime};

use super::*;
use crate::process::ShimCommand;
use crate::process::watcher;
use crate::programs::hook::HookError;
use crate::programs::pod::{End, Run, Starting};

/// A runtime that fails to end containers the first so many times.
struct Faulty {
    config: ProcessConfig,
    fails: u32,
    tries: AtomicU32,
}

impl Faulty {
    fn new(fails: u32) -> Arc<Self> {
        let shim = ShimCommand::new("/none", []);
        let config = ProcessConfig::new("/none", "/none", shim, WallClock::new(WallTime::default));
        Arc::new(Self { config, fails, tries: AtomicU32::new(0) })
    }

    fn tries(&self) -> u32 {
        self.tries.load(Ordering::SeqCst)
    }
}

impl Programs for Faulty {
    const SCHEME: &'static str = "faulty";

    fn config(&self) -> &ProcessConfig {
        &self.config
    }

    fn alive(&self) -> watch::Receiver<()> {
        watch::channel(()).1
    }

    async fn start(
        self: &Arc<Self>,
        _: Starting,
        _: &Pod,
        _: &Arc<str>,
    ) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn exec(
        self: &Arc<Self>,
        _: (&Pod, &str),
        _: Command,
        _: Option<Duration>,
    ) -> Result<(), HookError> {
        Ok(())
    }

    fn is_answer(_: &HookError) -> bool {
        true
    }

    async fn end(
        self: &Arc<Self>,
        entry: &Arc<PodEntry>,
        target: Target,
        mut grace: Grace,
    ) -> Result<(), RuntimeError> {
        let number = self.tries.fetch_add(1, Ordering::SeqCst);
        ask_now(&mut entry.lock(), &target);
        grace.over().await;
        kill_now(&mut entry.lock(), &target);
        if number < self.fails {
            return Err(RuntimeError::Failed { what: "it survives".to_owned(), source: None });
        }
        let exit = watcher::unknown_exit(None, WallTime::default());
        let end = End { exit, ran: Duration::ZERO, asked: false, restart_at: Instant::now() };
        if let Some(run) = entry.lock().run(&target.name, target.attempt) {
            run.end = Some(end);
        }
        Ok(())
    }
}

/// A pod whose container `main` runs.
fn running() -> Arc<PodEntry> {
    let entry = PodEntry::new(PodUid::new("uid"), broadcast::Sender::new(1));
    let object = json!({"metadata": {"name": "web", "namespace": "default", "uid": "uid"},
        "spec": {"containers": [{"name": "main", "image": "none", "command": ["true"]}]}});
    let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
    {
        let mut state = entry.lock();
        state.take_pod(&pod);
        state.container("main").unwrap().run = Some(Run {
            attempt: 0,
            started_at: WallTime::default(),
            backoff: Duration::ZERO,
            supervisor: None,
            main: None,
            cgroups: Vec::new(),
            probe_state: ProbeState { started: true, ready: false, probed: true, failing: true },
            is_of_earlier_boot: false,
            ending: false,
            signalled_at: None,
            forced: false,
            end: None,
        });
    }
    Arc::new(entry)
}

fn grace() -> Grace {
    Grace::fixed(Duration::from_secs(1))
}

#[tokio::test(start_paused = true)]
async fn a_failing_container_that_could_not_be_ended_is_ended_by_the_next_try() {
    let (programs, entry) = (Faulty::new(1), running());
    let error = stop_to_restart(&programs, &entry, "main", grace()).await.unwrap_err();
    assert_eq!(error.to_string(), "it survives");
    assert!(entry.lock().any_running());
    stop_to_restart(&programs, &entry, "main", grace()).await.unwrap();
    assert_eq!((programs.tries(), entry.lock().any_running()), (2, false));
    stop_to_restart(&programs, &entry, "main", grace()).await.unwrap();
    assert_eq!(programs.tries(), 2, "nothing runs any more");
}

#[tokio::test(start_paused = true)]
async fn a_failing_container_is_not_ended_twice_at_a_time() {
    let (programs, entry) = (Faulty::new(0), running());
    let twice = [(); 2].map(|()| stop_to_restart(&programs, &entry, "main", grace()));
    for ended in futures_util::future::join_all(twice).await {
        ended.unwrap();
    }
    assert_eq!(programs.tries(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failing_container_that_a_stop_has_asked_to_end_keeps_the_grace_of_that_stop() {
    let (programs, entry) = (Faulty::new(0), running());
    let target = targets(&programs.config, &entry.lock()).remove(0);
    assert!(ask_now(&mut entry.lock(), &target));
    stop_to_restart(&programs, &entry, "main", grace()).await.unwrap();
    assert_eq!(programs.tries(), 0);
}
