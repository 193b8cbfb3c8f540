//! The exits of runs.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;
use winddown_engine::files;
use winddown_engine::stopping::unknown_end;
use winddown_shared::{Backoff, ContainerExit, error_chain};
use winddown_shim::record::{self, AttemptRecord, ExitRecord};

use super::config::ProcessConfig;
use super::pod::{PodEntry, Run};

/// The message of a run whose end was not observed.
const UNOBSERVED: &str = "the container exited, but its exit code was not recorded";
/// Delays before a record that cannot be read is read again.
const READ_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));

/// Reads how the attempt in `dir` ended; none if that was not recorded.
pub(crate) async fn read(dir: &Path) -> Option<ExitRecord> {
    until_readable(&dir.join(record::EXIT), record::try_read).await
}

/// Reads a record with `read`. One that cannot be read (no file descriptor is left, for example) is read again, however
/// long that takes: until then the container still runs.
pub(crate) async fn until_readable<T>(path: &Path, read: impl Fn(&Path) -> io::Result<T>) -> T {
    let mut backoff = READ_BACKOFF;
    loop {
        let error = match read(path) {
            Ok(record) => return record,
            Err(error) => error,
        };
        tracing::warn!(path = %path.display(), error = error_chain(&error),
            "cannot read how a container exited: retrying until the file is readable or removed");
        sleep(backoff.next_delay()).await;
    }
}

/// Converts the supervisor's record.
fn recorded_exit(record: ExitRecord) -> ContainerExit {
    let mut exit = ContainerExit::new(record.exit_code);
    (exit.signal, exit.reason) = (record.signal, record.reason.into());
    exit.message = record.message;
    (exit.started_at, exit.finished_at) = (Some(record.started_at), Some(record.finished_at));
    exit
}

/// Records the end of a run; without a record its end was not observed.
pub(crate) fn enter(
    config: &ProcessConfig,
    entry: &PodEntry,
    (name, attempt): (&str, u32),
    record: Option<ExitRecord>,
) {
    let mut state = entry.lock();
    let Some(run) = state.attempt(name, attempt) else { return };
    if run.end.is_some() {
        return;
    }
    let (exit, ran) = match record {
        Some(record) => {
            let ran = Duration::from_millis(record.ran_ms);
            (recorded_exit(record), ran)
        }
        None => (unknown_end(UNOBSERVED, run.started_at, config.wall.now()), Duration::ZERO),
    };
    run.own.main = None;
    run.finish(exit, (ran, Duration::ZERO), &config.backoff);
}

/// Records the end of a run that was over before the agent started. The wall clock may have jumped, so the container
/// waits no longer than its backoff from now.
pub(crate) fn enter_past(config: &ProcessConfig, run: &mut Run, exit: Option<ExitRecord>) {
    let now = config.wall.now();
    let ran = Duration::from_millis(exit.as_ref().map_or(0, |exit| exit.ran_ms));
    let since = exit.as_ref().map_or(Duration::ZERO, |exit| {
        Duration::try_from(now.duration_since(exit.finished_at)).unwrap_or_default()
    });
    let exit = exit.map_or_else(|| unknown_end(UNOBSERVED, run.started_at, now), recorded_exit);
    run.finish(exit, (ran, since), &config.backoff);
}

/// Removes the records and logs of all but the last two attempts of a container; `dir` is the newest attempt.
pub(crate) fn prune(dir: &Path) {
    let Some((parent, number)) = dir.parent().zip(number(dir)) else { return };
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let Some(old) = self::number(&path).filter(|n| n.saturating_add(1) < number) else {
            continue;
        };
        let log = record::read::<AttemptRecord>(&path.join(record::ATTEMPT)).map(|r| r.log);
        if std::fs::remove_dir_all(&path).is_ok() {
            tracing::debug!(attempt = old, path = %path.display(), "removed the records of an old attempt");
        }
        if let Some(log) = log {
            files::remove_log(&log);
        }
    }
}

fn number(dir: &Path) -> Option<u32> {
    dir.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use winddown_shared::WallTime;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_record_that_cannot_be_read_is_read_again_and_does_not_count_as_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(record::EXIT);
        assert_eq!(read(dir.path()).await, None);
        // A directory cannot be read like a file.
        std::fs::create_dir(&path).unwrap();
        let exit = ExitRecord {
            exit_code: 3,
            signal: None,
            reason: "Error".to_owned(),
            message: String::new(),
            started_at: WallTime::default(),
            finished_at: WallTime::default(),
            ran_ms: 5,
            boot_id: "b".to_owned(),
        };
        let repair = async {
            sleep(Duration::from_secs(60)).await;
            std::fs::remove_dir(&path).unwrap();
            record::write(&path, &exit, false).unwrap();
        };
        let (seen, ()) = tokio::join!(read(dir.path()), repair);
        assert_eq!(seen.as_ref(), Some(&exit));
    }
}
