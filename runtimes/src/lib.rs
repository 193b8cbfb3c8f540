//! What runs the containers of a pod.
//!
//! * [`process`]: supervised processes of the host, the embedded default. No image, no daemon.
//! * [`plan`]: which container to start, stop or wait for. Pure, and the same for every runtime.
//!
//! A runtime is a module of its own and implements [`winddown_shared::Runtime`].

mod environment;
mod fault;
pub mod plan;
pub mod process;
mod ready;

pub use environment::{EnvironmentError, NodeFacts, command_line, environment};
