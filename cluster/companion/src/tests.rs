//! Tests of stops with a paused clock and an API server, a kubelet and a container runtime in memory.

mod called_off;
mod completed;
mod evictions;
mod found;
mod gone;
mod held;
mod hooks;
mod kubelets;
mod manifests;
mod outages;
pub(crate) mod pods;
mod responders;
mod view;
mod world;
