//! The packages: what is in them, and the life of a node that has one, from its installation to
//! its purge; and README.md and docs/, typed into such a node.
//!
//! They are made of the program that the other node tests run, by the script that `make packages`
//! runs for a release build.

mod contents;
mod image;
mod life;
#[path = "../../../programs/tests/docs/page.rs"]
#[allow(dead_code, clippy::expect_used, reason = "made for the tests of the pages themselves")]
mod page;
mod readme;
mod rpm;
mod walkthroughs;
