//! Signals the main process of a container directly, and the others through the service manager, which knows the
//! processes of a unit.

use std::path::Path;

use rustix::process::Signal;
use winddown_engine::driver::StopTarget;
use winddown_host::kernel;
use winddown_shared::{RuntimeError, error_chain};
use winddown_shim::procfs::Process;

use super::Context;
use super::attempt::UnitAttempt;
use super::units::{KillWhom, ServiceUnits, UnitError};
use crate::programs::pod::PodEntry;
use crate::programs::{caused, failed, launch};

/// Sends the stop signal to the container's main process.
pub(super) async fn send_stop_signal<U: ServiceUnits>(
    context: &Context<U>,
    entry: &PodEntry,
    target: &StopTarget,
) {
    let signal = launch::stop_signal(entry.lock().pod.as_ref(), &target.name);
    send(context, &attempt(context, entry, target), KillWhom::Main, signal).await;
}

/// Sends SIGKILL to all processes of the container's unit. Before a retry, asks the service manager for the unit's
/// state, in case the notification of its end was lost.
pub(super) async fn kill<U: ServiceUnits>(
    context: &Context<U>,
    entry: &PodEntry,
    target: &StopTarget,
    round: u32,
) {
    let attempt = attempt(context, entry, target);
    if round > 0 {
        match context.driver.units.look(&attempt.unit).await {
            Ok(Some(view)) => context.driver.unit_cache.see(&attempt.unit, view),
            Ok(None) => context.driver.unit_cache.forget(&attempt.unit),
            Err(_) => {}
        }
    }
    send(context, &attempt, KillWhom::All, Signal::KILL).await;
}

fn attempt<U>(context: &Context<U>, entry: &PodEntry, target: &StopTarget) -> UnitAttempt {
    UnitAttempt::new(&context.config, entry.uid(), &target.name, target.attempt)
}

/// Sends a signal to the main process at once: the service manager may be busy for as long as the grace period. All others
/// are signalled through it.
async fn send<U: ServiceUnits>(
    context: &Context<U>,
    attempt: &UnitAttempt,
    whom: KillWhom,
    signal: Signal,
) {
    if signal_main(context, attempt, signal) && whom == KillWhom::Main {
        return;
    }
    let sent = context.driver.units.signal(&attempt.unit, whom, signal.as_raw()).await;
    if let Err(error @ UnitError::Silent { .. }) = sent {
        tracing::warn!(uid = %attempt.uid, container = %attempt.container, error = error_chain(&error),
            "the container's main process is signalled without the service manager");
    }
}

/// Returns whether the main process is known and was signalled.
fn signal_main<U>(context: &Context<U>, attempt: &UnitAttempt, signal: Signal) -> bool {
    let pid = context.driver.unit_cache.view(&attempt.unit).and_then(|view| view.main_pid);
    let Some(process) = pid.and_then(|pid| Process::open_any(pid).ok().flatten()) else {
        return false;
    };
    // Read after opening: a pid that was reused belongs to a process outside this unit.
    is_of_unit(&context.config.proc_root, process.pid(), &attempt.unit)
        && process.signal(signal).is_ok_and(|is_there| is_there)
}

fn is_of_unit(proc_root: &Path, pid: i32, unit: &str) -> bool {
    let cgroup = kernel::read_to_string(proc_root.join(pid.to_string()).join("cgroup"));
    cgroup.is_ok_and(|text| text.lines().any(|line| line.split('/').any(|part| part == unit)))
}

/// Explains why a container still runs although it was killed.
pub(super) async fn unkillable_error<U: ServiceUnits>(
    context: &Context<U>,
    entry: &PodEntry,
    target: &StopTarget,
) -> RuntimeError {
    let UnitAttempt { uid, container, unit, .. } = &attempt(context, entry, target);
    match context.driver.units.look(unit).await {
        Err(error) => {
            caused(format!("whether container {container} of pod {uid} runs is not known"), error)
        }
        Ok(_) => {
            let what = format!("container {container} of pod {uid} survives SIGKILL");
            failed(format!("{what}: look at it with `systemctl status '{unit}'`"))
        }
    }
}
