//! A pod and the properties that controllers base their decisions on.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use winddown_quantities::{ResourceFieldError, resource_field};

mod amounts;
mod compact;
mod container_kind;
mod container_status;
pub(crate) mod on_reboot;
mod pod_ref;
mod priority;
mod qos;
mod requests;
mod runtime_pod;
mod totals;
mod uid;

pub use container_kind::ContainerKind;
pub use container_status::{ContainerExit, ContainerState, ContainerStatus};
pub use pod_ref::PodRef;
pub use priority::{
    CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, CONFIG_SPEC_ANNOTATION,
    SYSTEM_CRITICAL_PRIORITY, SYSTEM_NODE_CRITICAL_PRIORITY,
};
pub use qos::QosClass;
pub use requests::{Requests, ResourceName};
pub use runtime_pod::RuntimePod;
pub use uid::{PodUid, PodUidMap, UidHasher};

/// A pod object with the identity that every part of the agent relies on. Cheap to clone; read-only.
///
/// Dereferences to the API object.
#[derive(Clone)]
pub struct Pod(Arc<PodData>);

struct PodData {
    label: PodRef,
    full_name: Arc<str>,
    object: api::Pod,
    is_runtime_only: bool,
    facts: PodFacts,
    /// Computed on first use, as only pods that start need it.
    fit: OnceLock<Requests>,
}

/// Properties for choices among all pods of a node. Computed when the object is taken, because a
/// choice has no time for it, and stored together, because an object is spread over the heap.
struct PodFacts {
    priority: Option<i32>,
    is_critical: bool,
    qos: QosClass,
    accounted: Requests,
}

/// A pod object that lacks an identifying field.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{field}: a pod needs one")]
#[non_exhaustive]
pub struct IdentityError {
    /// The missing field.
    pub field: &'static str,
}

impl Pod {
    /// Creates a pod from its API object.
    ///
    /// # Errors
    /// `metadata.name`, `metadata.namespace` or `metadata.uid` is missing or empty.
    pub fn new(object: api::Pod) -> Result<Self, IdentityError> {
        let named = |value: &Option<String>, field| match value {
            Some(text) if !text.is_empty() => Ok(Arc::<str>::from(text.as_str())),
            _ => Err(IdentityError { field }),
        };
        let name = named(&object.metadata.name, "metadata.name")?;
        let namespace = named(&object.metadata.namespace, "metadata.namespace")?;
        let uid = PodUid::new(named(&object.metadata.uid, "metadata.uid")?);
        Ok(Self::assemble(PodRef { namespace, name, uid }, object, OnceLock::new(), false))
    }

    /// Creates a stand-in for a pod that only the runtime knows: its identity and, if known, its grace period and the
    /// resources that it takes. It has no containers, and is only suitable for planning and terminating.
    pub fn of_runtime(pod: &RuntimePod) -> Self {
        let RuntimePod { uid, name, namespace, grace, requests, .. } = pod;
        let mut object = api::Pod::default();
        object.metadata.name = Some(name.to_string());
        object.metadata.namespace = Some(namespace.to_string());
        object.metadata.uid = Some(uid.to_string());
        let seconds = grace.map(|grace| i64::try_from(grace.as_secs()).unwrap_or(i64::MAX));
        let spec = api::PodSpec { termination_grace_period_seconds: seconds, ..Default::default() };
        object.spec = Some(spec);
        let fit = requests.clone().map_or_else(OnceLock::new, OnceLock::from);
        Self::assemble(pod.pod_ref(), object, fit, true)
    }

    /// What [`RuntimePod::requests`] said of a stand-in.
    pub(crate) fn kept_requests(&self) -> Option<Requests> {
        self.0.fit.get().cloned()
    }

    fn assemble(
        label: PodRef,
        mut object: api::Pod,
        fit: OnceLock<Requests>,
        is_runtime_only: bool,
    ) -> Self {
        compact::compact(&mut object);
        Self(Arc::new(PodData {
            full_name: Arc::from(format!("{}_{}", label.name, label.namespace)),
            label,
            facts: PodFacts::of(&object),
            object,
            is_runtime_only,
            fit,
        }))
    }

    /// Creates a pod from an object that was written for a what-if question. Without a namespace it
    /// is in `default`; without a UID it uses its `place`, which cannot be mistaken for one.
    ///
    /// # Errors
    /// `metadata.name` is missing or empty, or `metadata.namespace` is empty.
    pub fn of_case(
        mut object: api::Pod,
        place: impl FnOnce() -> String,
    ) -> Result<Self, IdentityError> {
        let metadata = &mut object.metadata;
        metadata.namespace.get_or_insert_with(|| "default".to_owned());
        if metadata.uid.as_ref().is_none_or(String::is_empty) {
            metadata.uid = Some(place());
        }
        Self::new(object)
    }

