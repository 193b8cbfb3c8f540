//! What the other parts of this crate have to say, as events.

use winddown_shared::PodLabel;

use super::{EventDraft, EventKind, Events, NodeRef, Subject};
use crate::node::{NodeEvent, NodeEvents};
use crate::pods::{PodEvent, PodEvents};

impl PodEvents for Events {
    fn pod_event(&self, pod: &PodLabel, event: PodEvent) {
        let kind = if event.is_warning() { EventKind::Warning } else { EventKind::Normal };
        let draft = EventDraft::normal(Subject::pod(pod), event.reason(), &*event.message());
        self.send(EventDraft { kind, ..draft });
    }
}

impl NodeEvents for Events {
    fn node_event(&self, event: NodeEvent) {
        let about = Subject::node(&NodeRef::new(event.node.name));
        let kind = if event.warning { EventKind::Warning } else { EventKind::Normal };
        let draft = EventDraft::normal(about, event.reason, event.message).decided();
        self.send(EventDraft { kind, ..draft });
    }
}
