//! preStop and postStart handlers, and what probes ask. A command is a unit of its own, in its pod's slice,
//! so that whatever it forks ends with it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;
use winddown_shared::{Pod, PodUid};

use super::units::{ServiceUnits, UnitExit, Whom};
use super::{Context, attempt, names};
use crate::process::hook::{Handler, HookError};
use crate::process::order::Command;

/// For hooks that nothing but their pod's end limits.
pub(crate) const UNLIMITED: Duration = Duration::MAX;
/// Longer than whoever waits for a hook: ends those whose agent was killed meanwhile.
const SPARE: Duration = Duration::from_secs(10);
/// How long killed processes may take to be gone before they are asked again.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// Does what the handler says, in `place` (pod and container). `as_container` is the container's own
/// command, of which everything but the words is taken. Dropping the future ends what runs; `limit` is
/// when that will be at the latest.
///
/// # Errors
/// The command failed, or could not be run.
pub(crate) async fn run<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    place: (&PodUid, &str),
    pod: Option<&Pod>,
    handler: &Handler,
    as_container: Command,
    limit: Duration,
) -> Result<(), HookError> {
    match handler {
        Handler::Sleep(length) => {
            tokio::time::sleep(*length).await;
            Ok(())
        }
        Handler::Http(get) => get.ask().await.map_err(HookError::NoAnswer),
        Handler::Tcp(endpoint) => endpoint.connect().await.map_err(HookError::NoAnswer),
        Handler::Exec(argv) => {
            let Some(pod) = pod else { return Ok(()) };
            let command = Command { argv: argv.clone(), ..as_container };
            exec(context, place, pod, &command, limit).await
        }
    }
}

async fn exec<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    (uid, container): (&PodUid, &str),
    pod: &Pod,
    command: &Command,
    limit: Duration,
) -> Result<(), HookError> {
    let words = || command.argv.join(" ");
    let broken = |source| HookError::Broken { command: words(), source };
    let number = context.hooks.fetch_add(1, Ordering::Relaxed);
    let name = names::hook(uid, container, std::process::id(), number);
    let mut unit = attempt::command_unit(&context.config, pod, container, name.clone(), command)
        .map_err(broken)?;
    unit.max_runtime = limit.checked_add(SPARE).filter(|_| limit != UNLIMITED);
    let mut watched = context.board.expect(&name);
    let leash = Leash { context: Arc::clone(context), unit: Some(name.clone()) };
    let started = context.units.start(unit).await;
    started.map_err(|e| broken(io::Error::other(e)))?;
    context.board.confirm(&name);
    let view = watched.until(super::units::UnitPhase::has_ended).await;
    leash.let_go();
    let error = || broken(io::Error::other("nobody saw how it ended"));
    match view.end.ok_or_else(error)?.status {
        UnitExit::Code(0) => Ok(()),
        other => Err(HookError::Failed { command: words(), code: other.code().0 }),
    }
}

/// While it is held, the unit may run.
struct Leash<U: ServiceUnits> {
    context: Arc<Context<U>>,
    unit: Option<String>,
}

impl<U: ServiceUnits> Leash<U> {
    /// The unit is over.
    fn let_go(mut self) {
        if let Some(unit) = self.unit.take() {
            self.context.board.forget(&unit);
        }
    }
}

impl<U: ServiceUnits> Drop for Leash<U> {
    fn drop(&mut self) {
        let Some(unit) = self.unit.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let context = Arc::clone(&self.context);
        runtime.spawn(async move {
            let mut watched = context.board.expect(&unit);
            let kill = rustix::process::Signal::KILL.as_raw();
            let killed = context.units.signal(&unit, Whom::All, kill).await;
            if killed.is_err() || timeout(KILL_PATIENCE, watched.over()).await.is_err() {
                let _ = context.units.stop(&unit).await;
            }
            context.board.forget(&unit);
        });
    }
}
