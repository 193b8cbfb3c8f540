//! Follows the runtime's own container events, where it supports them, to learn of exits.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use winddown_shared::{Backoff, PodUid};

use super::{CriContext, api, exits, labels, list};

/// The wait before a stream that broke off is opened again; it doubles up to [`MAX_REOPEN_DELAY`] while no event comes.
const FIRST_REOPEN_DELAY: Duration = Duration::from_secs(1);
/// The longest wait. A CRI-O without events ends each stream at once.
const MAX_REOPEN_DELAY: Duration = Duration::from_secs(60);

/// Follows the events for as long as the agent lives.
pub(super) async fn follow(context: Arc<CriContext>) {
    let mut health = context.health.subscribe();
    let mut backoff = Backoff::new(FIRST_REOPEN_DELAY, MAX_REOPEN_DELAY);
    loop {
        let Ok(epoch) = health.wait_for(|h| h.reachable).await.map(|h| h.epoch) else { return };
        let is_lacking = match context.client.events().await {
            Ok(stream) => {
                // The listing covers what happened before the stream began.
                list::relist(&context).await;
                if read_events(&context, stream).await {
                    backoff.reset();
                }
                false
            }
            Err(error) => error.is_unimplemented(),
        };
        tokio::select! {
            () = sleep(backoff.next_delay()), if !is_lacking => {}
            // It may be another version now.
            back = health.wait_for(|h| h.epoch != epoch) => match back {
                Ok(_) => backoff.reset(),
                Err(_) => return,
            },
        }
    }
}

/// Reads the events until the stream ends. Returns whether there were any.
async fn read_events(
    context: &Arc<CriContext>,
    mut stream: tonic::Streaming<api::ContainerEventResponse>,
) -> bool {
    let mut has_heard = false;
    while let Ok(Some(event)) = stream.message().await {
        has_heard = true;
        if event.container_event_type() != api::ContainerEventType::ContainerStoppedEvent {
            continue;
        }
        let Some(sandbox) = &event.pod_sandbox_status else { continue };
        let Some(uid) = sandbox.labels.get(labels::POD_UID) else { continue };
        let Some(entry) = context.pods.get(&PodUid::new(uid.as_str())) else { continue };
        let known = entry.lock().containers.iter().find_map(|c| {
            let run = c.run.as_ref().filter(|run| *run.id == *event.container_id)?;
            Some((Arc::clone(&c.name), Arc::clone(&run.id)))
        });
        match known {
            Some((name, id)) => exits::settle_apart(context, &entry, &name, &id),
            // The sandbox itself, or a container that is being started.
            None if *event.container_id == sandbox.id => {
                entry.lock().own.unsure = true;
                entry.announce();
            }
            None => {}
        }
    }
    has_heard
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;
    use winddown_runtimes_tests::{FakeCri, Fault};

    use super::*;
    use crate::{CriConfig, CriRuntime};

    #[tokio::test]
    async fn events_that_were_refused_once_are_requested_again() {
        let dir = tempfile::tempdir().unwrap();
        let config = CriConfig::below(dir.path());
        let cri = FakeCri::start(&dir.path().join("cri.sock"), config.wall.clone());
        cri.script("GetContainerEvents", 1, Fault::Error("too busy"));
        let _runtime = CriRuntime::open(config).await.unwrap();
        let requests = || cri.calls().iter().filter(|call| *call == "GetContainerEvents").count();
        let again = async {
            while requests() < 2 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(MAX_REOPEN_DELAY, again).await.unwrap();
    }
}
