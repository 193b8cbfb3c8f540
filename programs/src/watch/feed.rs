//! A stream of the agent's statuses that survives restarts of the agent.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::RECONNECT_DELAY;
use winddown_control::api::Status;
use winddown_control::{AnswerLines, Client, ClientError};

/// The statuses that may wait to be drawn; the agent waits when there are more.
const MAX_QUEUED_STATUSES: usize = 4;

/// After this time without a change the agent is asked whether it still answers, and it has this time to do so.
const QUIET_TIME: Duration = Duration::from_secs(3);
const ANSWER_TIME: Duration = Duration::from_secs(2);

pub(crate) enum FeedEvent {
    /// The current status of the node.
    Status(Box<Status>),
    /// The agent does not answer; the request is repeated.
    Gone(ClientError),
    /// The agent's answer cannot be used, and a retry will not help.
    Failed(ClientError),
}

/// Forwards events until the receiver is dropped. `first` is the result of the first request.
pub(crate) fn listen(
    client: &Client,
    first: Result<AnswerLines, ClientError>,
) -> mpsc::Receiver<FeedEvent> {
    let (events, receiver) = mpsc::channel(MAX_QUEUED_STATUSES);
    let client = client.clone();
    tokio::spawn(async move {
        let mut answer = first;
        loop {
            let error = match answer {
                Ok(lines) => match follow(lines, &client, &events).await {
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
            sleep(RECONNECT_DELAY).await;
            answer = client.watch().await;
        }
    });
    receiver
}

/// Resolves with an error when an agent that has nothing new does not answer, as one that hangs.
async fn silence(client: &Client) -> ClientError {
    loop {
        sleep(QUIET_TIME).await;
        match timeout(ANSWER_TIME, client.status()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return error,
            Err(_) => return client.silent(ANSWER_TIME),
        }
    }
}

/// Forwards every status. Returns why there are no more; `None` when the receiver was dropped.
async fn follow(
    mut lines: AnswerLines,
    client: &Client,
    events: &mpsc::Sender<FeedEvent>,
) -> Option<ClientError> {
    loop {
        let next = tokio::select! {
            next = lines.next::<Status>() => next,
            error = silence(client) => return Some(error),
        };
        match next {
            Ok(Some(status)) => events.send(FeedEvent::Status(Box::new(status))).await.ok()?,
            Ok(None) => return Some(lines.closed()),
            Err(error) => return Some(error),
        }
    }
}
