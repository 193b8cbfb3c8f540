//! The behaviour of the fake's containers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

/// The behaviour that a container's command describes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Act {
    run: Until,
    code: i32,
    stop: Until,
    stop_code: i32,
}

/// When something ends.
#[derive(Clone, Debug, PartialEq)]
enum Until {
    Never,
    Over(Duration),
    /// When the file exists.
    Gate(PathBuf),
}

/// The signals that stop a container.
#[derive(Debug, Default)]
pub(super) struct Signals {
    pub(super) term: Notify,
    pub(super) kill: Notify,
}

impl Act {
    /// Parses `[any, RUN, CODE, STOP, STOP_CODE, GATE]`. By default a container runs forever and stops at once.
    pub(super) fn read(words: &[String]) -> Self {
        let word = |i: usize| words.get(i).map(String::as_str);
        let number = |text: Option<&str>| text.and_then(|t| t.parse().ok()).unwrap_or(0);
        let until = |text: Option<&str>, otherwise: Until| match (text, word(5)) {
            (Some("gate"), Some(path)) => Until::Gate(path.into()),
            (Some("never"), _) => Until::Never,
            (text, _) => {
                let seconds = text.and_then(|t| t.parse().ok());
                seconds.map_or(otherwise, |s| Until::Over(Duration::from_secs_f64(s)))
            }
        };
        Self {
            run: until(word(1), Until::Never),
            code: number(word(2)),
            stop: until(word(3), Until::Over(Duration::ZERO)),
            stop_code: number(word(4)),
        }
    }

    /// Runs to the end and returns the exit code.
    pub(super) async fn run(&self, signals: &Arc<Signals>) -> i32 {
        let asked = async {
            signals.term.notified().await;
            self.stop.reached().await;
        };
        tokio::select! {
            () = self.run.reached() => self.code,
            () = asked => self.stop_code,
            () = signals.kill.notified() => 137,
        }
    }
}

impl Until {
    async fn reached(&self) {
        match self {
            Self::Never => std::future::pending().await,
            Self::Over(length) => tokio::time::sleep(*length).await,
            Self::Gate(path) => {
                while !path.exists() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    }
}
