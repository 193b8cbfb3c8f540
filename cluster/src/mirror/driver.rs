//! Keeps the mirrors up to date.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::OptionFuture;
use futures_util::stream::FuturesUnordered;
use k8s_openapi::api::core::v1 as api;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use winddown_shared::{DesiredPods, Pod, PodRef, WallClock};

use super::{MirrorAction, Mirrors, Name, ObservedMirror, mirror_of, name_of, plan};
use crate::pods::MirrorSide;
use winddown_api_client::refusal::{self, Refusal};
use winddown_api_client::within;
use winddown_shared::Backoff;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_CONCURRENT_REQUESTS: usize = 4;
/// How long a failed attempt is remembered after its last backoff.
const FAILURE_MEMORY: Duration = Duration::from_secs(60);

/// Whether the static pod of a mirror is still terminating.
pub type IsEnding = Arc<dyn Fn(&ObservedMirror) -> bool + Send + Sync>;

/// Carries out the [`plan`]. There is one for each [`Mirrors`].
pub struct MirrorDriver {
    mirrors: Mirrors,
    node_name: Arc<str>,
    wall: WallClock,
    is_ending: IsEnding,
    trials: HashMap<Name, Trial>,
}

/// Failed attempts for a name.
struct Trial {
    backoff: Backoff,
    /// Whether a request is in progress.
    busy: bool,
    not_before: Instant,
    /// Whether the problem was logged.
    said: bool,
}

// === impl MirrorDriver ===

impl MirrorDriver {
    pub(super) fn new(mirrors: Mirrors, node_name: Arc<str>, wall: WallClock) -> Self {
        let is_ending: IsEnding = Arc::new(|_| false);
        Self { mirrors, node_name, wall, is_ending, trials: HashMap::new() }
    }

    /// Keeps mirrors of pods that are still terminating until those have terminated.
    #[must_use]
    pub fn with_is_ending(mut self, is_ending: IsEnding) -> Self {
        self.is_ending = is_ending;
        self
    }

    /// Maintains the mirrors of the static pods in `desired` until `cancel`led. Nothing is done before the API's pods have
    /// been listed, and nothing deleted before the manifests have been read.
    pub async fn run(
        mut self,
        client: kube::Client,
        mut desired: watch::Receiver<Option<Arc<DesiredPods>>>,
        cancel: CancellationToken,
    ) {
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.keep(&client, &mut desired) => {}
        }
    }

    async fn keep(
        &mut self,
        client: &kube::Client,
        desired: &mut watch::Receiver<Option<Arc<DesiredPods>>>,
    ) {
        let mut under_way = FuturesUnordered::new();
        let mirrors = self.mirrors.clone();
        loop {
            let now = Instant::now();
            let wanted = desired.borrow_and_update().clone();
            for step in self.due(wanted.as_deref(), now) {
                if under_way.len() >= MAX_CONCURRENT_REQUESTS {
                    break;
                }
                under_way.push(self.take(step, client));
            }
            let next = self.next_time(now);
            tokio::select! {
                changed = desired.changed() => if changed.is_err() { return },
                () = mirrors.0.changed.notified() => {}
                Some((name, outcome)) = under_way.next() => self.note(&name, outcome),
                Some(()) = OptionFuture::from(next.map(sleep_until)) => {}
            }
        }
    }

    fn due(&mut self, desired: Option<&DesiredPods>, now: Instant) -> Vec<MirrorAction> {
        let Some(desired) = desired else { return Vec::new() };
        let statics: Vec<Pod> =
            desired.pods.iter().filter(|pod| pod.is_static()).cloned().collect();
        let (steps, has_node) = {
            let known = self.mirrors.0.known.lock();
            if !known.complete {
                return Vec::new();
            }
            let seen = known.seen.values();
            let steps = plan(&statics, seen, &known.living, desired.complete, &*self.is_ending);
            (steps, known.node_uid.is_some())
        };
        let names: std::collections::HashSet<Name> = steps.iter().map(MirrorAction::name).collect();
        // After a quiet time the delays start over.
        self.trials.retain(|name, trial| {
            trial.busy || names.contains(name) || trial.not_before + FAILURE_MEMORY > now
        });
        let due = |step: &MirrorAction| {
            let trial = self.trials.get(&step.name());
            trial.is_none_or(|trial| !trial.busy && trial.not_before <= now)
                && (has_node || !matches!(step, MirrorAction::Create(_)))
        };
        let mut steps: Vec<MirrorAction> = steps.into_iter().filter(due).collect();
        steps.retain(|step| match step {
            MirrorAction::Refuse { pod, field } => {
                self.refuse(pod, field);
                false
            }
            MirrorAction::Create(_) | MirrorAction::Delete(_) => true,
        });
        steps
    }

    /// Logs once that there will be no mirror.
    fn refuse(&mut self, pod: &PodRef, field: &str) {
        let trial = self.trials.entry(name_of(pod)).or_insert_with(Trial::new);
        if !std::mem::replace(&mut trial.said, true) {
            tracing::warn!(
                %pod,
                field,
                "no mirror pod for this static pod: a static pod may not reference API objects"
            );
        }
    }

    fn next_time(&self, now: Instant) -> Option<Instant> {
        let times = self.trials.values().filter(|trial| !trial.busy).map(|trial| trial.not_before);
        times.filter(|at| *at > now).min()
    }

    fn take(
        &mut self,
        step: MirrorAction,
        client: &kube::Client,
    ) -> impl Future<Output = (Name, Result<(), String>)> + Send + use<> {
        let name = step.name();
        self.trials.entry(name.clone()).or_insert_with(Trial::new).busy = true;
        let (mirrors, node_name) = (self.mirrors.clone(), self.node_name.clone());
        let (client, now) = (client.clone(), self.wall.now());
        let node_uid = mirrors.0.known.lock().node_uid.clone();
        async move {
            let outcome = match (step, node_uid) {
                (MirrorAction::Create(pod), Some(uid)) => {
                    let object = mirror_of(&pod, &node_name, &uid, now);
                    create(&client, &pod, &object, &mirrors).await
                }
                (MirrorAction::Delete(mirror), _) => delete(&client, &mirror, &mirrors).await,
                (MirrorAction::Create(_), None) | (MirrorAction::Refuse { .. }, _) => Ok(()),
            };
            (name, outcome)
        }
    }

    fn note(&mut self, name: &Name, outcome: Result<(), String>) {
        let Some(trial) = self.trials.get_mut(name) else { return };
        trial.busy = false;
        match outcome {
            // A mirror that is deleted over and over is created again with growing delays.
            Ok(()) => {
                trial.said = false;
                trial.not_before = Instant::now() + trial.backoff.next_delay();
            }
            Err(error) => {
                if !std::mem::replace(&mut trial.said, true) {
                    let (namespace, name) = name;
                    tracing::warn!(
                        %namespace, %name, error,
                        "the mirror pod differs from its static pod; retrying"
                    );
                }
                trial.not_before = Instant::now() + trial.backoff.next_delay();
            }
        }
    }
}

