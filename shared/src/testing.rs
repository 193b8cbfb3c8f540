//! Scripted fakes for the traits of this crate, for its tests and for those of other crates and of embedders. They
//! record how they are called and have no side effects.

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
pub use syncer::{FakeSyncer, Script, SyncCall, SyncStep};
