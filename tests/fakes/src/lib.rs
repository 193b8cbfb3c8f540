//! Scripted stand-ins for the seams of `winddown-shared`, for the tests of other crates and of embedders. They assert
//! what they are asked and never touch the world.

mod inhibitor;
mod killer;
mod pods;
mod recorder;
mod runtime;
mod syncer;

pub use inhibitor::FakeInhibitor;
pub use killer::{FakeKiller, KillCall};
pub use pods::{pod, pod_with, static_pod};
pub use recorder::FakeRecorder;
pub use runtime::FakeRuntime;
pub use syncer::{FakeSyncer, Script, Step, SyncCall};