impl std::fmt::Debug for MirrorDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MirrorDriver").field("node_name", &self.node_name).finish_non_exhaustive()
    }
}

impl Trial {
    fn new() -> Self {
        Self { backoff: Backoff::PATIENT, busy: false, not_before: Instant::now(), said: false }
    }
}

impl MirrorAction {
    fn name(&self) -> Name {
        match self {
            MirrorAction::Create(pod) => name_of(pod.pod_ref()),
            MirrorAction::Delete(pod) | MirrorAction::Refuse { pod, .. } => name_of(pod),
        }
    }
}

async fn create(
    client: &kube::Client,
    pod: &Pod,
    object: &api::Pod,
    mirrors: &Mirrors,
) -> Result<(), String> {
    let pods = Api::<api::Pod>::namespaced(client.clone(), pod.namespace());
    let answer = match in_time(pods.create(&PostParams::default(), object)).await {
        Err(error) if Refusal::of(&error) == Refusal::AlreadyExists => {
            in_time(pods.get(pod.name())).await
        }
        answer => answer,
    };
    let there = answer.map_err(|error| refusal::text(&error))?;
    let there = Pod::new(there).map_err(|error| error.to_string())?;
    if !there.is_mirror() {
        return Err("another pod has its name in the API; rename one of them".to_owned());
    }
    mirrors.api_saw(&there);
    Ok(())
}

async fn delete(client: &kube::Client, mirror: &PodRef, mirrors: &Mirrors) -> Result<(), String> {
    let pods = Api::<api::Pod>::namespaced(client.clone(), &mirror.namespace);
    let only_this = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: Some(mirror.uid.to_string()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match in_time(pods.delete(&mirror.name, &only_this)).await {
        Err(error) if Refusal::of(&error).is_gone() => {}
        Err(error) => return Err(refusal::text(&error)),
        // The object stays until its finalizers are removed.
        Ok(answer) if answer.as_ref().left().is_some_and(has_finalizers) => {
            return Err("it has finalizers".to_owned());
        }
        Ok(_) => {}
    }
    mirrors.gone(&mirror.uid);
    Ok(())
}

fn has_finalizers(pod: &api::Pod) -> bool {
    pod.metadata.finalizers.as_ref().is_some_and(|list| !list.is_empty())
}

async fn in_time<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    within(REQUEST_TIMEOUT, request).await.flatten()
}
