//! Skipping aloud: a test that cannot run here says so, and where nothing may be skipped it fails.

use crate::{Base, Recipe, Unavailable};

/// A test could not run: something went wrong, or `WINDDOWN_NO_SKIP` says that it must.
#[derive(Debug, thiserror::Error)]
#[error("{test} could not run, and may not be skipped")]
pub struct Skipped {
    /// The test.
    pub test: String,
    /// What was missing, or went wrong.
    #[source]
    pub why: Unavailable,
}

/// The base to boot from, or nothing, after a line `SKIPPED: <test>: <why>` on standard
/// output, which the test runner shows with `--show-output`; or after a line `LEFT: <test>: <why>` for a
/// base that belongs to the long form, where this is not that.
///
/// # Errors
/// [`Skipped`] instead of nothing when the environment variable `WINDDOWN_NO_SKIP` is set, and whenever
/// this machine lacks nothing and yet there is no base: that is a failure.
pub async fn base_or_skip(test: &str, recipe: impl Into<Recipe>) -> Result<Option<Base>, Skipped> {
    let recipe = recipe.into();
    if let Some(why) = recipe.left_because()
        && !in_long_form(test, why)
    {
        return Ok(None);
    }
    match Base::find(recipe).await {
        Ok(base) => Ok(Some(base)),
        Err(why) if !why.is_lacking() || std::env::var_os("WINDDOWN_NO_SKIP").is_some() => {
            Err(Skipped { test: test.to_owned(), why })
        }
        Err(why) => {
            println!("SKIPPED: {test}: {why}");
            Ok(None)
        }
    }
}

/// Whether this is the long form, `make test-all`. If not, the test is left to it, which is said in a line
/// `LEFT: <test>: <why>` and counted.
#[must_use]
pub fn in_long_form(test: &str, why: &str) -> bool {
    let is_long = is_long_form();
    if !is_long {
        println!("LEFT: {test}: {why}");
    }
    is_long
}

/// Whether this is the long form.
pub(crate) fn is_long_form() -> bool {
    std::env::var_os("WINDDOWN_LONG").is_some()
}
