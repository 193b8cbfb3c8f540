//! Detects resources that a running container was not given.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as k8s;

use crate::base::lock::Mutex;
use crate::{ContainerState, Pod, PodRuntimeStatus, PodUid, PodUidMap, UnsupportedField};

#[derive(Debug, Default)]
pub(super) struct GivenResources(Mutex<PodUidMap<Vec<ResizedRun>>>);

#[derive(Debug)]
struct ResizedRun {
    container: Arc<str>,
    id: String,
    resources: Option<k8s::ResourceRequirements>,
}

impl GivenResources {
    /// The fields of containers that run with other resources than the pod now specifies: no runtime resizes a running
    /// container. A run counts as given what the pod specified when the run was first seen.
    pub(super) fn differ(&self, pod: &Pod, status: &PodRuntimeStatus) -> Vec<UnsupportedField> {
        let Some(spec) = pod.spec.as_ref() else { return Vec::new() };
        let init = spec.init_containers.as_deref().unwrap_or_default();
        let lists = [("initContainers", init), ("containers", &spec.containers)];
        let mut pods = self.0.lock();
        // A pod has few containers, and most pods one: a map would cost more than a linear search.
        let room = || Vec::with_capacity(init.len() + spec.containers.len());
        let known = pods.entry(pod.uid().clone()).or_insert_with(room);
        let mut found = Vec::new();
        for (list, containers) in lists {
            for (i, one) in containers.iter().enumerate() {
                let seen = status.containers.iter().find(|c| *c.name == one.name);
                let runs = seen.filter(|c| matches!(c.state, ContainerState::Running { .. }));
                let Some(run) = runs else { continue };
                match known.iter().find(|known| known.container == run.name && known.id == run.id) {
                    Some(known) if known.resources == one.resources => {}
                    Some(_) => found.push(UnsupportedField {
                        field: format!("spec.{list}[{i}].resources"),
                        why: "running containers keep theirs until they restart".to_owned(),
                    }),
                    None => {
                        known.retain(|known| known.container != run.name);
                        let (id, resources) = (run.id.clone(), one.resources.clone());
                        known.push(ResizedRun { container: Arc::clone(&run.name), id, resources });
                    }
                }
            }
        }
        found
    }

    /// Removes a pod that has terminated.
    pub(super) fn forget(&self, uid: &PodUid) {
        self.0.lock().remove(uid);
    }
}
