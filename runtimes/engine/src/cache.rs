//! The last answers of a container runtime, and their age: the list of its pods ([`RuntimeCache`]), and the status of
//! each ([`PodStatusCache`]).
//!
//! For agents that have to poll their runtime, as a kubelet does. The runtimes of winddown do not use it: they report
//! each change, and a step queries its own pod.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use winddown_engine::cache::RuntimeCache;
//! use winddown_shared::{RuntimeError, RuntimePod};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), RuntimeError> {
//! // At most one listing a second, and one at a time, however many ask.
//! let cache = RuntimeCache::new(Duration::from_secs(1), || async { Ok(Vec::<RuntimePod>::new()) });
//! let pods: Arc<[RuntimePod]> = cache.get().await?;
//! assert!(pods.is_empty());
//! # Ok(())
//! # }
//! ```

mod list;
mod statuses;

pub use list::RuntimeCache;
pub use statuses::{Cached, Inspected, PodStatusCache};
