//! Named points at which a test can end this process as SIGKILL would.
//!
//! Empty unless the crate is built with the feature `fault-points`, which only its tests do.

/// Does nothing.
#[cfg(not(feature = "fault-points"))]
pub fn point(_name: &str) {}

/// Ends the process without unwinding if the environment variable `WINDDOWN_FAULT` names this point.
#[cfg(feature = "fault-points")]
pub fn point(name: &str) {
    if std::env::var_os("WINDDOWN_FAULT").is_some_and(|wanted| wanted == name) {
        std::process::abort();
    }
}
