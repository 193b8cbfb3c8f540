//! Combines reading, writing and bookkeeping.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use kube::Client;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use winddown_shared::{Mutex, Pod, PodUid, PodUidMap, WallClock};

use super::allowance::Allowance;
use super::downward::NodeAmounts;
use super::mounting::{self, Making, VolumeLock};
use super::needs::{self, Variables};
use super::object::{FoundObject, ObjectKey};
use super::payload::TokenKey;
use super::places::PodDirectories;
use super::problem::ReferenceProblem;
use super::reader::{Reader, Unread};
use super::room::MemoryRoom;
use super::timetable::RefreshTimetable;
use super::tokens::Token;
use super::waiting::Waiting;
use super::{ResolverConfig, env, resolved};
use winddown_cluster::events::Events;

/// What a [`Resolver`](super::Resolver) and its [`Freshener`](super::Freshener) share.
pub(super) struct ResolverShared {
    pub(super) client: Client,
    pub(super) config: ResolverConfig,
    pub(super) places: PodDirectories,
    pub(super) reader: Reader,
    pub(super) wall: WallClock,
    /// Notified when the timetable changes.
    pub(super) changed: Notify,
    /// Whether the API server did not answer the last request.
    pub(super) is_out: AtomicBool,
    events: Events,
    pub(super) waiting: Waiting,
    pub(super) arrivals: Mutex<Option<mpsc::Receiver<PodUid>>>,
    state: Mutex<ResolverState>,
    /// The node's allocatable amounts, once they are known.
    pub(super) node: Mutex<Option<NodeAmounts>>,
}

#[derive(Default)]
pub(super) struct ResolverState {
    pub(super) pods: PodUidMap<RememberedPod>,
    pub(super) timetable: RefreshTimetable,
}

pub(super) struct RememberedPod {
    /// The pod as the API has it.
    pod: Pod,
    /// The resolved pod, of this agent or an earlier one; `None` before it is resolved.
    resolved: Option<Pod>,
    pub(super) volume_lock: VolumeLock,
    tokens: HashMap<TokenKey, Token>,
}

// === impl ResolverShared ===

impl ResolverShared {
    pub(super) fn new(
        client: Client,
        config: ResolverConfig,
        events: Events,
        wall: WallClock,
    ) -> Self {
        let (waiting, arrivals) = Waiting::new(client.clone());
        let places = PodDirectories {
            disk: config.volumes.clone(),
            memory: config.secret_volumes.clone(),
            room: MemoryRoom::default(),
        };
        Self {
            node: Mutex::new(config.node),
            reader: Reader::new(client.clone(), config.request, config.max_age),
            client,
            config,
            places,
            wall,
            changed: Notify::new(),
            is_out: AtomicBool::new(false),
            events,
            waiting,
            arrivals: Mutex::new(Some(arrivals)),
            state: Mutex::default(),
        }
    }

    pub(super) async fn resolve_pod(&self, pod: &Pod) -> Result<Pod, ReferenceProblem> {
        let earlier = self.remember(pod);
        let Some(spec) = pod.spec.as_ref() else { return Ok(pod.clone()) };
        let places = needs::environments(spec);
        let given: Vec<Option<Vec<api::EnvVar>>> =
            places.iter().map(|one| earlier.as_ref().and_then(|e| given_before(e, one))).collect();
        let new = || places.iter().zip(&given).filter(|(_, g)| g.is_none()).map(|(p, _)| p);
        let mut keys = needs::of_environments(pod.namespace(), new());
        keys.extend(needs::of_volumes(pod));
        let services = async {
            match new().next() {
                Some(_) => self.reader.service_variables(pod).await,
                None => Ok(Vec::new()),
            }
        };
        let (objects, services) = tokio::join!(self.reader.objects(keys, Duration::ZERO), services);
        // Before the environment, as in the kubelet: a pod that lacks both waits for its volumes.
        let volumes = match self.volumes(pod, &objects).await {
            // An already resolved pod has its volumes, and they are refreshed.
            Err(_) if earlier.is_some() => None,
            other => Some(other?),
        };
        let services = services?;
        let known = env::EnvironmentInputs {
            pod,
            objects: &objects,
            services: &services,
            node: self.node(),
        };
        let mut allowance = Allowance::of_variables();
        let mut environments = Vec::with_capacity(places.len());
        for (one, given) in places.iter().zip(given) {
            environments.push(match given {
                Some(env) => {
                    allowance.count(env::given_bytes(&env));
                    env
                }
                None => self.environment(&known, one, &mut allowance)?,
            });
        }
        let handler = match &earlier {
            Some(earlier) => earlier.spec.as_ref().and_then(|s| s.runtime_class_name.clone()),
            None => self.reader.runtime_handler(spec.runtime_class_name.as_deref()).await?,
        };
        // Last: a pod that lacks something may wait for ever, and takes nothing of the node while it does.
        let paths = match self.write(pod, &objects, volumes).await {
            Err(_) if earlier.is_some() => self.paths(pod),
            other => other?,
        };
        let resolved = resolved::pod(pod, environments, &paths, handler).map_err(|error| {
            ReferenceProblem::Invalid {
                field: error.field.to_owned(),
                why: "a pod needs one".to_owned(),
            }
        })?;
        if let Some(kept) = self.lock().pods.get_mut(pod.uid()) {
            kept.resolved = Some(resolved.clone());
        }
        Ok(resolved)
    }

