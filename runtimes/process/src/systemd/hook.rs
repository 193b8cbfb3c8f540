//! Runs the commands of hooks, probes and clients. Each is a unit of its own, so that whatever it forks ends with it.
//!
//! They are in the slice of all pods and not in that of their own. systemd stops the slice of a pod when the node goes
//! down, and then starts nothing in it: on a way down that bypasses logind no preStop hook would run. For the same reason
//! they are in no order with the agent, which is being stopped then: systemd would start them when it has ended.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;
use winddown_engine::action_error::ActionError;
use winddown_engine::container_plan;
use winddown_shared::Pod;
use winddown_shim::order::ExecCommand;

use super::units::{KillWhom, NewUnit, ServiceUnits, UnitOutput, UnitPhase};
use super::{Context, attempt, names};
use crate::programs::CommandFiles;
use crate::programs::config::ProcessConfig;

/// Added to a command's limit to get the unit's maximum runtime, which ends hooks whose agent was killed.
const RUNTIME_SLACK: Duration = Duration::from_secs(10);
/// How long killed processes may take to exit.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// Runs a command beside the pod's container, and resolves with its exit code. Dropping the future kills the command;
/// `limit` is the longest time that it may run, and each answer of the service manager may take.
///
/// # Errors
/// The command cannot be run, or runs for longer than `limit`.
pub(crate) async fn exec<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    (pod, container): (&Pod, &str),
    command: &ExecCommand,
    files: CommandFiles,
    limit: Duration,
) -> Result<i32, ActionError> {
    // A failure of the service manager says nothing about the container.
    let broken = |source: io::Error| {
        let what = format!("cannot run {}", command.argv.join(" "));
        ActionError::Unasked { what, source: Some(Box::new(source)) }
    };
    let number = context.driver.hooks.fetch_add(1, Ordering::Relaxed);
    let name = names::hook(pod.uid(), container, std::process::id(), number);
    let mut unit =
        unit(&context.config, (pod, container), name.clone(), command).map_err(broken)?;
    unit.max_runtime = limit.checked_add(RUNTIME_SLACK);
    let whither = |fd: Option<OwnedFd>| fd.map_or(UnitOutput::Null, UnitOutput::To);
    (unit.output, unit.error) = (whither(files.out), whither(files.error));
    let mut watched = context.driver.unit_cache.expect(&name);
    let unit_name = Some(name.clone());
    let leash = Leash { context: Arc::clone(context), unit: unit_name, held: files.held };
    let silent = |_| broken(io::ErrorKind::TimedOut.into());
    let started = timeout(limit, context.driver.units.start(unit)).await.map_err(silent)?;
    started.map_err(|e| broken(io::Error::other(e)))?;
    context.driver.unit_cache.confirm(&name);
    let has_begun = |phase| phase != UnitPhase::Starting;
    timeout(limit, watched.until(has_begun)).await.map_err(silent)?;
    let view = match timeout(limit, watched.until(UnitPhase::has_ended)).await {
        Ok(view) => view,
        // It may have ended long ago: while the service manager reloads, its news are late.
        Err(_) => {
            let look = timeout(limit, context.driver.units.look(&name)).await.map_err(silent)?;
            match look.map_err(|e| broken(io::Error::other(e)))? {
                Some(view) => view,
                None => {
                    timeout(limit, watched.until(UnitPhase::has_ended)).await.map_err(silent)?
                }
            }
        }
    };
    match view.end {
        Some(end) if view.phase.has_ended() => {
            leash.let_go();
            if end.ran > limit { Err(ActionError::Timeout) } else { Ok(end.status.code().0) }
        }
        None if view.phase.has_ended() => {
            Err(broken(io::Error::other("its exit was not observed")))
        }
        _ => Err(ActionError::Timeout),
    }
}

/// The unit of a command. It is limited as its container is, of whose control group it is no part.
fn unit(
    config: &ProcessConfig,
    (pod, container): (&Pod, &str),
    name: String,
    command: &ExecCommand,
) -> io::Result<NewUnit> {
    let mut unit = attempt::command_unit(config, pod, container, name, command)?;
    unit.slice = names::SLICE.to_owned();
    if let Some(found) = container_plan::find(pod, container) {
        unit.limits = attempt::limits(&found.container);
    }
    Ok(unit)
}

