//! Durations as Go writes them.

/// A duration as Go's `time.Duration` holds it: signed nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

/// Text that is not a Go duration.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("not a duration: {0:?}")]
pub struct GoDurationError(String);
