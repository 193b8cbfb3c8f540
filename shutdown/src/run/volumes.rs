//! Waits for resources that stopped pods still hold.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Volume;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use winddown_shared::{Pod, PodUid};

use super::kills::Wait;
use super::{REAP_TIME, ReportPosition, RunStop, ShutdownRun};
use crate::EndingPods;
use crate::role::is_driver;

/// The longest wait for the release of a pod's resources, counted from the last pod's exit. A release that
/// takes longer hangs, and the time is better spent on pods that are still running.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits for stopped pods to release their resources.
#[derive(Default)]
pub(super) struct Releases {
    pub(super) running: JoinSet<Vec<String>>,
    places: HashMap<Id, ReportPosition>,
    /// The releases of volumes, which the last group waits for.
    pub(super) unmounting: HashSet<Id>,
}

impl<K: EndingPods> ShutdownRun<'_, K> {
    /// Waits in the background until a stopped pod has released its resources. Does not wait for resources
    /// that disappear with the machine (the sandbox of a pod on the host's network, its cgroup, its plain
    /// directories).
    pub(super) fn release(&mut self, place: ReportPosition, pod: &Pod) {
        let mounts = holds_mounts(pod);
        // A network plugin keeps a pod's state, such as its address lease, on disk.
        if mounts || !pod.is_on_host_network() {
            self.await_release(place, pod.uid().clone(), mounts);
        }
    }

    /// The same for a pod of which no more is known than its report.
    pub(super) fn await_release(&mut self, place: ReportPosition, uid: PodUid, mounts: bool) {
        let now = Instant::now();
        self.kills.last_exit = now;
        let until = self.end_of_kills().min(now + RELEASE_TIMEOUT);
        let killer = Arc::clone(self.killer);
        let wait = async move { killer.volumes_released(&uid, until).await };
        let id = self.releases.running.spawn(wait).id();
        self.releases.places.insert(id, place);
        if mounts {
            self.releases.unmounting.insert(id);
        }
    }

    /// Whether `wait` has to continue for resources of stopped pods. Only what needs their release waits for it: the
    /// drivers that release them, and the machine's end. A group does not keep the pods of the next ones waiting; the last
    /// one waits for volumes, so that pods that arrive meanwhile are still ended.
    pub(super) fn holds_on(&self, wait: Wait) -> bool {
        match wait {
            Wait::Group { .. } => {
                let is_last = self.unasked.waiting.iter().all(Vec::is_empty);
                is_last && !self.releases.unmounting.is_empty()
            }
            Wait::Drivers { .. } | Wait::End | Wait::Work | Wait::More => {
                !self.releases.places.is_empty()
            }
        }
    }

    /// If there are drivers in `batch`, waits until the stopped pods have released all resources that may need them;
    /// at most for a third of the group's remaining time, and only until the run is called off.
    pub(super) async fn before_drivers(&mut self, group: usize, batch: &[(ReportPosition, Pod)]) {
        if batch.iter().any(|(_, pod)| is_driver(pod)) {
            let left = self.plan.groups[group].latest_end.saturating_sub(self.elapsed());
            let _ = self.answers(Wait::Drivers { until: Instant::now() + left / 3 }).await;
        }
    }

    pub(super) fn released_until(&self, wait: Wait) -> Instant {
        let most = match wait {
            Wait::Group { .. } | Wait::Drivers { .. } => self.answered_until(wait),
            Wait::End | Wait::More | Wait::Work => self.end_of_kills() + REAP_TIME,
        };
        most.min(self.kills.last_exit + RELEASE_TIMEOUT + REAP_TIME)
    }

    pub(super) fn take_release(&mut self, answer: Result<(Id, Vec<String>), JoinError>) {
        let (id, mounts) = match answer {
            Ok(answer) => answer,
            Err(error) => (error.id(), vec!["unknown: reading the mounts panicked".into()]),
        };
        self.releases.unmounting.remove(&id);
        if let Some(place) = self.releases.places.remove(&id) {
            self.groups[place.group].pods[place.pod].mounts = mounts;
        }
    }

    /// Marks releases that have not completed as unknown.
    pub(super) fn give_up_on_releases(&mut self, stop: RunStop) {
        self.releases.running.abort_all();
        for (_, place) in self.releases.places.drain() {
            if stop == RunStop::Finished {
                self.groups[place.group].pods[place.pod].mounts =
                    vec!["unknown: no answer in time".into()];
            }
        }
    }

    fn end_of_kills(&self) -> Instant {
        self.order.started + self.budget_of_pods().kills_until()
    }
}

/// Whether, according to its spec, the pod has volumes mounted on the host or claims devices. Plain directories and
/// files do not count, because releasing them takes no time.
fn holds_mounts(pod: &Pod) -> bool {
    let Some(spec) = pod.spec.as_ref() else { return false };
    let claims = spec.resource_claims.as_deref().unwrap_or_default();
    !claims.is_empty() || spec.volumes.as_deref().unwrap_or_default().iter().any(is_mounted)
}

fn is_mounted(volume: &Volume) -> bool {
    let plain = volume.host_path.is_some()
        || volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
        || volume.empty_dir.as_ref().is_some_and(|empty| empty.medium.as_deref() != Some("Memory"));
    !plain
}
