//! The trait of all sources.

use std::time::Duration;

use crate::NoticePublisher;

/// How long the machine has been up; none when that is not known.
pub type Uptime = fn() -> Option<Duration>;

/// Something that knows when the node ends.
pub trait NoticeSource: Send + 'static {
    /// Follows whatever the source reads and says each change through `publisher`. Never returns; it is
    /// ended by dropping the future, which leaves what was said last in force. A source that announces nothing
    /// [withdraws](NoticePublisher::withdraw) once it knows: until then a notice of an earlier agent holds.
    fn watch(self, publisher: NoticePublisher) -> impl Future<Output = ()> + Send;
}
