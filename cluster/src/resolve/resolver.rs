//! Brings it together: reads, waits, writes, remembers.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use kube::Client;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use winddown_shared::{Pod, PodUid, PodUidMap, WallClock, error_chain};

use super::downward::NodeAmounts;
use super::mounting::{self, Standing};
use super::needs::{self, Variables};
use super::object::{Found, Key};
use super::payload::TokenKey;
use super::places::Places;
use super::problem::Problem;
use super::reader::{Reader, Unread};
use super::timetable::Timetable;
use super::tokens::Token;
use super::waiting::Waiting;
use super::{ResolverConfig, env, literal};
use crate::events::Events;
use crate::pods::{Prepare, PrepareError};

pub use super::fresh::Freshener;

/// Makes pods literal. Clones share everything.
#[derive(Clone)]
pub struct Resolver(Arc<Inner>);

/// What a [`Resolver`] has in hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResolveCounts {
    /// Pods that it remembers.
    pub pods: usize,
    /// Pods whose volumes are looked at from time to time.
    pub kept_fresh: usize,
    /// Objects that are watched because pods wait for them.
    pub watched: usize,
}

pub(super) struct Inner {
    pub(super) client: Client,
    pub(super) config: ResolverConfig,
    pub(super) places: Places,
    pub(super) reader: Reader,
    pub(super) wall: WallClock,
    /// Something in the timetable changed.
    pub(super) changed: Notify,
    /// The API server was last seen not to answer.
    pub(super) is_out: AtomicBool,
    events: Events,
    waiting: Waiting,
    arrivals: Mutex<Option<mpsc::Receiver<PodUid>>>,
    state: Mutex<State>,
    /// What is for pods here, once that is known.
    node: Mutex<Option<NodeAmounts>>,
}

#[derive(Default)]
pub(super) struct State {
    pods: PodUidMap<Kept>,
    pub(super) timetable: Timetable,
}

/// What is remembered of a pod.
struct Kept {
    /// The API's object.
    pod: Pod,
    /// What was handed on; none if that was before this agent's time, or is yet to come.
    literal: Option<Pod>,
    standing: Standing,
    tokens: HashMap<TokenKey, Token>,
}

// === impl Resolver ===

impl Resolver {
    /// A resolver that knows no pod, and what keeps volumes fresh. `events` hears what pods lack.
    pub fn new(
        client: Client,
        config: ResolverConfig,
        events: Events,
        wall: WallClock,
    ) -> (Self, Freshener) {
        let (waiting, arrivals) = Waiting::new(client.clone());
        let places = Places { disk: config.volumes.clone(), memory: config.secret_volumes.clone() };
        let inner = Arc::new(Inner {
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
        });
        (Self(Arc::clone(&inner)), Freshener::new(inner))
    }

    /// What containers without limits may use from now on. Variables that pods were given stay; volumes
    /// follow.
    pub fn set_node(&self, amounts: NodeAmounts) {
        *self.0.node.lock().unwrap_or_else(PoisonError::into_inner) = Some(amounts);
    }

    /// Removes the volumes of pods that are not known: of those that went while no agent ran. Blocking.
    /// Answers with how many directories there were.
    pub fn remove_unknown(&self, is_known: impl Fn(&str) -> bool) -> usize {
        self.0.places.remove_unknown(|uid| is_known(uid) || self.0.knows(&PodUid::new(uid)))
    }

    /// What it has in hand.
    pub fn counts(&self) -> ResolveCounts {
        let state = self.0.lock();
        ResolveCounts {
            pods: state.pods.len(),
            kept_fresh: state.timetable.len(),
            watched: self.0.waiting.watched(),
        }
    }
}

impl Prepare for Resolver {
    async fn prepare(&self, pod: &Pod) -> Result<Pod, PrepareError> {
        let inner = &self.0;
        let outcome = inner.make_literal(pod).await;
        match &outcome {
            Ok(_) => inner.waiting.stop(pod.uid()),
            Err(Problem::Missing { key, version, .. }) if inner.knows(pod.uid()) => {
                inner.waiting.wait(pod.uid(), key.clone(), version.clone());
            }
            Err(_) => {}
        }
        outcome.map_err(PrepareError::from)
    }

