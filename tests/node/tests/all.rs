//! Every test on disposable nodes but those of chaos and of real pressure.

mod cluster;
mod crash;
mod cri;
mod eviction;
mod harness;
mod lame_duck;
mod limits;
mod operator;
mod ordering;
mod packages;
mod preemption;
mod reboots_in_a_row;
mod services;
mod shutdown;
mod ways;