/// The unit may run as long as this is held; dropping it kills the unit.
struct Leash<U: ServiceUnits> {
    context: Arc<Context<U>>,
    unit: Option<String>,
    held: Vec<OwnedFd>,
}

impl<U: ServiceUnits> Leash<U> {
    /// Releases the leash of a unit that has ended.
    fn let_go(mut self) {
        if let Some(unit) = self.unit.take() {
            self.context.driver.unit_cache.forget(&unit);
        }
    }
}

impl<U: ServiceUnits> Drop for Leash<U> {
    fn drop(&mut self) {
        let Some(unit) = self.unit.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (context, held) = (Arc::clone(&self.context), std::mem::take(&mut self.held));
        runtime.spawn(async move {
            let mut watched = context.driver.unit_cache.expect(&unit);
            let kill = rustix::process::Signal::KILL.as_raw();
            let _ = context.driver.units.signal(&unit, KillWhom::All, kill).await;
            // A unit whose start is queued has no process yet: it must not begin.
            let _ = context.driver.units.stop(&unit).await;
            let _ = timeout(KILL_PATIENCE, watched.over()).await;
            context.driver.unit_cache.forget(&unit);
            drop(held);
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use winddown_shared::{WallClock, WallTime};

    use std::io::Write as _;

    use tokio::sync::broadcast;
    use winddown_host::service_units::{
        UnitChange, UnitEnd, UnitError, UnitExit, UnitPhase, UnitView,
    };
    use winddown_shared::Mutex;

    use super::*;
    use crate::process::cgroup::Unenforced;
    use crate::programs::config::ShimCommand;
    use crate::systemd::Services;

    /// A service manager that answers the request to start a service only if it `accepts`, and ends none by itself.
    struct Manager {
        accepts: bool,
        asked: Arc<Mutex<Vec<&'static str>>>,
        /// What it answers when it is asked for the state of a unit; `None` if it does not.
        shows: Option<UnitView>,
    }

    impl ServiceUnits for Manager {
        async fn start(&self, _: NewUnit) -> Result<(), UnitError> {
            if !self.accepts {
                std::future::pending::<()>().await;
            }
            Ok(())
        }

        async fn make_slice(&self, slice: &str, _: &str, _: u64) -> Result<(), UnitError> {
            unreachable!("make {slice}")
        }

        async fn weigh_slice(&self, slice: &str, _: u64) -> Result<(), UnitError> {
            unreachable!("weigh {slice}")
        }

        async fn signal(&self, _: &str, _: KillWhom, _: i32) -> Result<(), UnitError> {
            self.asked.lock().push("signal");
            Ok(())
        }

        async fn stop(&self, _: &str) -> Result<(), UnitError> {
            self.asked.lock().push("stop");
            Ok(())
        }

        async fn forget_failure(&self, unit: &str) -> Result<(), UnitError> {
            unreachable!("forget {unit}")
        }

        async fn look(&self, _: &str) -> Result<Option<UnitView>, UnitError> {
            match self.shows {
                Some(view) => Ok(Some(view)),
                None => std::future::pending().await,
            }
        }

        async fn list(&self, prefix: &str) -> Result<Vec<(String, UnitView)>, UnitError> {
            unreachable!("list {prefix}")
        }

        fn changes(&self) -> broadcast::Receiver<UnitChange> {
            broadcast::channel(1).1
        }
    }

    fn of(units: Manager) -> (Arc<Context<Manager>>, Pod) {
        let clock = WallClock::fixed(WallTime::UNIX_EPOCH);
        let config = ProcessConfig::new("/s", "/l", ShimCommand::subcommand("shim"), clock);
        let driver = Services::new(units, Unenforced::default(), String::new(), None);
        let alive = tokio::sync::watch::channel(()).1;
        let context = Arc::new(Context::new(config, String::new(), alive, driver));
        let meta = json!({"name": "web", "namespace": "default", "uid": "u"});
        let object = json!({"metadata": meta, "spec": {"containers": [{"name": "main"}]}});
        (context, Pod::new(serde_json::from_value(object).unwrap()).unwrap())
    }

    /// A view of a unit in this phase, which ran this long if it has exited.
    fn view(phase: UnitPhase, ran: Option<u64>) -> UnitView {
        let end = ran.map(|ms| UnitEnd {
            status: UnitExit::Code(0),
            out_of_memory: false,
            stopped: false,
            started_at: None,
            finished_at: None,
            ran: Duration::from_millis(ms),
        });
        UnitView { phase, end, ..UnitView::default() }
    }

    /// Probes wait for a second; PID 1 may reload its units for ten.
    #[tokio::test(start_paused = true)]
    async fn a_probe_is_unasked_while_the_service_manager_is_silent_and_fails_only_if_its_command_is_slow()
     {
        let (running, quick) = (view(UnitPhase::Running, None), view(UnitPhase::Over, Some(10)));
        let slow = view(UnitPhase::Over, Some(1500));
        for (accepts, reported, shows, expected) in [
            (false, None, None, "unasked"),
            (true, None, None, "unasked"),
            (true, Some(running), None, "unasked"),
            (true, Some(running), Some(running), "timeout"),
            (true, Some(running), Some(quick), "0"),
            (true, Some(running), Some(slow), "timeout"),
            (true, Some(quick), None, "0"),
            (true, Some(slow), None, "timeout"),
        ] {
            let asked = Arc::<Mutex<Vec<_>>>::default();
            let (context, pod) = of(Manager { accepts, asked, shows });
            let command = ExecCommand { argv: vec!["true".into()], ..ExecCommand::default() };
            let unit = names::hook(pod.uid(), "main", std::process::id(), 0);
            let report = async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                if let Some(view) = reported {
                    context.driver.unit_cache.see(&unit, view);
                }
            };
            let (limit, files) = (Duration::from_secs(1), CommandFiles::default());
            let running = exec(&context, (&pod, "main"), &command, files, limit);
            let (outcome, ()) = tokio::join!(timeout(Duration::from_secs(30), running), report);
            let outcome = match outcome {
                Ok(Ok(code)) => code.to_string(),
                Ok(Err(ActionError::Unasked { .. })) => "unasked".to_owned(),
                Ok(Err(ActionError::Timeout)) => "timeout".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "never".to_owned(),
            };
            assert_eq!(outcome, expected, "{accepts} {reported:?} {shows:?}");
        }
    }

    /// The launcher opens them by their paths, as root: a number that is free would go to a file of another pod.
    #[tokio::test(start_paused = true)]
    async fn the_files_of_an_abandoned_command_stay_open_until_nothing_of_its_unit_runs() {
        for accepts in [true, false] {
            let asked = Arc::<Mutex<Vec<_>>>::default();
            let (context, pod) = of(Manager { accepts, asked: Arc::clone(&asked), shows: None });
            let (held, mut near) = io::pipe().unwrap();
            let files = CommandFiles { held: vec![held.into()], ..CommandFiles::default() };
            let command = ExecCommand { argv: vec!["true".into()], ..ExecCommand::default() };
            let running = exec(&context, (&pod, "main"), &command, files, KILL_PATIENCE);
            let second = Duration::from_secs(1);
            assert!(timeout(second, running).await.is_err(), "{accepts}");
            tokio::time::sleep(second).await;
            assert_eq!(*asked.lock(), ["signal", "stop"], "{accepts}: it must not begin");
            assert!(near.write(b"x").is_ok(), "{accepts}: it may still open them");
            let unit = names::hook(pod.uid(), "main", std::process::id(), 0);
            let over = UnitView { phase: UnitPhase::Over, ..UnitView::default() };
            context.driver.unit_cache.see(&unit, over);
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(near.write(b"x").is_err(), "{accepts}: nothing of it runs any more");
        }
    }

    #[test]
    fn a_command_beside_a_container_has_its_limits() {
        let limits = json!({"memory": "64Mi", "cpu": "1500m"});
        let object = json!({
            "metadata": {"name": "web", "namespace": "n", "uid": "u"},
            "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
        });
        let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
        let clock = WallClock::fixed(WallTime::UNIX_EPOCH);
        let config = ProcessConfig::new("/s", "/l", ShimCommand::subcommand("shim"), clock);
        let command = ExecCommand::default();
        let made = unit(&config, (&pod, "main"), "hook.service".into(), &command).unwrap();
        assert_eq!(made.slice, names::SLICE);
        assert_eq!((made.limits.memory_max, made.limits.cpu_milli), (Some(64 << 20), Some(1500)));
    }
}
