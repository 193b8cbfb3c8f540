//! Follows the runtime's own container events, where it supports them, to learn of exits.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use winddown_shared::PodUid;

use super::client::Optional;
use super::{Context, api, exits, labels, list};

/// The wait before a stream that broke off is opened again.
const AGAIN: Duration = Duration::from_secs(1);

/// Follows the events for as long as the agent lives.
pub(super) async fn follow(context: Arc<Context>) {
    let mut health = context.health.subscribe();
    loop {
        let Ok(epoch) = health.wait_for(|h| h.reachable).await.map(|h| h.epoch) else { return };
        if !context.client.lacks(Optional::Events)
            && let Ok(stream) = context.client.events().await
        {
            // The listing covers what happened before the stream began.
            list::relist(&context).await;
            read_events(&context, stream).await;
            if !context.client.lacks(Optional::Events) {
                sleep(AGAIN).await;
                continue;
            }
        }
        if health.wait_for(|h| h.epoch != epoch).await.is_err() {
            return;
        }
    }
}

async fn read_events(
    context: &Arc<Context>,
    mut stream: tonic::Streaming<api::ContainerEventResponse>,
) {
    while let Ok(Some(event)) = stream.message().await {
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
            Some((name, id)) => {
                let context = Arc::clone(context);
                tokio::spawn(async move { exits::settle(&context, &entry, &name, &id).await });
            }
            // The sandbox itself, or a container that is being started.
            None if *event.container_id == sandbox.id => {
                entry.lock().own.unsure = true;
                entry.announce();
            }
            None => {}
        }
    }
}