    fn environment(
        &self,
        known: &env::EnvironmentInputs<'_>,
        one: &Variables<'_>,
        allowance: &mut Allowance,
    ) -> Result<Vec<api::EnvVar>, ReferenceProblem> {
        let mut events = Vec::new();
        let resolved = env::resolve(known, one, allowance, &mut events);
        events.into_iter().for_each(|draft| self.events.send(draft));
        resolved
    }

    /// Computes all volumes of the pod, or the first problem of one.
    async fn volumes(
        &self,
        pod: &Pod,
        objects: &HashMap<ObjectKey, FoundObject>,
    ) -> Result<Vec<Making>, ReferenceProblem> {
        let Some((_, tokens)) = self.volume_lock(pod.uid()) else { return Ok(Vec::new()) };
        let (tokens, lacking) = mounting::tokens(&self.client, &self.config, pod, tokens).await;
        self.keep_tokens(pod.uid(), &tokens);
        let planned = mounting::plan(self.node(), &self.places, pod, objects, &tokens);
        let mut volumes = Vec::with_capacity(planned.len());
        for one in planned {
            match one {
                Ok(making) => volumes.push(making),
                Err((name, problem)) => {
                    // The reason that there is no token says more than its absence.
                    let problem = match problem {
                        ReferenceProblem::Unreadable { .. } => lacking.unwrap_or(problem),
                        other => other,
                    };
                    self.events.send(mounting::to_event(pod, &name, &problem));
                    return Err(problem);
                }
            }
        }
        Ok(volumes)
    }

    /// Writes these volumes, and returns where those of the pod are; `None` if they stay as they are.
    async fn write(
        &self,
        pod: &Pod,
        objects: &HashMap<ObjectKey, FoundObject>,
        volumes: Option<Vec<Making>>,
    ) -> Result<HashMap<String, PathBuf>, ReferenceProblem> {
        let Some(volumes) = volumes else { return Ok(self.paths(pod)) };
        let Some((volume_lock, tokens)) = self.volume_lock(pod.uid()) else {
            return Ok(HashMap::new());
        };
        let now = self.wall.now();
        let (paths, _) = mounting::write(&self.places, pod, &volume_lock, volumes, now).await?;
        self.look_again(pod, objects, &tokens);
        Ok(paths)
    }

    fn paths(&self, pod: &Pod) -> HashMap<String, PathBuf> {
        let one = |(_, volume): (usize, &api::Volume)| {
            (volume.name.clone(), self.places.of(pod.uid(), volume))
        };
        needs::made_here(pod).map(one).collect()
    }

    /// Remembers the pod as it is now. Returns the resolved pod of an earlier call.
    pub(super) fn remember(&self, pod: &Pod) -> Option<Pod> {
        let mut state = self.lock();
        let kept = state.pods.entry(pod.uid().clone()).or_insert_with(|| RememberedPod {
            pod: pod.clone(),
            resolved: None,
            volume_lock: Arc::new(Mutex::new(true)),
            tokens: HashMap::new(),
        });
        // An already resolved pod does not say where its volumes came from.
        if !self.places.are_in(pod) {
            kept.pod = pod.clone();
        }
        kept.resolved.clone()
    }

