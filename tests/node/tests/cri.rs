//! winddown on a machine with a real systemd and a real containerd: pods are containers.
//!
//! The pods and what is asked of them are those of the `shutdown` suite. They start once per test,
//! which takes some seconds, so a test asks as much of its node as one story allows.

mod containerd;
mod control_planes;
mod hostile;
mod network;
mod power_off;
mod restarts;
mod silent;
mod unified;
mod volumes;
