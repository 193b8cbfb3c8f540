//! The same with real containers: containerd on a disposable node, whose memory or disks are bounded.

mod disks;
mod limits;
mod memory;
mod stage;
