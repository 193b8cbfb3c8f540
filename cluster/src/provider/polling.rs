//! A provider that cannot tell changes is asked for them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use tokio::sync::Notify as Wake;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use winddown_shared::{Pod, PodUid, PodUidMap, error_chain};

use super::{ChangeSender, Changes, Notify, ProvidedPod, Provider, ProviderError, changes};

#[cfg(test)]
mod tests;

/// Makes a [`Notify`] of a provider that cannot tell changes: lists its pods and compares.
///
/// It says only that a pod is different, or no longer listed. What that means is for the pod controller
/// to say: a pod that waits to be created, for however long, is not one that was lost
/// (<https://github.com/virtual-kubelet/virtual-kubelet/issues/978>).
#[derive(Debug)]
pub struct Polled<P> {
    inner: P,
    times: PollTimes,
    sender: ChangeSender,
    changes: std::sync::Mutex<Option<Changes>>,
    /// Something was asked of the provider: its answer will not be long.
    asked: Wake,
}

/// How often a provider is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollTimes {
    /// While nothing changes. Default: five seconds.
    pub calm: Duration,
    /// While pods begin or end. Default: one second.
    pub busy: Duration,
    /// How long that lasts after the last change. Default: ten seconds.
    pub busy_for: Duration,
    /// How long one list may take. Default: half a minute.
    pub deadline: Duration,
}

/// What was seen of one pod.
#[derive(Debug)]
struct Seen {
    status: Arc<api::PodStatus>,
    ended: bool,
    pass: u64,
}

// === impl PollTimes ===

impl Default for PollTimes {
    fn default() -> Self {
        Self {
            calm: Duration::from_secs(5),
            busy: Duration::from_secs(1),
            busy_for: Duration::from_secs(10),
            deadline: Duration::from_secs(30),
        }
    }
}

// === impl Polled ===

impl<P: Provider> Polled<P> {
    /// Asks `inner` as often as `times` says, while the controller runs.
    pub fn new(inner: P, times: PollTimes) -> Self {
        let (sender, changes) = changes();
        let changes = std::sync::Mutex::new(Some(changes));
        Self { inner, times, sender, changes, asked: Wake::new() }
    }

    /// The provider.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// Lists once and tells what is different; whether anything was.
    async fn pass(&self, seen: &mut PodUidMap<Seen>, pass: u64) -> Result<bool, ProviderError> {
        let listing = tokio::time::timeout(self.times.deadline, self.inner.list_pods());
        let listed = listing.await.map_err(|_| ProviderError::Unavailable {
            what: format!("no list of pods within {:?}", self.times.deadline),
            after: None,
        })??;
        let mut is_different = false;
        for ProvidedPod { pod, status, ended } in listed {
            let is_same = seen.get(pod.uid()).is_some_and(|seen| {
                seen.ended == ended && (Arc::ptr_eq(&seen.status, &status) || seen.status == status)
            });
            if !is_same {
                is_different = true;
                self.sender.changed(pod.uid());
            }
            seen.insert(pod.uid().clone(), Seen { status, ended, pass });
        }
        seen.retain(|uid, seen| {
            let is_listed = seen.pass == pass;
            if !is_listed {
                is_different = true;
                self.sender.changed(uid);
            }
            is_listed
        });
        Ok(is_different)
    }
}

impl<P: Provider> Provider for Polled<P> {
    async fn create_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        let result = self.inner.create_pod(pod).await;
        self.asked.notify_one();
        result
    }

    async fn update_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        let result = self.inner.update_pod(pod).await;
        self.asked.notify_one();
        result
    }

    async fn delete_pod(&self, pod: &Pod, grace: Duration) -> Result<(), ProviderError> {
        let result = self.inner.delete_pod(pod, grace).await;
        self.asked.notify_one();
        result
    }

    async fn get_pod(&self, uid: &PodUid) -> Result<Option<ProvidedPod>, ProviderError> {
        self.inner.get_pod(uid).await
    }

    async fn list_pods(&self) -> Result<Vec<ProvidedPod>, ProviderError> {
        self.inner.list_pods().await
    }

    async fn forget_pod(&self, uid: &PodUid) {
        self.inner.forget_pod(uid).await;
    }
}

impl<P: Provider> Notify for Polled<P> {
    fn notifications(&self) -> Changes {
        let taken = self.changes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        // Asked for twice: the second one hears nothing.
        taken.unwrap_or_else(|| changes().1)
    }

    async fn drive(&self, cancel: CancellationToken) {
        let mut seen = PodUidMap::default();
        let mut fails = false;
        let mut busy_until = Instant::now();
        for number in 0_u64.. {
            match self.pass(&mut seen, number).await {
                Ok(is_different) => {
                    if is_different {
                        busy_until = Instant::now() + self.times.busy_for;
                    }
                    fails = false;
                }
                // A list that failed is not an empty one.
                Err(error) if !std::mem::replace(&mut fails, true) => {
                    tracing::warn!(
                        error = error_chain(&error),
                        "the provider does not list its pods; asking on"
                    );
                }
                Err(_) => {}
            }
            let mut at = Instant::now() + self.wait(busy_until);
            loop {
                tokio::select! {
                    () = sleep_until(at) => break,
                    () = self.asked.notified() => {
                        busy_until = Instant::now() + self.times.busy_for;
                        at = at.min(Instant::now() + self.times.busy);
                    }
                    () = cancel.cancelled() => return,
                }
            }
        }
    }
}

impl<P> Polled<P> {
    fn wait(&self, busy_until: Instant) -> Duration {
        if Instant::now() < busy_until { self.times.busy } else { self.times.calm }
    }
}