    /// Applies [`of_case`](Self::of_case) to every element of a list called `pods`.
    ///
    /// # Errors
    /// The index of the first pod without an identity, and what it lacks.
    pub fn of_cases(objects: Vec<api::Pod>) -> Result<Vec<Self>, (usize, IdentityError)> {
        let read = |(index, object)| {
            Self::of_case(object, || format!("pods[{index}]")).map_err(|error| (index, error))
        };
        objects.into_iter().enumerate().map(read).collect()
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &PodUid {
        &self.0.label.uid
    }

    /// `metadata.name`.
    pub fn name(&self) -> &Arc<str> {
        &self.0.label.name
    }

    /// `metadata.namespace`.
    pub fn namespace(&self) -> &Arc<str> {
        &self.0.label.namespace
    }

    /// The label that identifies the pod in events and errors: `namespace/name`.
    pub fn pod_ref(&self) -> &PodRef {
        &self.0.label
    }

    /// `name_namespace`: common to all static pods of one manifest.
    pub fn full_name(&self) -> &Arc<str> {
        &self.0.full_name
    }

    /// The API object.
    pub fn object(&self) -> &api::Pod {
        &self.0.object
    }

    /// Whether this is a stand-in for a pod that only the runtime knows ([`Self::of_runtime`]).
    pub fn is_runtime_only(&self) -> bool {
        self.0.is_runtime_only
    }

    /// The ports of containers and sidecars: an init container has released its own when those are used.
    pub fn ports(&self) -> impl Iterator<Item = &api::ContainerPort> {
        self.object().spec.iter().flat_map(|spec| {
            let init = spec.init_containers.iter().flatten();
            let sidecars = init.filter(|c| ContainerKind::of_init(c) == ContainerKind::Sidecar);
            spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten())
        })
    }

    /// Whether the pod shares the node's network: `spec.hostNetwork`, false when unset.
    pub fn is_on_host_network(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true))
    }

    /// Whether both are the same object in memory.
    pub fn is_same_object(&self, other: &Pod) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// `spec.terminationGracePeriodSeconds` as specified: `None` when unset, never negative.
    pub fn termination_grace_period(&self) -> Option<Duration> {
        let seconds = self.spec.as_ref()?.termination_grace_period_seconds?;
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    }

    /// The value of a `resourceFieldRef` in a container that has these resources, if any, as [`resource_field`] says. One
    /// without a limit has its pod's, or what the node has for pods.
    ///
    /// # Errors
    /// The same, and those of `of_node`.
    pub fn resource_field<E: From<ResourceFieldError>>(
        &self,
        own: Option<&api::ResourceRequirements>,
        selector: &api::ResourceFieldSelector,
        of_node: impl FnOnce(&str) -> Result<i64, E>,
    ) -> Result<String, E> {
        let of_pod = self.spec.as_ref().and_then(|spec| spec.resources.as_ref());
        let divisor = selector.divisor.as_ref().map(|divisor| divisor.0.as_str());
        let given = |is_limit, name: &str| match is_limit {
            true => [own, of_pod].map(|of| Some(&*of?.limits.as_ref()?.get(name)?.0)),
            false => [own.and_then(|own| Some(&*own.requests.as_ref()?.get(name)?.0)), None],
        };
        resource_field(&selector.resource, divisor, given, of_node)
    }
}

impl PodFacts {
    fn of(object: &api::Pod) -> Self {
        Self {
            priority: object.spec.as_ref().and_then(|spec| spec.priority),
            is_critical: priority::is_critical(object),
            qos: qos::class(object),
            accounted: requests::accounted(object),
        }
    }
}

impl Deref for Pod {
    type Target = api::Pod;

    fn deref(&self) -> &api::Pod {
        &self.0.object
    }
}

impl fmt::Debug for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pod({}, {})", self.0.label, self.0.label.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, namespace: Option<&str>, uid: Option<&str>) -> api::Pod {
        let mut object = api::Pod::default();
        object.metadata.name = Some(name.to_owned());
        object.metadata.namespace = namespace.map(str::to_owned);
        object.metadata.uid = uid.map(str::to_owned);
        object
    }

    #[test]
    fn a_pod_of_a_case_needs_no_more_than_a_name() {
        let read = |object| Pod::of_case(object, || "pods[3]".to_owned());
        for missing in [None, Some("")] {
            let pod = read(written("web", None, missing)).unwrap();
            assert_eq!(
                (pod.pod_ref().to_string(), pod.uid().as_str()),
                ("default/web".into(), "pods[3]")
            );
        }
        let pod = read(written("web", Some("shop"), Some("u1"))).unwrap();
        assert_eq!((pod.pod_ref().to_string(), pod.uid().as_str()), ("shop/web".into(), "u1"));
        let nameless = read(written("", None, None)).unwrap_err();
        assert_eq!(nameless.field, "metadata.name");
    }
}
