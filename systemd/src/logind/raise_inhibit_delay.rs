//! Raises logind's delay to what the pods' grace periods need.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use winddown_host::OneThread;
use winddown_shared::{doubled, error_chain};

use super::session::{LoginCalls, LogindCallError};
use crate::drop_in::{self, Applied, Setting};

/// How long logind may take to apply its configuration after a reload (kubernetes#133133: reading
/// once is too early).
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
/// The first pause between two reads; it doubles.
const FIRST_CHECK_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two reads.
const MAX_CHECK_PAUSE: Duration = Duration::from_millis(800);
/// The timeout of file system operations, for a hung disk.
const DISK_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Raised {
    /// The delay that logind gives now.
    pub(super) delay: Duration,
    /// The file that set the delay, if that is less than wanted.
    pub(super) set_by: Option<Arc<str>>,
    /// Why the delay could not be raised, as text for users.
    pub(super) obstacle: Option<String>,
}

/// Updates the drop-in, makes logind reload, and reads the delay until it settles. `tried` says
/// that this was done before, with no known change since; the result is `None` if indeed nothing
/// changed and logind was not called. The drop-in is that of the agent `owner`. Without a `root` nothing is written and logind
/// is not called; with it comes what works there.
///
/// Cancelling it half-way leaves a complete drop-in or none, and logind perhaps without a reload: `tried` is false then.
///
/// # Errors
/// The delay could not be read. A failure to raise it is no error.
pub(super) async fn raise_inhibit_delay(
    calls: &impl LoginCalls,
    root: Option<(&Path, &OneThread)>,
    owner: &str,
    current: Duration,
    (wanted, tried): (Duration, bool),
) -> Result<Option<Raised>, LogindCallError> {
    let short = current < wanted;
    let Some(root) = root else {
        let obstacle = short.then(|| "logind does not say where its configuration is".to_owned());
        return Ok((!tried).then_some(Raised { delay: current, set_by: None, obstacle }));
    };
    let mut obstacle = None;
    let who = owner.to_owned();
    let applied = on_disk(root, move |root| drop_in::apply(root, &who, wanted, short)).await;
    match &applied {
        Ok(Ok(Applied::Wrote { file })) => {
            tracing::info!(file = %file.display(), delay = ?wanted, "wrote logind's drop-in");
        }
        Ok(Ok(Applied::Removed { file })) => {
            tracing::info!(file = %file.display(), "removed logind's drop-in: the delay suffices without it");
        }
        _ if tried => return Ok(None),
        Ok(Ok(Applied::Nothing)) => {}
        Ok(Err(error)) => obstacle = Some(error_chain(error)),
        Err(error) => obstacle = Some(error.clone()),
    }
    let predicted = on_disk(root, drop_in::find).await.ok();
    let value =
        |set: &Option<Setting>| set.as_ref().map_or(drop_in::DEFAULT_DELAY, |set| set.value);
    let given = predicted.as_ref().map(value);
    // An attempt that was cut short, also an earlier agent's, may have left the files to be read.
    let is_read = given.is_none_or(|given| given <= current);
    if matches!(applied, Ok(Ok(Applied::Nothing))) && !short && is_read {
        return Ok(Some(Raised { delay: current, set_by: None, obstacle }));
    }
    // Reload also when nothing was written: logind may not have read the files yet.
    if let Err(error) = calls.reload().await {
        obstacle = obstacle.or(Some(error.to_string()));
    }
    // A delay that is already long enough settles when it equals what the files say.
    let enough = if short { wanted } else { Duration::MAX };
    let delay = settle(calls, enough, given).await?;
    if delay >= wanted {
        return Ok(Some(Raised { delay, set_by: None, obstacle: None }));
    }
    let set_by = predicted.flatten().filter(|setting| setting.value < wanted);
    let set_by = set_by.map(|setting| setting.file.to_string_lossy().into());
    Ok(Some(Raised { delay, set_by, obstacle }))
}

/// Reads the delay until it is enough, equals what the files say, or the deadline passes.
async fn settle(
    calls: &impl LoginCalls,
    enough: Duration,
    given: Option<Duration>,
) -> Result<Duration, LogindCallError> {
    let deadline = Instant::now() + SETTLE_TIMEOUT;
    let mut checks = 0;
    loop {
        let pause = doubled(FIRST_CHECK_PAUSE, MAX_CHECK_PAUSE, checks);
        let delay = calls.delay().await?;
        let final_word = given == Some(delay);
        if delay >= enough || final_word || Instant::now() + pause > deadline {
            return Ok(delay);
        }
        tokio::time::sleep(pause).await;
        checks += 1;
    }
}

/// Runs `work` on a blocking thread, with a timeout.
async fn on_disk<T: Send + 'static>(
    (root, disk): (&Path, &OneThread),
    work: impl FnOnce(&Path) -> T + Send + 'static,
) -> Result<T, String> {
    let root = PathBuf::from(root);
    match timeout(DISK_TIMEOUT, disk.run(move |()| work(&root))).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(format!("looking for logind's drop-ins failed: {error}")),
        Err(_) => Err(format!("the disk did not answer within {DISK_TIMEOUT:?}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_hangs_takes_one_thread() {
        let (root, disk) = (Path::new("/"), OneThread::default());
        let (comes_back, hangs) = mpsc::channel::<()>();
        let (began, begins) = mpsc::channel();
        let first = on_disk((root, &disk), move |_| hangs.recv());
        let second = on_disk((root, &disk), move |_| began.send(()));
        let (first, second, ()) =
            tokio::join!(first, second, tokio::time::advance(DISK_TIMEOUT * 2));
        assert!(first.is_err() && second.is_err());
        drop(comes_back);
        assert_eq!(on_disk((root, &disk), |_| ()).await, Ok(()));
        assert!(begins.try_recv().is_err(), "a second thread was begun");
    }
}
