//! Decides how to make the API show the static pods. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use winddown_api_client::equality::is_terminal;
use winddown_shared::{CONFIG_MIRROR_ANNOTATION, Pod, PodRef, PodUid};

use super::object::hash_of;
use super::references::api_reference;

/// A mirror pod as the API has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedMirror {
    /// The mirror pod.
    pub pod: PodRef,
    /// The hash of the manifest that it shows: the UID of the static pod.
    pub hash: Arc<str>,
    /// The [mark](Pod::spec_mark) of the spec that it shows, if the manifest sets the UID.
    pub spec_mark: Option<Arc<str>>,
    /// Whether its deletion was requested.
    pub deleting: bool,
    /// Whether its phase is terminal.
    pub ended: bool,
    /// `metadata.resourceVersion`, if it is a number.
    pub version: Option<u64>,
}

/// An action on one mirror.
#[derive(Clone, Debug)]
pub enum MirrorAction {
    /// Create a mirror of the static pod.
    Create(Pod),
    /// Delete a mirror that shows nothing that exists.
    Delete(PodRef),
    /// Create no mirror: the static pod refers to an object of the API, which a mirror must not.
    Refuse {
        /// The static pod.
        pod: PodRef,
        /// The path of the field.
        field: String,
    },
}

/// Decides how to change `seen`, the mirrors in the API, so that they show `statics`.
///
/// A mirror that has terminated cannot show a pod that is `living`. If `complete`, `statics` has every static pod, so that
/// a mirror without one has outlived its pod.
/// `is_ending` is whether the static pod of a mirror is still terminating: the mirror stays until then.
pub fn plan<'a>(
    statics: &[Pod],
    seen: impl IntoIterator<Item = &'a ObservedMirror>,
    living: &HashSet<PodUid>,
    complete: bool,
    is_ending: impl Fn(&ObservedMirror) -> bool,
) -> Vec<MirrorAction> {
    let mut mirrored: HashSet<&PodUid> = HashSet::new();
    let mut taken: HashSet<(Arc<str>, Arc<str>)> = HashSet::new();
    let mut steps = Vec::new();
    let mut named: HashMap<(&Arc<str>, &Arc<str>), Vec<&Pod>> = HashMap::new();
    for pod in statics {
        named.entry((pod.namespace(), pod.name())).or_default().push(pod);
    }
    for mirror in seen {
        let name = (&mirror.pod.namespace, &mirror.pod.name);
        taken.insert((name.0.clone(), name.1.clone()));
        let of_name = named.get(&name);
        let shown = of_name.and_then(|pods| pods.iter().find(|pod| mirror.shows(pod)));
        let outlived = shown.is_some_and(|pod| mirror.ended && living.contains(pod.uid()));
        if mirror.deleting || outlived {
            steps.push(MirrorAction::Delete(mirror.pod.clone()));
        } else if let Some(shown) = shown {
            mirrored.insert(shown.uid());
        } else if of_name.is_some() || (complete && !is_ending(mirror)) {
            steps.push(MirrorAction::Delete(mirror.pod.clone()));
        }
    }
    for pod in statics {
        let name = (pod.namespace().clone(), pod.name().clone());
        // The name must be free first. Of two static pods with one name the first gets it.
        if mirrored.contains(pod.uid()) || !taken.insert(name) {
            continue;
        }
        steps.push(match api_reference(pod) {
            Some(field) => MirrorAction::Refuse { pod: pod.pod_ref().clone(), field },
            None => MirrorAction::Create(pod.clone()),
        });
    }
    steps
}

// === impl ObservedMirror ===

impl ObservedMirror {
    /// The relevant fields of a mirror pod; `None` for any other pod.
    pub fn new(pod: &Pod) -> Option<Self> {
        let annotations = pod.metadata.annotations.as_ref()?;
        let hash = annotations.get(CONFIG_MIRROR_ANNOTATION)?;
        Some(Self {
            pod: pod.pod_ref().clone(),
            hash: hash.as_str().into(),
            spec_mark: pod.spec_mark().map(Into::into),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            ended: is_terminal(pod),
            version: pod.metadata.resource_version.as_ref().and_then(|text| text.parse().ok()),
        })
    }

    /// Whether `other` is an earlier version of the same mirror.
    pub fn is_newer_than(&self, other: &ObservedMirror) -> bool {
        self.pod.uid == other.pod.uid && self.version > other.version && other.version.is_some()
    }

    /// Whether it is the mirror of that static pod: it has the pod's name and hash, and shows its spec.
    pub fn shows(&self, pod: &Pod) -> bool {
        let has_name = self.pod.namespace == *pod.namespace() && self.pod.name == *pod.name();
        has_name && *self.hash == *hash_of(pod) && self.spec_mark.as_deref() == pod.spec_mark()
    }
}
