//! The agent's pictures, one after the other, whatever becomes of the agent.

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::RETRY;
use winddown_control::api::Status;
use winddown_control::{Client, ClientError, Lines};

/// Pictures that may wait to be drawn; the agent waits when there are more.
const WAITING: usize = 4;

/// What is heard of the agent.
pub(super) enum FeedEvent {
    /// The node as it is now.
    Status(Box<Status>),
    /// It does not answer; it is asked again.
    Gone(ClientError),
    /// It answers what cannot be used, and asking again will not help.
    Failed(ClientError),
}

/// Listens until the receiver goes away. `first` is what the first question came to.
pub(super) fn listen(
    client: &Client,
    first: Result<Lines, ClientError>,
) -> mpsc::Receiver<FeedEvent> {
    let (events, receiver) = mpsc::channel(WAITING);
    let client = client.clone();
    tokio::spawn(async move {
        let mut answer = first;
        loop {
            let error = match answer {
                Ok(lines) => match follow(lines, &events).await {
                    Some(error) => error,
                    None => return,
                },
                Err(error) => error,
            };
            let again = error.may_come_back();
            let printer = if again { FeedEvent::Gone(error) } else { FeedEvent::Failed(error) };
            if events.send(printer).await.is_err() || !again {
                return;
            }
            sleep(RETRY).await;
            answer = client.watch().await;
        }
    });
    receiver
}

/// Tells every picture; why there are no more, or none when the receiver is gone.
async fn follow(mut lines: Lines, events: &mpsc::Sender<FeedEvent>) -> Option<ClientError> {
    loop {
        match lines.next::<Status>().await {
            Ok(Some(status)) => events.send(FeedEvent::Status(Box::new(status))).await.ok()?,
            Ok(None) => return Some(lines.closed()),
            Err(error) => return Some(error),
        }
    }
}
