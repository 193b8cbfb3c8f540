//! winddown on a machine with a real systemd and a real logind: what an operator relies on.
//!
//! Twenty pods in three priorities run on a disposable node. Each writes down when it was started,
//! asked to stop, and gone; the node's journal says what logind and systemd did, and when.

mod cancel;
mod delay;
mod late;
mod lost;
mod manifest;
mod panics;
mod power_off;
mod restarts;
mod spoof;
mod stop;
