//! Named points at which a test can end this process as SIGKILL would.
//!
//! Does nothing except in debug builds.

/// Does nothing.
#[cfg(not(debug_assertions))]
pub fn point(_name: &str) {}

/// Ends the process without unwinding if the environment variable `WINDDOWN_FAULT` names this point.
#[cfg(debug_assertions)]
pub fn point(name: &str) {
    if std::env::var_os("WINDDOWN_FAULT").is_some_and(|wanted| wanted == name) {
        std::process::abort();
    }
}
