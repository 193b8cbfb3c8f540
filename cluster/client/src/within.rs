//! A limit on the time of a request, and what this time passed with.

use std::cell::RefCell;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::error::RequestError;
use super::health::ApiHealth;

tokio::task_local! {
    /// What the request waits for that the caller of [`within`] polls: a client's service is polled in its caller's task.
    static AWAITED: RefCell<Awaited>;
}

/// What a request waits for. Only the last of these is the API server's.
#[derive(Debug)]
pub(super) enum Awaited {
    /// The rate limit.
    Turn,
    /// Credentials; the health says what is missing.
    Credentials(watch::Receiver<ApiHealth>),
    Answer,
}

/// Waits for a request at most this long. If nothing could be sent all that time, the error blames this process and not
/// the API server.
///
/// # Errors
/// A [`kube::Error::Service`] with [`RequestError::Late`], [`RequestError::Unsent`] or [`RequestError::Unsigned`].
pub async fn within<T>(
    limit: Duration,
    request: impl Future<Output = T>,
) -> Result<T, kube::Error> {
    let limited = async {
        let late = match timeout(limit, request).await {
            Ok(answer) => return Ok(answer),
            Err(_) => AWAITED.with(|awaited| awaited.borrow().late(limit)),
        };
        Err(kube::Error::Service(late.into()))
    };
    AWAITED.scope(RefCell::new(Awaited::Answer), limited).await
}

// === impl Awaited ===

impl Awaited {
    /// Notes that the current request waits for this from now on.
    pub(super) fn begins(self) {
        // A watch, say, has no limit.
        let _ = AWAITED.try_with(|awaited| awaited.replace(self));
    }

    fn late(&self, after: Duration) -> RequestError {
        match self {
            Self::Turn => RequestError::Unsent { after },
            Self::Credentials(health) => health.borrow().state.unsigned(),
            Self::Answer => RequestError::Late { after },
        }
    }
}
