//! Skipping of tests: a test that cannot run here says so, or fails if nothing may be skipped.

use crate::{Base, Recipe, Unavailable};

/// A test could not run: something went wrong, or `WINDDOWN_NO_SKIP` requires it to run.
#[derive(Debug, thiserror::Error)]
#[error("{test} could not run, and may not be skipped")]
pub struct Skipped {
    /// The name of the test.
    pub test: String,
    /// What was missing or went wrong.
    #[source]
    pub why: Unavailable,
}

/// The base to boot from. None if the test is skipped, after a line `SKIPPED: <test>: <why>` on standard output, which
/// the test runner shows with `--show-output`; or if the base belongs to the long form and this is not the long form,
/// after a line `LEFT: <test>: <why>`.
///
/// # Errors
/// [`Skipped`] instead of none if the environment variable `WINDDOWN_NO_SKIP` is set, and whenever the base is
/// unavailable although this machine lacks nothing, which is a failure.
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

/// Whether this is the long form, `make test-all`. If not, prints a line `LEFT: <test>: <why>`, which is counted,
/// because the test is left to the long form.
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

/// Defines a module with a test of one scenario for every release of Debian, or for those with systemd 257 and later.
/// The scenario is an async function of the test's name and the release.
///
/// ```ignore
/// on_each_release!(a_late_lock_is_refused: refuses_a_late_lock);
/// on_each_release!(since 257, shutdown_c_is_followed: follows_shutdown_c);
/// ```
#[macro_export]
macro_rules! on_each_release {
    ($name:ident: $scenario:ident) => {
        mod $name {
            $crate::on_each_release!(@252 $name, $scenario);
            $crate::on_each_release!(@later $name, $scenario);
        }
    };
    (since 257, $name:ident: $scenario:ident) => {
        mod $name {
            $crate::on_each_release!(@later $name, $scenario);
        }
    };
    (@252 $name:ident, $scenario:ident) => {
        #[tokio::test]
        async fn on_systemd_252() -> $crate::scenario::TestResult {
            let test = concat!(stringify!($name), "::on_systemd_252");
            super::$scenario(test, $crate::Suite::Bookworm).await
        }
    };
    (@later $name:ident, $scenario:ident) => {
        #[tokio::test]
        async fn on_systemd_257() -> $crate::scenario::TestResult {
            let test = concat!(stringify!($name), "::on_systemd_257");
            super::$scenario(test, $crate::Suite::Trixie).await
        }

        #[tokio::test]
        async fn on_systemd_262() -> $crate::scenario::TestResult {
            let test = concat!(stringify!($name), "::on_systemd_262");
            super::$scenario(test, $crate::Suite::Sid).await
        }
    };
}
