//! Waits for a condition.

use std::fmt;
use std::time::Duration;

use super::{ApiServer, Objects};

/// The condition was not met in time. `Debug` is as readable as `Display`, for `unwrap`.
#[derive(Clone)]
pub struct Waited {
    what: String,
    time: Duration,
    last: Vec<String>,
}

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not within {:?}: {}; the last requests:", self.time, self.what)?;
        for request in &self.last {
            write!(f, "\n  {request}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Waited {}

impl ApiServer {
    /// Waits up to 30 s until `look` finds something, and returns it. `look` is called at once, and after every change
    /// of an object and every request. `what` describes the condition for the error.
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    /// The time is up.
    pub async fn until<T>(
        &self,
        what: &str,
        look: impl FnMut(&Objects<'_>) -> Option<T>,
    ) -> Result<T, Waited> {
        self.within(Duration::from_secs(30), what, look).await
    }

    /// The same with another timeout.
    ///
    /// # Errors
    /// The time is up.
    pub async fn within<T>(
        &self,
        time: Duration,
        what: &str,
        mut look: impl FnMut(&Objects<'_>) -> Option<T>,
    ) -> Result<T, Waited> {
        let mut activity = self.shared.activity();
        let looking = async {
            loop {
                activity.mark_unchanged();
                if let Some(found) = self.shared.with(|core| look(&Objects(core))) {
                    return found;
                }
                // The sender lives as long as this handle.
                let _ = activity.changed().await;
            }
        };
        tokio::time::timeout(time, looking).await.map_err(|_| Waited {
            what: what.to_owned(),
            time,
            last: self.shared.with(|core| {
                core.journal().iter().rev().take(20).rev().map(ToString::to_string).collect()
            }),
        })
    }
}
