//! Keeps the lease renewed.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};
use winddown_shared::WallClock;

use super::{LeaseError, LeaseOwner, LeaseStep, LeaseTimes, next, renewed_at};
use crate::node::fault::Fault;
use winddown_api_client::refusal::Refusal;
use winddown_api_client::within;

/// The number of attempts after which a renewal has failed, as in the kubelet.
const RENEWAL_TRIES: u32 = 5;

/// Renews one lease. Caches the lease as the server last sent it, so that a renewal is one request.
#[derive(Debug)]
pub(in crate::node) struct Keeper {
    api: Api<Lease>,
    name: Arc<str>,
    times: LeaseTimes,
    clock: WallClock,
    known: Option<Lease>,
    renewed: Option<Timestamp>,
}

impl Keeper {
    pub(in crate::node) fn new(
        api: Api<Lease>,
        name: Arc<str>,
        times: LeaseTimes,
        clock: WallClock,
    ) -> Self {
        Self { api, name, times, clock, known: None, renewed: None }
    }

    /// Renews the lease once, within one renewal interval. If the future is dropped the lease may
    /// or may not be renewed, and the keeper reads it again.
    pub(in crate::node) async fn renew(&mut self, uid: &Arc<str>) -> Result<(), LeaseError> {
        let done = within(self.times.renew(), self.tries(uid)).await;
        done.unwrap_or_else(|late| Err(Fault::Api(late).into()))
    }

    async fn tries(&mut self, uid: &Arc<str>) -> Result<(), LeaseError> {
        let owner = LeaseOwner { name: self.name.clone(), uid: uid.clone() };
        let mut tries = 0;
        while tries < RENEWAL_TRIES {
            tries += 1;
            let remembered = self.known.is_some();
            let known = match self.known.take() {
                Some(known) => Some(known),
                None => self.api.get_opt(&self.name).await.map_err(Fault::Api)?,
            };
            let stored_uid = known.as_ref().and_then(|lease| lease.metadata.uid.clone());
            let step = next(known, &owner, self.clock.now(), self.renewed, self.times.duration());
            match self.carry_out(step, stored_uid).await {
                Ok(Some(lease)) => {
                    self.renewed = renewed_at(&lease);
                    self.known = Some(lease);
                    return Ok(());
                }
                Ok(None) => {}
                Err(error) => match Refusal::of(&error) {
                    // Another writer was faster, or the lease is gone: read it again.
                    Refusal::AlreadyExists | Refusal::Conflict | Refusal::OtherUid => {}
                    // A cached lease may no longer exist. An update that names a version does not
                    // create it, and servers answer that differently.
                    Refusal::NotFound | Refusal::Invalid | Refusal::Busy { after: None }
                        if remembered => {}
                    _ => return Err(Fault::Api(error).into()),
                },
            }
        }
        Err(LeaseError::Contended { tries, name: self.name.clone() })
    }

    /// Returns the lease as it is now; `None` if it must be read again.
    async fn carry_out(
        &self,
        step: LeaseStep,
        stored_uid: Option<String>,
    ) -> kube::Result<Option<Lease>> {
        let post = PostParams::default();
        match step {
            LeaseStep::Create(lease) => self.api.create(&post, &lease).await.map(Some),
            LeaseStep::Update(lease) => self.api.replace(&self.name, &post, &lease).await.map(Some),
            LeaseStep::Replace(inherited) => {
                let preconditions = Preconditions { uid: stored_uid, ..Preconditions::default() };
                let params =
                    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                match self.api.delete(&self.name, &params).await {
                    Ok(_) => Ok(None),
                    Err(error) if Refusal::of(&error).is_gone() => Ok(None),
                    // Without the right to delete it, the lease is taken over as it is.
                    Err(error) if Refusal::of(&error) == Refusal::NotAllowed => {
                        self.api.replace(&self.name, &post, &inherited).await.map(Some)
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }
}

/// The backoff after a failed renewal: from 200 ms to 7 s, as in the kubelet.
pub(in crate::node) const RENEWAL_BACKOFF: (Duration, Duration) =
    (Duration::from_millis(200), Duration::from_secs(7));
