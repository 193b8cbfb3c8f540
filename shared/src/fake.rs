//! Scripted stand-ins for the seams. They assert what they are asked and never touch the world.

mod inhibitor;
mod killer;
mod recorder;
mod runtime;
mod syncer;

pub use inhibitor::FakeInhibitor;
pub use killer::{FakeKiller, KillCall};
pub use recorder::FakeRecorder;
pub use runtime::FakeRuntime;
pub use syncer::{FakeSyncer, Script, Step, SyncCall};
