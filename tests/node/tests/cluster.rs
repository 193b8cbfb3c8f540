//! A node of a cluster: a real systemd, real processes, and an API server that comes and goes.

mod after_nodes;
pub(crate) mod bed;
mod containers;
mod life;
mod power_off;
mod reboot;
