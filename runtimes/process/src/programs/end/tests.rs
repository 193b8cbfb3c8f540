use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use winddown_engine::action_error::ActionError;
use winddown_engine::probing::ProbeState;
use winddown_engine::stopping::{stop, stop_to_restart, unknown_end};
use winddown_shared::{EndCause, Pod, PodUid, UnsupportedField, WallClock, WallTime};
use winddown_shim::order::ExecCommand;

use super::*;
use crate::programs::CommandFiles;
use crate::programs::config::{ProcessConfig, ShimCommand};
use crate::programs::pod::{self, Run, Starting};
use crate::programs::stats::StatsSources;

/// How long a hook takes.
const HOOK: Duration = Duration::from_secs(10);

/// A driver whose first `fails` kills of a container have no effect.
struct Faulty {
    fails: u32,
    tries: AtomicU32,
    hooks: AtomicU32,
}

fn faulty(fails: u32) -> Arc<ProgramContext<Faulty>> {
    faulty_in(Path::new("/none"), fails)
}

fn faulty_in(dir: &Path, fails: u32) -> Arc<ProgramContext<Faulty>> {
    let shim = ShimCommand::new("/none", []);
    let config = ProcessConfig::new(dir, dir, shim, WallClock::new(WallTime::default));
    let driver = Faulty { fails, tries: AtomicU32::new(0), hooks: AtomicU32::new(0) };
    Arc::new(ProgramContext::new(config, String::new(), watch::channel(()).1, driver))
}

fn tries(context: &ProgramContext<Faulty>) -> u32 {
    context.driver.tries.load(Ordering::SeqCst)
}

impl ProgramDriver for Faulty {
    const SCHEME: &'static str = "faulty";

    fn unsupported(&self, _: &Pod) -> Vec<UnsupportedField> {
        Vec::new()
    }

    async fn start(
        _: &Arc<ProgramContext<Self>>,
        _: Starting,
        _: &Pod,
        _: &Arc<str>,
        _: (u32, Duration),
    ) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn exec(
        context: &Arc<ProgramContext<Self>>,
        _: (&Pod, &str),
        _: ExecCommand,
        _: CommandFiles,
        _: Duration,
    ) -> Result<i32, ActionError> {
        context.driver.hooks.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(HOOK).await;
        Ok(0)
    }

    async fn settle(_: &Arc<ProgramContext<Self>>, _: &Arc<PodEntry>) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn send_stop_signal(_: &Arc<ProgramContext<Self>>, _: &Arc<PodEntry>, _: &StopTarget) {}

    async fn kill(
        context: &Arc<ProgramContext<Self>>,
        entry: &Arc<PodEntry>,
        target: &StopTarget,
        round: u32,
    ) {
        if round > 0 || context.driver.tries.fetch_add(1, Ordering::SeqCst) < context.driver.fails {
            return;
        }
        let exit = unknown_end("", None, WallTime::default());
        if let Some(run) = entry.lock().run(&target.name, &target.id) {
            run.finish(exit, (Duration::ZERO, Duration::ZERO), &context.config.backoff);
        }
        entry.bump();
    }

    async fn unkillable_error(
        _: &Arc<ProgramContext<Self>>,
        _: &Arc<PodEntry>,
        _: &StopTarget,
    ) -> RuntimeError {
        RuntimeError::Failed { what: "it survives".to_owned(), source: None }
    }

    async fn clean_up(_: &Arc<ProgramContext<Self>>, _: &PodUid) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn stats_sources(&self, _: &PodUid, _: &str, _: &Run) -> StatsSources {
        StatsSources::default()
    }

    fn pods_cgroup(&self) -> Option<String> {
        None
    }
}

/// A pod whose container `main` runs.
fn running() -> Arc<PodEntry> {
    running_with(&json!({}))
}

fn running_with(lifecycle: &serde_json::Value) -> Arc<PodEntry> {
    let entry = PodEntry::new(PodUid::new("uid"), broadcast::Sender::new(1));
    let object = json!({"metadata": {"name": "web", "namespace": "default", "uid": "uid"},
        "spec": {"containers": [{"name": "main", "image": "none", "command": ["true"],
            "lifecycle": lifecycle}]}});
    let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
    {
        let mut state = entry.lock();
        state.take_pod(&pod);
        let mut run = pod::run((entry.uid(), "main", 0), WallTime::default(), Duration::ZERO);
        run.probe_state = ProbeState {
            started: true,
            ready: false,
            probed: true,
            failing: Some(EndCause::Changed),
            ..ProbeState::default()
        };
        state.container("main").unwrap().run = Some(run);
    }
    Arc::new(entry)
}

fn grace() -> Grace {
    Grace::fixed(Duration::from_secs(1))
}

