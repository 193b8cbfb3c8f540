//! The trait of all sources.

use crate::Voice;

/// Something that knows when the node ends.
pub trait NoticeSource: Send + 'static {
    /// Follows whatever the source reads and says each change through `voice`. Never returns; it is
    /// ended by dropping the future, which leaves what was said last in force.
    fn watch(self, voice: Voice) -> impl Future<Output = ()> + Send;
}
