//! The trait that all sources implement.

use std::time::Duration;

use crate::NoticePublisher;

/// Returns how long the machine has been up, or `None` if that is unknown.
pub type Uptime = fn() -> Option<Duration>;

/// A source of notices that the node will go down.
pub trait NoticeSource: Send + 'static {
    /// Follows the source and reports each change through `publisher`. Never returns. Dropping the future
    /// stops it and leaves its last notice in force. A source that has nothing to announce must call
    /// [`withdraw`](NoticePublisher::withdraw) once it knows so: until then an earlier agent's notice holds.
    fn watch(self, publisher: NoticePublisher) -> impl Future<Output = ()> + Send;
}
