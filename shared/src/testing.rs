//! Scripted fakes for the traits of this crate, for its tests and for those of other crates and of embedders. They
//! record how they are called and have no side effects.
//!
//! A new seam is a trait with few required methods, for what we need, not what the other side offers. Its documentation
//! says whether calls may be repeated, what blocks, and what dropping a future does. Its fake is here; the fake and the
//! real thing pass the same suite.

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
