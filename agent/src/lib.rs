//! The winddown agent: configuration, pod manifests, the control socket, the commands, and the
//! wiring of the controllers to the systems they drive.

pub mod cli;
pub mod commands;
pub mod drill;
pub mod install;

/// The program in docs/embedding.md compiles and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../../docs/embedding.md")]
pub struct Embedding;