    fn adopt(&self, pod: &Pod) {
        self.0.remember(pod);
        if needs::made_here(pod).next().is_some() || self.0.places.are_in(pod) {
            self.0.look_at(pod.uid(), Instant::now());
        }
    }

    async fn forget(&self, uid: &PodUid) {
        let inner = &self.0;
        inner.waiting.stop(uid);
        let kept = {
            let mut state = inner.lock();
            state.timetable.remove(uid);
            state.pods.remove(uid)
        };
        let (places, uid) = (inner.places.clone(), uid.clone());
        let work = move || {
            let standing = kept.map(|kept| kept.standing);
            let guard = standing.as_ref().map(|s| s.lock().unwrap_or_else(PoisonError::into_inner));
            if let Some(mut stands) = guard {
                *stands = false;
            }
            places.remove(uid.as_str()).map_err(|error| (uid, error))
        };
        if let Ok(Err((uid, error))) = tokio::task::spawn_blocking(work).await {
            tracing::warn!(%uid, error = error_chain(&error), "volumes of a pod that is gone cannot be removed");
        }
    }

    fn arrivals(&self) -> Option<mpsc::Receiver<PodUid>> {
        self.0.arrivals.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

// === impl Inner ===

impl Inner {
    async fn make_literal(&self, pod: &Pod) -> Result<Pod, Problem> {
        let earlier = self.remember(pod);
        let Some(spec) = pod.spec.as_ref() else { return Ok(pod.clone()) };
        let places = needs::environments(spec);
        let given: Vec<Option<Vec<api::EnvVar>>> =
            places.iter().map(|one| earlier.as_ref().and_then(|e| given_before(e, one))).collect();
        let new = || places.iter().zip(&given).filter(|(_, g)| g.is_none()).map(|(p, _)| p);
        let mut keys = needs::of_environments(pod.namespace(), new());
        keys.extend(volume_keys(pod));
        let services = async {
            match new().next() {
                Some(_) => self.reader.service_variables(pod).await,
                None => Ok(Vec::new()),
            }
        };
        let (objects, services) = tokio::join!(self.reader.objects(keys, Duration::ZERO), services);
        let services = services?;
        let known = env::Known { pod, objects: &objects, services: &services, node: self.node() };
        let mut environments = Vec::with_capacity(places.len());
        for (one, given) in places.iter().zip(given) {
            environments.push(match given {
                Some(env) => env,
                None => self.environment(&known, one)?,
            });
        }
        let paths = match self.volumes(pod, &objects).await {
            // It was handed on already: its volumes are there, and are looked after.
            Err(_) if earlier.is_some() => self.paths(pod),
            other => other?,
        };
        let handler = match &earlier {
            Some(earlier) => earlier.spec.as_ref().and_then(|s| s.runtime_class_name.clone()),
            None => self.reader.runtime_handler(spec.runtime_class_name.as_deref()).await?,
        };
        let literal = literal::pod(pod, environments, &paths, handler).map_err(|error| {
            Problem::Invalid { field: error.field.to_owned(), why: "a pod needs one".to_owned() }
        })?;
        if let Some(kept) = self.lock().pods.get_mut(pod.uid()) {
            kept.literal = Some(literal.clone());
        }
        Ok(literal)
    }

    fn environment(
        &self,
        known: &env::Known<'_>,
        one: &Variables<'_>,
    ) -> Result<Vec<api::EnvVar>, Problem> {
        let mut told = Vec::new();
        let resolved = env::resolve(known, one, &mut told);
        told.into_iter().for_each(|draft| self.events.send(draft));
        resolved
    }

    /// Makes all volumes of the pod, or none.
    async fn volumes(
        &self,
        pod: &Pod,
        objects: &HashMap<Key, Found>,
    ) -> Result<HashMap<String, PathBuf>, Problem> {
        let Some((standing, tokens)) = self.standing(pod.uid()) else { return Ok(HashMap::new()) };
        let (tokens, lacking) = mounting::tokens(&self.client, &self.config, pod, tokens).await;
        self.keep_tokens(pod.uid(), &tokens);
        let planned = mounting::plan(self.node(), &self.places, pod, objects, &tokens);
        let mut volumes = Vec::with_capacity(planned.len());
        for one in planned {
            match one {
                Ok(making) => volumes.push(making),
                Err((name, problem)) => {
                    // Why there is no token says more than that there is none.
                    let problem = match problem {
                        Problem::Unreadable { .. } => lacking.unwrap_or(problem),
                        other => other,
                    };
                    self.events.send(mounting::told(pod, &name, &problem));
                    return Err(problem);
                }
            }
        }
        let now = self.wall.now();
        let (paths, _) = mounting::write(&self.places, pod, &standing, volumes, now).await?;
        self.look_again(pod, objects, &tokens);
        Ok(paths)
    }

    fn paths(&self, pod: &Pod) -> HashMap<String, PathBuf> {
        let one = |(_, volume): (usize, &api::Volume)| {
            (volume.name.clone(), self.places.of(pod.uid(), volume))
        };
        needs::made_here(pod).map(one).collect()
    }

    /// Remembers the pod as it is now. Answers with what was handed on of it before.
    fn remember(&self, pod: &Pod) -> Option<Pod> {
        let mut state = self.lock();
        let kept = state.pods.entry(pod.uid().clone()).or_insert_with(|| Kept {
            pod: pod.clone(),
            literal: None,
            standing: Arc::new(Mutex::new(true)),
            tokens: HashMap::new(),
        });
        // What a provider hands back does not say where its volumes came from.
        if !self.places.are_in(pod) {
            kept.pod = pod.clone();
        }
        kept.literal.clone()
    }

    /// When the volumes are to be looked at again: when what they show may have changed, or a token is
    /// due. Never, if neither can be.
    pub(super) fn look_again(
        &self,
        pod: &Pod,
        objects: &HashMap<Key, Found>,
        tokens: &HashMap<TokenKey, Token>,
    ) {
        let may_change = |key: &Key| match objects.get(key) {
            Some(Found::There(object)) => !object.immutable,
            _ => true,
        };
        let age = self.config.max_age.mul_f64(0.9 + crate::backoff::fraction() / 5.0);
        let objects = volume_keys(pod).iter().any(may_change).then(|| Instant::now() + age);
        let token = tokens.values().map(|token| token.renew_at).min();
        if let Some(at) = objects.into_iter().chain(token).min() {
            self.look_at(pod.uid(), at);
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

    /// The pod as the API has it, read there if only its provider was asked before. None if it is gone.
    ///
    /// # Errors
    /// It cannot be read.
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

    pub(super) fn standing(&self, uid: &PodUid) -> Option<(Standing, HashMap<TokenKey, Token>)> {
        let state = self.lock();
        let kept = state.pods.get(uid)?;
        Some((Arc::clone(&kept.standing), kept.tokens.clone()))
    }

    pub(super) fn keep_tokens(&self, uid: &PodUid, tokens: &HashMap<TokenKey, Token>) {
        if let Some(kept) = self.lock().pods.get_mut(uid) {
            kept.tokens.clone_from(tokens);
        }
    }

    /// One line per outage, and one for its end.
    pub(super) fn note_outage(&self, error: Option<&str>) {
        match (error, self.is_out.swap(error.is_some(), Ordering::Relaxed)) {
            (Some(error), false) => {
                tracing::warn!(error, "volumes stay as they are until the API server answers");
            }
            (None, true) => tracing::info!("volumes are kept fresh again"),
            _ => {}
        }
    }

    /// What containers without limits may use, once that is known.
    pub(super) fn node(&self) -> Option<NodeAmounts> {
        *self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn knows(&self, uid: &PodUid) -> bool {
        self.lock().pods.contains_key(uid)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.waiting.stop_all();
    }
}

/// The objects that the pod's volumes show.
pub(super) fn volume_keys(pod: &Pod) -> BTreeSet<Key> {
    needs::made_here(pod)
        .flat_map(|(_, volume)| needs::of_volume(pod.namespace(), volume))
        .collect()
}

/// The variables that a container of this name was given before: they are resolved once.
fn given_before(earlier: &Pod, one: &Variables<'_>) -> Option<Vec<api::EnvVar>> {
    let spec = earlier.spec.as_ref()?;
    let found = needs::environments(spec).into_iter().find(|e| e.name == one.name)?;
    Some(found.env.to_vec())
}
