//! Stops one container.

use std::sync::Arc;

use tokio::time::sleep;
use winddown_engine::driver::StopTarget;
use winddown_engine::pod;
use winddown_shared::{Grace, Retry, RuntimeError};

use super::pod::{PodEntry, PodState};
use super::{ProgramContext, ProgramDriver, paths};

#[cfg(test)]
mod tests;

/// Sends the stop signal, and kills the container when the grace period is over. Resolves when the container has
/// exited.
///
/// # Errors
/// The container survives SIGKILL, or it is unknown whether it does.
pub(super) async fn end<D: ProgramDriver>(
    context: &Arc<ProgramContext<D>>,
    entry: &Arc<PodEntry>,
    target: &StopTarget,
    mut grace: Grace,
) -> Result<(), RuntimeError> {
    let ended = pod::ended(entry, &target.name, &target.id);
    tokio::pin!(ended);
    let ask = async {
        let Asked { is_first, is_stop } = note_asked(&mut entry.lock(), target);
        if is_first {
            D::send_stop_signal(context, entry, target).await;
        }
        // The exit of a container that is only being restarted is a crash, also to the next agent.
        if is_stop {
            let container = paths::container(&context.config, entry.uid(), &target.name);
            context.notes.set(paths::asked(&container.join(target.attempt.to_string())), true);
        }
        grace.expired().await;
    };
    tokio::select! {
        () = &mut ended => return Ok(()),
        () = ask => {}
    }
    if let Some(run) = entry.lock().run(&target.name, &target.id) {
        run.forced |= run.end.is_none();
    }
    for (round, patience) in (0..).zip(Retry::KILL.within(context.config.kill_timeout)) {
        let killed = async {
            D::kill(context, entry, target, round).await;
            sleep(patience).await;
        };
        tokio::select! {
            () = &mut ended => return Ok(()),
            () = killed => {}
        }
    }
    Err(D::unkillable_error(context, entry, target).await)
}

/// What a request to stop a container is.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// Whether the stop signal has to be sent: the container runs, and neither an earlier stop nor the previous agent
    /// has sent it.
    is_first: bool,
    /// Whether the container runs and its whole pod is being stopped.
    is_stop: bool,
}

/// Notes that the container is sent the stop signal now.
fn note_asked(state: &mut PodState, target: &StopTarget) -> Asked {
    let is_stop = state.stop.is_some();
    let Some(run) = state.run(&target.name, &target.id).filter(|run| run.end.is_none()) else {
        return Asked::default();
    };
    let is_first = run.stop_request.is_none();
    let request = run.ask(is_stop);
    if let Some(record) = &mut state.stop {
        record.signalled_at.get_or_insert(request.at);
    }
    Asked { is_first, is_stop }
}