    /// Remembers a pod that an earlier agent resolved, so that nothing of it is resolved again.
    pub(super) fn adopt(&self, given: &Pod) {
        self.remember(given);
        if let Some(kept) = self.lock().pods.get_mut(given.uid()) {
            kept.resolved.get_or_insert_with(|| given.clone());
        }
    }

    /// Schedules the next refresh of the volumes: when what they show may have changed, or a token
    /// is due. Does nothing if neither can be the case.
    pub(super) fn look_again(
        &self,
        pod: &Pod,
        objects: &HashMap<ObjectKey, FoundObject>,
        tokens: &HashMap<TokenKey, Token>,
    ) {
        let may_change = |key: &ObjectKey| match objects.get(key) {
            Some(FoundObject::There(object)) => !object.immutable,
            _ => true,
        };
        let age = self.config.max_age.mul_f64(0.9 + winddown_shared::fraction() / 5.0);
        // A token may come to be due sooner than this clock says, which stands still while the machine is suspended.
        if !tokens.is_empty() || needs::of_volumes(pod).iter().any(may_change) {
            self.look_at(pod.uid(), Instant::now() + age);
        }
    }

    pub(super) fn look_at(&self, uid: &PodUid, at: Instant) {
        {
            let mut state = self.lock();
            if !state.pods.contains_key(uid) {
                return;
            }
            state.timetable.set(uid, at);
        }
        self.changed.notify_one();
    }

    /// The pod as the API has it, which is read now if only the resolved pod is known. `None` if it is gone.
    pub(super) async fn pod(&self, uid: &PodUid) -> Result<Option<Pod>, Unread> {
        let kept = self.lock().pods.get(uid).map(|kept| kept.pod.clone());
        let Some(copy) = kept.as_ref().filter(|pod| self.places.are_in(pod)) else {
            return Ok(kept);
        };
        let found = self.reader.pod(copy).await?;
        if let (Some(found), Some(kept)) = (&found, self.lock().pods.get_mut(uid)) {
            kept.pod = found.clone();
        }
        Ok(found)
    }

    pub(super) fn volume_lock(
        &self,
        uid: &PodUid,
    ) -> Option<(VolumeLock, HashMap<TokenKey, Token>)> {
        let state = self.lock();
        let kept = state.pods.get(uid)?;
        Some((Arc::clone(&kept.volume_lock), kept.tokens.clone()))
    }

    pub(super) fn keep_tokens(&self, uid: &PodUid, tokens: &HashMap<TokenKey, Token>) {
        if let Some(kept) = self.lock().pods.get_mut(uid) {
            kept.tokens.clone_from(tokens);
        }
    }

    /// Logs one line when an outage begins, and one when it ends.
    pub(super) fn note_outage(&self, error: Option<&str>) {
        match (error, self.is_out.swap(error.is_some(), Ordering::Relaxed)) {
            (Some(error), false) => {
                tracing::warn!(error, "volumes stay as they are until the API server answers");
            }
            (None, true) => tracing::info!("volumes are refreshed again"),
            _ => {}
        }
    }

    /// What containers without limits may use, once that is known.
    pub(super) fn node(&self) -> Option<NodeAmounts> {
        *self.node.lock()
    }

    pub(super) fn knows(&self, uid: &PodUid) -> bool {
        self.lock().pods.contains_key(uid)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ResolverState> {
        self.state.lock()
    }
}

impl Drop for ResolverShared {
    fn drop(&mut self) {
        self.waiting.stop_all();
    }
}

/// The variables that a container of this name was given before. They are resolved only once.
fn given_before(earlier: &Pod, one: &Variables<'_>) -> Option<Vec<api::EnvVar>> {
    let spec = earlier.spec.as_ref()?;
    let found = needs::environments(spec).into_iter().find(|e| e.name == one.name)?;
    Some(found.env.to_vec())
}
