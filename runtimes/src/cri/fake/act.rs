//! What the fake's containers do.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

/// What a command says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Act {
    /// None runs for ever.
    run: Option<Duration>,
    code: i32,
    /// None ignores being asked.
    stop: Option<Duration>,
    stop_code: i32,
}

/// How a container is told to end.
#[derive(Debug, Default)]
pub(super) struct Signals {
    pub(super) term: Notify,
    pub(super) kill: Notify,
}

impl Act {
    /// Reads `[any, RUN, CODE, STOP, STOP_CODE]`; what is missing runs for ever and ends at once.
    pub(super) fn read(words: &[String]) -> Self {
        let word = |i: usize| words.get(i).map(String::as_str);
        let seconds = |text: Option<&str>| text?.parse().ok().map(Duration::from_secs_f64);
        let number = |text: Option<&str>| text.and_then(|t| t.parse().ok()).unwrap_or(0);
        Self {
            run: seconds(word(1)),
            code: number(word(2)),
            stop: if word(3) == Some("never") {
                None
            } else {
                Some(seconds(word(3)).unwrap_or_default())
            },
            stop_code: number(word(4)),
        }
    }

    /// Runs to the end and gives the exit code.
    pub(super) async fn run(&self, signals: &Arc<Signals>) -> i32 {
        let by_itself = async {
            match self.run {
                Some(length) => tokio::time::sleep(length).await,
                None => std::future::pending().await,
            }
        };
        let asked = async {
            signals.term.notified().await;
            match self.stop {
                Some(length) => tokio::time::sleep(length).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = by_itself => self.code,
            () = asked => self.stop_code,
            () = signals.kill.notified() => 137,
        }
    }
}
