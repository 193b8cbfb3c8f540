//! Stops on the paused clock, with an API server, a kubelet and a container runtime in memory.

mod ends;
pub(crate) mod pods;
mod view;
mod world;
