//! What the world keeps, and what must never happen in it.

use k8s_openapi::api::core::v1 as api;
use kube::runtime::watcher::Event;
use winddown_shared::Pod;

use super::State;
use winddown_api_client::node_pods::Refused;

impl State {
    pub(super) fn send(&mut self, event: &Event<api::Pod>) {
        if !self.deaf {
            self.watchers.retain(|watcher| watcher.send(Ok(event.clone())).is_ok());
        }
    }

    /// Whether the API has a pod's last word.
    pub(super) fn is_over(&self, uid: &str) -> bool {
        let status = self.objects.get(uid).and_then(|object| object.status.as_ref());
        matches!(status.and_then(|s| s.phase.as_deref()), Some("Failed" | "Succeeded"))
    }

    pub(super) fn check_create(&mut self, pod: &Pod) {
        let uid = pod.uid().as_str();
        for (other, running) in &self.running {
            if other != uid && !running.ended && running.pod.name() == pod.name() {
                self.wrong.push(format!("{uid} was created beside {other} of its name"));
            }
        }
        if self.running.contains_key(uid) {
            self.wrong.push(format!("{uid} was created while it was there"));
        }
        if self.last_words.contains_key(uid) {
            self.wrong.push(format!("{uid} was created after its end"));
        }
    }

    pub(in super::super) fn send_events(
        &mut self,
        events: impl IntoIterator<Item = Event<api::Pod>>,
    ) {
        for event in events {
            self.send(&event);
        }
    }

    pub(super) fn all(&self) -> Vec<api::Pod> {
        self.objects.values().cloned().collect()
    }

    pub(super) fn refuse(&mut self, what: &'static str) -> Result<(), Refused> {
        match self.refusals.pop_front() {
            Some(refusal) => Err(Refused { what, refusal, source: None }),
            None if self.api_down => Err(Refused::silent(what)),
            None => Ok(()),
        }
    }
}
