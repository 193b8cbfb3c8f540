//! Markers of attempts that were asked to end, kept on disk so that an agent that is killed in the
//! middle of a stop does not ask again when it is back: many programs take a second SIGTERM for "at
//! once".

use std::path::Path;

use winddown_engine::disk_notes::Notes;
use winddown_shared::error_chain;
use winddown_shim::record;

/// An empty file in the attempt's directory.
const MARK: &str = "asked";
/// Notes of attempts, by their directories. As [`Notes::start`].
pub(crate) fn notes() -> Notes {
    Notes::start(mark)
}

/// Whether the attempt was asked to end.
pub(crate) fn was_asked(attempt: &Path) -> bool {
    attempt.join(MARK).exists()
}

/// Without a sync: lost with a crash of the machine, which ends the attempt anyway.
fn mark(attempt: &Path) {
    if let Err(error) = record::create(&attempt.join(MARK)) {
        tracing::debug!(error = error_chain(&error), attempt = %attempt.display(), "not noted that it was asked to end");
    }
}
