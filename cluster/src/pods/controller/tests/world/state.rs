//! The state of the world, and what must never happen in it.

use k8s_openapi::api::core::v1 as api;
use kube::runtime::watcher::Event;
use winddown_shared::{
    ContainerExit, ContainerKind, ContainerState, ContainerStatus, Pod, PodRuntimeStatus, WallTime,
};

use super::State;
use winddown_api_client::node_pods::RefusedRequest;
use winddown_api_client::refusal::Refusal;

/// When pods start, by the wall clock.
const START: WallTime = WallTime::constant(1_000_000, 0);

impl State {
    pub(super) fn send(&mut self, event: &Event<api::Pod>) {
        if !self.deaf {
            self.watchers.retain(|watcher| watcher.send(Ok(event.clone())).is_ok());
        }
    }

    /// Whether the API has a pod's final status.
    pub(super) fn is_over(&self, uid: &str) -> bool {
        let status = self.objects.get(uid).and_then(|object| object.status.as_ref());
        matches!(status.and_then(|s| s.phase.as_deref()), Some("Failed" | "Succeeded"))
    }

    /// A pod's container as the runtime sees it.
    pub(super) fn of(&self, uid: &str) -> PodRuntimeStatus {
        let Some(running) = self.running.get(uid) else { return PodRuntimeStatus::default() };
        let started_at = START;
        let state = match running.exit {
            None => ContainerState::Running { started_at },
            Some(exit_code) => ContainerState::Exited(ContainerExit::new(exit_code)),
        };
        let container = ContainerStatus::new("main", ContainerKind::Regular, state);
        let mut status = PodRuntimeStatus::new(vec![container]);
        status.started_at = Some(started_at);
        status
    }

    pub(super) fn check_create(&mut self, pod: &Pod) {
        let uid = pod.uid().as_str();
        for (other, running) in &self.running {
            if other != uid && running.exit.is_none() && running.pod.name() == pod.name() {
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

    pub(super) fn refuse(&mut self, what: &'static str) -> Result<(), RefusedRequest> {
        match self.refusals.pop_front() {
            Some(refusal) => Err(RefusedRequest { what, refusal, source: None }),
            None if self.api_down => {
                Err(RefusedRequest { what, refusal: Refusal::NoAnswer, source: None })
            }
            None => Ok(()),
        }
    }
}
