//! Removes the pods that this node terminated from the API.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::future::OptionFuture;
use futures_util::{StreamExt, stream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use winddown_api_client::node_pods::{PodApi, RefusedRequest};
use winddown_api_client::refusal;
use winddown_shared::{Backoff, PodRef, PodUid, WallClock, error_chain};

use super::decide::by_time;
use super::{AfterBootPolicy, AfterBootVerdict, TerminatedPod, TerminatedPods, decide};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_CONCURRENT_REQUESTS: usize = 4;
/// The interval between checks of a pod without a due time.
const CHECK_BACKOFF: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(300));

/// Removes the pods that this node terminated from the API, according to the policy.
#[derive(Debug)]
pub struct AfterBoot {
    ended: TerminatedPods,
    policy: AfterBootPolicy,
    wall: WallClock,
    /// When each pod is checked next.
    next: HashMap<PodUid, (Instant, Backoff)>,
}

/// The result of checking a pod.
enum Looked {
    Verdict(AfterBootVerdict),
    Removed,
    Failed { after: Option<Duration>, error: String },
}

// === impl AfterBoot ===

impl AfterBoot {
    /// Creates the task that applies `policy` to `ended`.
    pub fn new(ended: TerminatedPods, policy: AfterBootPolicy, wall: WallClock) -> Self {
        Self { ended, policy, wall, next: HashMap::new() }
    }

    /// Starts once `ready` is true, and runs until `cancel`led.
    pub async fn run(
        mut self,
        pods: impl PodApi,
        mut ready: watch::Receiver<bool>,
        cancel: CancellationToken,
    ) {
        let work = async {
            if ready.wait_for(|ready| *ready).await.is_err() {
                return;
            }
            self.go_through(&pods).await;
        };
        tokio::select! {
            () = cancel.cancelled() => {}
            () = work => {}
        }
    }

    async fn go_through(&mut self, pods: &impl PodApi) {
        let mut reading = CHECK_BACKOFF;
        while let Err(error) = self.ended.load().await {
            if reading.failures() == 0 {
                tracing::error!(
                    error = error_chain(&error),
                    "cannot read which pods this node has terminated; they stay in the API"
                );
            }
            tokio::time::sleep(reading.next_delay()).await;
        }
        let mut outage = false;
        // Subscribed before the list is read, so that no change is missed.
        let mut changes = self.ended.0.written.subscribe();
        loop {
            changes.mark_unchanged();
            let all = self.ended.all();
            let now = Instant::now();
            let known: HashSet<&PodUid> = all.iter().map(|ended| &ended.uid).collect();
            self.next.retain(|uid, _| known.contains(uid));
            let due = self.due(all, now);
            let (policy, wall) = (self.policy, &self.wall);
            let boot = self.ended.0.boot.clone();
            let looks = due.into_iter().map(|ended| {
                let boot = boot.clone();
                async move {
                    let looked = look(pods, &ended, policy, boot.as_deref(), wall).await;
                    (ended, looked)
                }
            });
            let looked: Vec<_> =
                stream::iter(looks).buffer_unordered(MAX_CONCURRENT_REQUESTS).collect().await;
            let mut over = HashSet::new();
            for (ended, looked) in looked {
                if self.note(&ended, looked, &mut outage) {
                    over.insert(ended.uid);
                }
            }
            self.ended.forget(&over);
            let next = self.next.values().map(|(at, _)| *at).min();
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                Some(()) = OptionFuture::from(next.map(sleep_until)) => {}
            }
        }
    }

    /// Returns the pods whose state in the API must be checked now. The others need no request.
    pub(super) fn due(&mut self, all: Vec<TerminatedPod>, now: Instant) -> Vec<TerminatedPod> {
        let (boot, wall_now) = (self.ended.0.boot.clone(), self.wall.now());
        let (mut due, mut over) = (Vec::new(), HashSet::new());
        for ended in all {
            if self.next.get(&ended.uid).is_some_and(|(at, _)| *at > now) {
                continue;
            }
            match by_time(&ended, self.policy, boot.as_deref(), wall_now) {
                AfterBootVerdict::Delete => due.push(ended),
                AfterBootVerdict::Forget => {
                    over.insert(ended.uid);
                }
                AfterBootVerdict::Wait(Some(left)) => {
                    self.next.insert(ended.uid, (now + left, CHECK_BACKOFF));
                }
                // Not due in this boot.
                AfterBootVerdict::Wait(None) => {}
            }
        }
        self.ended.forget(&over);
        due
    }

    /// Returns whether nothing is left to do about the pod.
    fn note(&mut self, ended: &TerminatedPod, looked: Looked, outage: &mut bool) -> bool {
        let now = Instant::now();
        if !matches!(looked, Looked::Failed { .. }) {
            *outage = false;
        }
        match looked {
            Looked::Verdict(AfterBootVerdict::Wait(after)) => {
                let (at, look) =
                    self.next.entry(ended.uid.clone()).or_insert_with(|| (now, CHECK_BACKOFF));
                *at = now + after.unwrap_or_else(|| look.next_delay());
                false
            }
            Looked::Removed => {
                tracing::info!(
                    namespace = %ended.namespace,
                    name = %ended.name,
                    by = %ended.by,
                    "removed a pod from the API that this node had terminated"
                );
                true
            }
            Looked::Verdict(AfterBootVerdict::Forget | AfterBootVerdict::Delete) => true,
            Looked::Failed { after, error } => {
                if !std::mem::replace(outage, true) {
                    tracing::warn!(
                        error,
                        "cannot clean up the pods that this node has terminated; retrying"
                    );
                }
                let (at, look) =
                    self.next.entry(ended.uid.clone()).or_insert_with(|| (now, CHECK_BACKOFF));
                *at = now + look.after_failure(after);
                false
            }
        }
    }
}

async fn look(
    pods: &impl PodApi,
    ended: &TerminatedPod,
    policy: AfterBootPolicy,
    boot: Option<&str>,
    wall: &WallClock,
) -> Looked {
    let TerminatedPod { namespace, name, uid, .. } = ended.clone();
    let label = PodRef { namespace, name, uid };
    let found = RefusedRequest::within(REQUEST_TIMEOUT, "read the pod", pods.get(&label)).await;
    let pod = match found {
        Ok(pod) => pod,
        Err(refused) => return failed(&refused),
    };
    let verdict = decide(ended, pod.as_ref(), policy, boot, wall.now());
    if verdict != AfterBootVerdict::Delete {
        return Looked::Verdict(verdict);
    }
    let deleted = pods.delete(&label, Duration::ZERO);
    match RefusedRequest::within(REQUEST_TIMEOUT, "delete the pod", deleted).await {
        Ok(()) => Looked::Removed,
        Err(refused) if refused.refusal.is_gone() => Looked::Verdict(AfterBootVerdict::Forget),
        Err(refused) => failed(&refused),
    }
}

fn failed(refused: &RefusedRequest) -> Looked {
    let after = refused.refusal.retry_after();
    let error = refused.source.as_ref().map_or_else(|| refused.to_string(), refusal::text);
    Looked::Failed { after, error }
}