#[tokio::test(start_paused = true)]
async fn a_failing_container_that_could_not_be_ended_is_ended_by_the_next_try() {
    let (context, entry) = (faulty(1), running());
    let error =
        stop_to_restart(&context, &entry, "main", EndCause::Changed, grace()).await.unwrap_err();
    assert_eq!(error.to_string(), "it survives");
    assert!(entry.lock().any_running());
    stop_to_restart(&context, &entry, "main", EndCause::Changed, grace()).await.unwrap();
    assert_eq!((tries(&context), entry.lock().any_running()), (2, false));
    stop_to_restart(&context, &entry, "main", EndCause::Changed, grace()).await.unwrap();
    assert_eq!(tries(&context), 2, "nothing runs any more");
}

#[tokio::test(start_paused = true)]
async fn a_failing_container_is_not_ended_twice_at_a_time() {
    let (context, entry) = (faulty(0), running());
    let twice =
        [(); 2].map(|()| stop_to_restart(&context, &entry, "main", EndCause::Changed, grace()));
    for ended in futures_util::future::join_all(twice).await {
        ended.unwrap();
    }
    assert_eq!(tries(&context), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failing_container_that_a_stop_has_asked_to_end_keeps_the_grace_of_that_stop() {
    let (context, entry) = (faulty(0), running());
    entry.lock().stopping = true;
    entry.lock().attempt("main", 0).unwrap().ask(false);
    stop_to_restart(&context, &entry, "main", EndCause::Changed, grace()).await.unwrap();
    assert_eq!(tries(&context), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failing_container_that_an_earlier_agent_asked_to_end_is_ended_by_this_one() {
    let (context, entry) = (faulty(0), running());
    entry.lock().attempt("main", 0).unwrap().ask(false);
    stop_to_restart(&context, &entry, "main", EndCause::Changed, grace()).await.unwrap();
    assert_eq!((tries(&context), entry.lock().any_running()), (1, false));
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_runs_before_a_restart_is_awaited_by_a_stop_and_not_run_again() {
    let hook = json!({"preStop": {"exec": {"command": ["hook"]}}});
    let (context, entry) = (faulty(0), running_with(&hook));
    let (began, long) = (Instant::now(), || Grace::fixed(Duration::from_secs(60)));
    let restart = stop_to_restart(&context, &entry, "main", EndCause::Changed, long());
    let stop = async {
        tokio::time::sleep(HOOK / 2).await;
        stop(&context, &entry, None, long()).await
    };
    let (restarted, stopped) = tokio::join!(restart, stop);
    restarted.unwrap();
    assert_eq!(stopped.unwrap().containers.len(), 1);
    assert_eq!(context.driver.hooks.load(Ordering::SeqCst), 1);
    let signalled = entry.lock().attempt("main", 0).unwrap().stop_request.unwrap().at;
    assert!(signalled >= began + HOOK, "it has run to its end: {:?}", signalled - began);
}

/// An earlier agent promised the end, and may have been gone before it sent the signal.
#[tokio::test(start_paused = true)]
async fn a_container_is_killed_at_the_promised_end_but_not_within_a_second_of_its_first_signal() {
    for (millis, is_asked) in
        [0, 1, 300, 1000, 5000].into_iter().flat_map(|left| [(left, true), (left, false)])
    {
        let (context, entry) = (faulty(0), running());
        if is_asked {
            entry.lock().attempt("main", 0).unwrap().ask(false);
        }
        let (began, left) = (Instant::now(), Duration::from_millis(millis));
        stop(&context, &entry, None, Grace::fixed(left)).await.unwrap();
        let least = if is_asked { Duration::ZERO } else { Grace::SHORTEST };
        assert_eq!(began.elapsed(), left.max(least), "{millis} ms, asked: {is_asked}");
        assert!(entry.lock().attempt("main", 0).unwrap().stop_request.is_some());
    }
}

/// The next agent takes the mark for the stop of the pod.
#[tokio::test]
async fn only_a_stop_of_the_pod_leaves_the_mark_that_its_containers_did_not_crash() {
    for (is_stopping, was_signalled) in [(false, false), (true, false), (true, true)] {
        let dir = tempfile::tempdir().unwrap();
        let (context, entry) = (faulty_in(dir.path(), 0), running());
        let attempt = paths::container(&context.config, entry.uid(), "main").join("0");
        std::fs::create_dir_all(&attempt).unwrap();
        if was_signalled {
            entry.lock().attempt("main", 0).unwrap().ask(false);
        }
        let zero = Grace::fixed(Duration::ZERO);
        if is_stopping {
            stop(&context, &entry, None, zero).await.unwrap();
        } else {
            stop_to_restart(&context, &entry, "main", EndCause::Changed, zero).await.unwrap();
        }
        // Notes are written in this order.
        let last = dir.path().join("last");
        context.notes.set(last.clone(), true);
        while !last.exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let is_marked = paths::asked(&attempt).exists();
        assert_eq!(is_marked, is_stopping, "{is_stopping} {was_signalled}");
    }
}
