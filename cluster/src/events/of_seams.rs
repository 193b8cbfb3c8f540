//! What the other parts of this crate have to say, as events.

use super::{EventDraft, EventKind, Events, NodeRef, Subject};
use crate::node::{NodeEvent, NodeEvents};

impl NodeEvents for Events {
    fn node_event(&self, event: NodeEvent) {
        let about = Subject::node(&NodeRef::new(event.node.name));
        let kind = if event.warning { EventKind::Warning } else { EventKind::Normal };
        let draft = EventDraft::normal(about, event.reason, event.message).decided();
        self.send(EventDraft { kind, ..draft });
    }
}
