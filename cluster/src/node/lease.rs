//! The node's lease, a cheap heartbeat.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};

use super::fault::Fault;

pub(super) mod keeper;

/// The namespace of node leases.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";

/// The lease's duration and renewal interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    duration: Duration,
    renew: Duration,
}

/// The times of a lease are out of range or contradictory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseTimesError {
    /// The duration is out of range. The API counts whole seconds.
    #[error("a lease of {0:?} is not possible: choose 1 s to 24 h")]
    Duration(Duration),
    /// The lease would expire before it is renewed.
    #[error(
        "a lease of {duration:?} cannot be renewed every {renew:?}: choose less than its duration"
    )]
    Renew {
        /// The lease's duration.
        duration: Duration,
        /// The requested interval.
        renew: Duration,
    },
}

/// Why a lease was not renewed.
#[derive(Debug, thiserror::Error)]
pub(super) enum LeaseError {
    /// The API wrongly shows the node as ready, and a renewal would confirm that.
    #[error("the lease is not renewed until the API knows that the node is not ready")]
    NotReady,
    /// There is no Node object to own the lease.
    #[error("the lease is not renewed before the node is registered")]
    NotRegistered,
    /// Other clients kept changing the lease.
    #[error(
        "the lease was changed by others in each of {tries} tries; is another node named {name}?"
    )]
    Contended { tries: u32, name: Arc<str> },
    #[error("the lease could not be renewed: {0}")]
    Fault(#[from] Fault),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseOwner {
    pub(super) name: Arc<str>,
    pub(super) uid: Arc<str>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum LeaseStep {
    Create(Lease),
    Update(Lease),
    /// The lease belongs to an earlier node of this name: delete it and create a new one. This is
    /// the old one with its new owner, for a server that does not allow the deletion.
    Replace(Lease),
}

/// Decides the next step. `known` is the lease as the server has it. `renewed` is the renewal time
/// that was last written; the next one must be later even if the clock was set back, because the
/// control plane counts a renewal only if the time grows.
pub(super) fn next(
    known: Option<Lease>,
    owner: &LeaseOwner,
    now: Timestamp,
    renewed: Option<Timestamp>,
    duration: Duration,
) -> LeaseStep {
    let Some(mut lease) = known else {
        return LeaseStep::Create(fresh(owner, later(now, renewed), duration));
    };
    let owners = lease.metadata.owner_references.get_or_insert_default();
    let node = owners.iter_mut().find(|owner| owner.kind == "Node");
    let foreign = node.as_ref().is_some_and(|node| node.uid != *owner.uid);
    match node {
        Some(node) => *node = reference(owner),
        None => owners.push(reference(owner)),
    }
    let spec = lease.spec.get_or_insert_default();
    let written = spec.renew_time.as_ref().map(|time| time.0);
    spec.holder_identity = Some(owner.name.to_string());
    spec.lease_duration_seconds = Some(seconds(duration));
    spec.renew_time = Some(MicroTime(later(now, renewed.max(written))));
    if foreign { LeaseStep::Replace(lease) } else { LeaseStep::Update(lease) }
}

/// The renewal time in the lease.
pub(super) fn renewed_at(lease: &Lease) -> Option<Timestamp> {
    Some(lease.spec.as_ref()?.renew_time.as_ref()?.0)
}

fn fresh(owner: &LeaseOwner, renewed: Timestamp, duration: Duration) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(owner.name.to_string()),
            namespace: Some(LEASE_NAMESPACE.to_owned()),
            owner_references: Some(vec![reference(owner)]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(owner.name.to_string()),
            lease_duration_seconds: Some(seconds(duration)),
            renew_time: Some(MicroTime(renewed)),
            ..LeaseSpec::default()
        }),
    }
}

fn reference(owner: &LeaseOwner) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: owner.name.to_string(),
        uid: owner.uid.to_string(),
        ..OwnerReference::default()
    }
}

fn later(now: Timestamp, renewed: Option<Timestamp>) -> Timestamp {
    let least = renewed.and_then(|at| at.checked_add(Duration::from_micros(1)).ok());
    least.map_or(now, |least| least.max(now))
}

fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}

// === impl LeaseTimes ===

impl LeaseTimes {
    /// A lease of `duration` (whole seconds; a fraction is dropped), renewed every `renew`.
    ///
    /// # Errors
    /// When the duration is out of range, or the lease would expire before it is renewed.
    pub fn new(duration: Duration, renew: Duration) -> Result<Self, LeaseTimesError> {
        let whole = Duration::from_secs(duration.as_secs());
        if whole.is_zero() || whole > Duration::from_secs(24 * 3600) {
            return Err(LeaseTimesError::Duration(duration));
        }
        if renew.is_zero() || renew >= whole {
            return Err(LeaseTimesError::Renew { duration, renew });
        }
        Ok(Self { duration: whole, renew })
    }

    /// The duration of the lease.
    #[must_use]
    pub fn duration(self) -> Duration {
        self.duration
    }

    /// The interval at which it is renewed.
    #[must_use]
    pub fn renew(self) -> Duration {
        self.renew
    }
}

impl Default for LeaseTimes {
    /// The kubelet's times: 40 s, renewed every 10 s.
    fn default() -> Self {
        Self { duration: Duration::from_secs(40), renew: Duration::from_secs(10) }
    }
}
