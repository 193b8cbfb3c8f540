//! Skipping aloud: a test that cannot run here says so, and where nothing may be skipped it fails.

use crate::{Base, Flavour, Unavailable};

/// A test could not run, and `WINDDOWN_NO_SKIP` says that it must.
#[derive(Debug, thiserror::Error)]
#[error("{test} may not be skipped, because WINDDOWN_NO_SKIP is set")]
pub struct Skipped {
    /// The test.
    pub test: String,
    /// What was missing.
    #[source]
    pub why: Unavailable,
}

/// The base to boot from, or nothing, after a line `SKIPPED: <test>: <why>` on standard
/// output, which the test runner shows with `--show-output`.
///
/// # Errors
/// [`Skipped`] instead of nothing when the environment variable `WINDDOWN_NO_SKIP` is set. A base
/// that is unavailable for another reason than what the machine lacks is never skipped over.
pub async fn base_or_skip(test: &str, flavour: Flavour) -> Result<Option<Base>, Skipped> {
    match Base::find(flavour).await {
        Ok(base) => Ok(Some(base)),
        Err(why) if std::env::var_os("WINDDOWN_NO_SKIP").is_some() => {
            Err(Skipped { test: test.to_owned(), why })
        }
        Err(why) => {
            println!("SKIPPED: {test}: {why}");
            Ok(None)
        }
    }
}
