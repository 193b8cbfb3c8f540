//! An API server, a kubelet and a container runtime in memory.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::Status;
use kube::runtime::watcher::{self, Event};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use winddown_shared::{
    FoundContainer, FoundPod, Grace, PodRef, PodStopped, PodUid, PodUidMap, RuntimeError,
    StoppedContainer, StoppedContainers, WallClock, WallTime, seconds_up,
};

use super::super::api::{AskResponders, EndPods};
use super::super::config::CompanionConfig;
use super::super::eviction_requests::Responding;
use super::super::local_node::{
    ContainerStop, LocalContainers, LocalHolds, LocalHooks, LocalKubelet, NodeError,
    RuntimePodState,
};
use super::super::stop::StopCore;
use super::pods::{NODE_UID, secs, terminated, uid};
use winddown_api_client::node_pods::{PodStream, RefusedRequest};
use winddown_api_client::refusal::Refusal;

/// Clones share the same world.
#[derive(Clone)]
pub(super) struct World(Arc<Inner>);

struct Inner {
    begun: Instant,
    going_down: watch::Sender<bool>,
    kubelet_ended: watch::Sender<bool>,
    state: Mutex<State>,
}

/// The state of the world, which tests may change directly.
#[derive(Default)]
pub(super) struct State {
    objects: HashMap<PodUid, api::Pod>,
    watch: Option<mpsc::UnboundedSender<watcher::Result<Event<api::Pod>>>>,
    /// Refusals of the next evictions; later ones are granted.
    pub(super) refuses: VecDeque<Refusal>,
    /// `None`: listing them is not allowed.
    budgets: Option<Vec<PodDisruptionBudget>>,
    /// Whether requests for budgets hang; all others are answered.
    pub(super) budgets_hang: bool,
    /// Whether the API server serves eviction requests; their outcome; and how often discovery was queried.
    serves_requests: bool,
    pub(super) refuses_request: Option<Refusal>,
    /// What the API server says to every list and watch, and with which code, if it refuses them.
    pub(super) refuses_watches: Option<(u16, &'static str)>,
    /// What the API server says to every deletion, if it forbids them.
    pub(super) forbids_deletions: Option<&'static str>,
    /// Whether the API server has no object of this node.
    pub(super) has_no_node: bool,
    responding: Option<Responding>,
    pub(super) discoveries: usize,
    api_away: bool,
    /// Whether the API server takes requests and answers none.
    pub(super) silent: bool,
    /// How long the API server takes to answer a request that changes something.
    pub(super) answers_after: Duration,
    /// How long it takes to answer a probe.
    pub(super) probe_takes: Duration,
    /// How long it takes to list the pods.
    pub(super) list_takes: Duration,
    /// How long after the answer to such a request the watches tell it, also to the kubelet; and the pods whose end that knows.
    pub(super) tells_end_after: Duration,
    learnt: HashSet<PodUid>,
    pub(super) kubelet_dead: bool,
    pub(super) runtime_away: bool,
    /// Whether the pods' processes are known without it.
    pub(super) processes_known: bool,
    /// The pods of which an earlier agent recorded that the kubelet runs their hooks.
    pub(super) hooks_begun: Vec<PodUid>,
    /// For how long from the beginning the container runtime is too busy to list containers for hooks.
    pub(super) hooks_unknown: Duration,
    /// Whether the service manager can stop the kubelet, and whether it has.
    pub(super) kubelet_is_service: bool,
    /// How often the service manager fails to stop it before it does.
    pub(super) stop_fails: usize,
    pub(super) kubelet_stopped: bool,
    pub(super) sandboxes: HashSet<PodUid>,
    pub(super) exit_codes: HashMap<PodUid, i32>,
    /// The names of the pods of manifests by the UIDs that the runtime knows.
    manifests: HashMap<PodUid, String>,
    /// How long containers take to stop, and the runtime to report it.
    pub(super) takes: Duration,
    pub(super) lags: Duration,
    /// How long after a pod's end the kubelet stops its sandbox.
    pub(super) takes_down_after: Duration,
    /// How long after a pod's end the kubelet has unmounted its volumes, and when each pod ended.
    pub(super) unmounts_after: Duration,
    ended_at: HashMap<PodUid, Instant>,
    /// How long the kubelet's service takes to start, and to stop.
    pub(super) starts_after: Duration,
    pub(super) stops_after: Duration,
    /// How long a check of what the kubelet holds takes.
    pub(super) held_takes: Duration,
    /// Whether the kernel reports the exits of containers.
    pub(super) kernel_tells: bool,
    /// Whether it does so of another one of each pod, which has exited.
    pub(super) one_had_exited: bool,
    pub(super) unused_volumes: Vec<String>,
    /// How long a look at those takes.
    pub(super) unused_take: Duration,
    pub(super) looks: usize,
    /// How long the container runtime takes to report how a pod ended.
    pub(super) exits_take: Duration,
    /// How long after a pod's end the API server learns of it.
    pub(super) tells_after: Duration,
    kill_at: HashMap<PodUid, Instant>,
    /// The pods whose containers the runtime runs.
    pub(super) running: HashSet<PodUid>,
    /// Requests, each with the time since the beginning.
    log: Vec<(Duration, String)>,
}

// === impl World ===

impl World {
    /// Creates a world with these pods, and a core that has seen them.
    pub(super) async fn new(
        pods: impl IntoIterator<Item = api::Pod>,
    ) -> (Self, Arc<StopCore<Self, Self>>) {
        Self::with(pods, |_| {}).await
    }

    pub(super) async fn with(
        pods: impl IntoIterator<Item = api::Pod>,
        change: impl FnOnce(&mut CompanionConfig),
    ) -> (Self, Arc<StopCore<Self, Self>>) {
        let (world, core) = Self::started(pods, false, change);
        core.known.desired().wait_for(Option::is_some).await.unwrap();
        core.prove().await.unwrap();
        (world, core)
    }

    /// Creates a world with these pods, and a core that has just started.
    pub(super) fn starting(
        pods: impl IntoIterator<Item = api::Pod>,
    ) -> (Self, Arc<StopCore<Self, Self>>) {
        Self::started(pods, false, |_| {})
    }

    /// Creates a world with these pods whose API server is away, and a core that has just started.
    pub(super) fn without_api(
        pods: impl IntoIterator<Item = api::Pod>,
    ) -> (Self, Arc<StopCore<Self, Self>>) {
        Self::started(pods, true, |_| {})
    }

    fn started(
        pods: impl IntoIterator<Item = api::Pod>,
        api_away: bool,
        change: impl FnOnce(&mut CompanionConfig),
    ) -> (Self, Arc<StopCore<Self, Self>>) {
        let objects: HashMap<_, _> = pods
            .into_iter()
            .map(|pod| (PodUid::new(pod.metadata.uid.clone().unwrap()), pod))
            .collect();
        let mut state = State {
            running: objects.values().map(inside).collect(),
            sandboxes: objects.values().map(inside).collect(),
            objects,
            api_away,
            kubelet_is_service: true,
            takes: secs(2),
            ..State::default()
        };
        let objects: Vec<_> = state.objects.values().cloned().collect();
        state.mirrored(&objects);
        let world = Self(Arc::new(Inner {
            begun: Instant::now(),
            going_down: watch::Sender::new(false),
            kubelet_ended: watch::Sender::new(false),
            state: Mutex::new(state),
        }));
        let mut config = CompanionConfig::new("n1", world.wall());
        config.going_down = world.0.going_down.subscribe();
        change(&mut config);
        let core = Arc::new(StopCore::new(world.clone(), world.clone(), config));
        let follower = Arc::clone(&core);
        tokio::spawn(async move { follower.follow().await });
        (world, core)
    }

    /// A wall clock that follows the paused clock.
    fn wall(&self) -> WallClock {
        let begun = self.0.begun;
        WallClock::new(move || {
            WallTime::from_second(2_000_000_000).unwrap().checked_add(begun.elapsed()).unwrap()
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    pub(super) fn refuse(&self, times: usize, refusal: Refusal) {
        self.state().refuses.extend(std::iter::repeat_n(refusal, times));
    }

    /// Makes the API server return these disruption budgets.
    pub(super) fn set_budgets(&self, budgets: serde_json::Value) {
        self.state().budgets = Some(serde_json::from_value(budgets).unwrap());
    }

    /// Makes the API server serve eviction requests with this outcome.
    pub(super) fn serve_requests(&self, responding: Responding) {
        let mut state = self.state();
        (state.serves_requests, state.responding) = (true, Some(responding));
    }

    /// Cuts the API server off, or brings it back.
    pub(super) fn set_api_away(&self, away: bool) {
        let mut state = self.state();
        state.api_away = away;
        if away && let Some(watch) = state.watch.take() {
            let _ = watch.send(Err(watcher::Error::WatchFailed(lost())));
        }
    }

    /// Breaks the watch, of an API server that is there.
    pub(super) fn break_watch(&self) {
        if let Some(watch) = self.state().watch.take() {
            let _ = watch.send(Err(watcher::Error::WatchFailed(lost())));
        }
    }

    /// Tells the watch that the version it continues from has expired.
    pub(super) fn expire_watch(&self) {
        let kube::Error::Api(expired) = refusal_of(410, "too old resource version") else { return };
        if let Some(watch) = self.state().watch.take() {
            let _ = watch.send(Err(watcher::Error::WatchError(expired)));
        }
    }

    /// Has the API server answer this to every list and watch.
    pub(super) fn forbid_watches(&self, why: Option<&'static str>) {
        self.state().refuses_watches = why.map(|why| (403, why));
        self.break_watch();
    }

    /// Kills the kubelet, which the service manager notices.
    pub(super) fn kill_kubelet(&self) {
        self.state().kubelet_dead = true;
        self.0.kubelet_ended.send_replace(true);
    }

    pub(super) fn set_going_down(&self) {
        self.0.going_down.send_replace(true);
    }

    /// Cancels the shutdown.
    pub(super) fn set_staying_up(&self) {
        self.0.going_down.send_replace(false);
    }

    /// Ends the pod's containers without the container runtime noticing.
    pub(super) fn end_in_kernel(&self, name: &str) {
        self.state().ended_at.insert(uid(name), Instant::now());
    }

    /// The requests so far, each with the second at which it was made.
    pub(super) fn log(&self) -> Vec<String> {
        let text = |(at, what): &(Duration, String)| format!("{}: {what}", at.as_secs());
        self.state().log.iter().map(text).collect()
    }

    /// How long the world has been, in milliseconds.
    pub(super) fn elapsed_ms(&self) -> u128 {
        self.0.begun.elapsed().as_millis()
    }

    /// When the first request was made that begins like this, in milliseconds.
    pub(super) fn first_ms(&self, what: &str) -> Option<u128> {
        let state = self.state();
        let found = state.log.iter().find(|(_, line)| line.starts_with(what));
        found.map(|(at, _)| at.as_millis())
    }

    pub(super) fn has_running(&self, name: &str) -> bool {
        self.state().running.contains(&uid(name))
    }

    /// UIDs of the pods that the API server has.
    pub(super) fn objects(&self) -> Vec<String> {
        self.state().objects.keys().map(|uid| uid.as_str().to_owned()).collect()
    }

    pub(super) fn runs_inside(&self, inside: &str) {
        self.state().running.insert(PodUid::new(inside));
    }

    /// Changes a pod, as another client.
    pub(super) fn apply(&self, pod: api::Pod) {
        let mut state = self.state();
        state.mirrored([&pod]);
        state.objects.insert(PodUid::new(pod.metadata.uid.clone().unwrap()), pod.clone());
        state.tell(Event::Apply(pod));
    }

    /// Deletes a pod, as another client.
    pub(super) fn delete_by_others(&self, name: &str, grace: Duration) {
        self.begin(&uid(name), grace);
    }

    /// Removes the object; the containers keep running.
    pub(super) fn remove(&self, name: &str) {
        let mut state = self.state();
        let pod = state.objects.remove(&uid(name)).unwrap();
        state.tell(Event::Delete(pod));
    }

    fn knows_hooks(&self) -> Result<(), NodeError> {
        let is_known = self.0.begun.elapsed() >= self.state().hooks_unknown;
        is_known.then_some(()).ok_or_else(|| NodeError::because("it did not answer within 2 s"))
    }

    fn note(&self, what: &str) {
        let at = self.0.begun.elapsed();
        self.state().log.push((at, what.to_owned()));
    }

    /// Marks the pod as deleted, and lets the kubelet stop it.
    fn begin(&self, uid: &PodUid, grace: Duration) {
        let now = Instant::now();
        let mut state = self.state();
        let (takes, lags) = (state.takes, state.lags);
        let Some(pod) = state.objects.get_mut(uid) else { return };
        let seconds = i64::try_from(grace.as_secs()).unwrap();
        pod.metadata.deletion_grace_period_seconds = Some(seconds);
        pod.metadata.deletion_timestamp = Some(Time(self.wall().now().checked_add(grace).unwrap()));
        let pod = pod.clone();
        let told = now + state.tells_end_after;
        let is_at_once = told == now;
        drop(state);
        let (world, name) = (self.clone(), uid.clone());
        let tell = async move {
            sleep_until(told).await;
            let mut state = world.state();
            state.learnt.insert(name);
            state.tell(Event::Apply(pod));
        };
        if is_at_once {
            let _ = tell.now_or_never();
        } else {
            tokio::spawn(tell);
        }
        let mut state = self.state();
        let end = told + takes.min(grace);
        let sooner = state.kill_at.get(uid).is_none_or(|known| end < *known);
        if !sooner {
            return;
        }
        state.kill_at.insert(uid.clone(), end);
        drop(state);
        let (world, uid) = (self.clone(), uid.clone());
        tokio::spawn(async move {
            sleep_until(end).await;
            world.end(&uid, takes > grace, lags).await;
        });
    }

    /// Plays the kubelet stopping the containers.
    async fn end(&self, uid: &PodUid, forced: bool, lags: Duration) {
        let Some(tells_after) = self.end_inside(uid, lags) else { return };
        self.state().ended_at.insert(uid.clone(), Instant::now());
        self.state().exit_codes.insert(uid.clone(), if forced { 137 } else { 0 });
        let takes_down_after = self.state().takes_down_after;
        tokio::time::sleep(takes_down_after).await;
        if lags.is_zero() && !self.state().kubelet_stopped {
            self.state().sandboxes.remove(uid);
        }
        tokio::time::sleep(tells_after).await;
        self.tell_end(uid, forced);
        tokio::time::sleep(lags).await;
        let mut state = self.state();
        state.running.remove(uid);
        if !state.kubelet_stopped {
            state.sandboxes.remove(uid);
        }
    }

    fn end_inside(&self, uid: &PodUid, lags: Duration) -> Option<Duration> {
        let mut state = self.state();
        if state.kubelet_dead || state.kubelet_stopped {
            return None;
        }
        if lags.is_zero() {
            state.running.remove(uid);
        }
        Some(state.tells_after)
    }

    fn tell_end(&self, uid: &PodUid, forced: bool) {
        let mut state = self.state();
        if state.api_away {
            return;
        }
        if let Some(mut pod) = state.objects.remove(uid) {
            let exit = terminated(if forced { 137 } else { 0 });
            let ended = vec![serde_json::from_value(exit).unwrap()];
            pod.status.as_mut().unwrap().container_statuses = Some(ended);
            state.tell(Event::Apply(pod.clone()));
            state.tell(Event::Delete(pod));
        }
    }

    /// Restarts the pod's container once, as a kubelet does that was not asked to stop the pod.
    fn start_again(&self, uid: &PodUid) {
        let state = self.state();
        let is_there = !state.kubelet_dead && !state.kubelet_stopped;
        let learnt = state.learnt.contains(uid) || !state.objects.contains_key(uid);
        if !is_there || learnt {
            return;
        }
        drop(state);
        let (world, uid) = (self.clone(), uid.clone());
        tokio::spawn(async move {
            tokio::time::sleep(secs(1)).await;
            world.note(&format!("start {} again", uid.as_str()));
            world.state().running.insert(uid);
        });
    }

    async fn answer(&self, pod: &PodRef) -> Result<(), RefusedRequest> {
        let after = self.state().answers_after;
        if self.state().silent {
            std::future::pending::<()>().await;
        }
        if !after.is_zero() {
            tokio::time::sleep(after).await;
        }
        let state = self.state();
        match state.objects.contains_key(&pod.uid) {
            _ if state.api_away => Err(refused(Refusal::NoAnswer)),
            true => Ok(()),
            false => Err(refused(Refusal::OtherUid)),
        }
    }
}

impl State {
    /// Records the pods of manifests that these objects mirror, as the kubelet that makes them.
    fn mirrored<'a>(&mut self, objects: impl IntoIterator<Item = &'a api::Pod>) {
        for object in objects {
            let metadata = &object.metadata;
            let hash =
                metadata.annotations.as_ref().and_then(|all| all.get("kubernetes.io/config.hash"));
            let (Some(hash), Some(name)) = (hash, &metadata.name) else { continue };
            self.manifests.entry(PodUid::new(&**hash)).or_insert_with(|| name.clone());
        }
    }

    /// A pod of a manifest has the name of its mirror pod.
    fn named(&self, mut found: FoundPod) -> FoundPod {
        if let Some(name) = self.manifests.get(&found.uid) {
            found.name.clone_from(name);
            found.annotations.insert("kubernetes.io/config.source".to_owned(), "file".to_owned());
        }
        found
    }

    fn tell(&self, event: Event<api::Pod>) {
        if let Some(watch) = &self.watch {
            let _ = watch.send(Ok(event));
        }
    }
}

impl EndPods for World {
    fn watch(&self) -> PodStream {
        let world = self.clone();
        // Like the real watch, it continues after an error.
        stream::unfold((world, None), |(world, mut events)| async move {
            loop {
                let rx: &mut mpsc::UnboundedReceiver<_> = match &mut events {
                    Some(events) => events,
                    None => {
                        let list_takes = world.state().list_takes;
                        sleep(list_takes).await;
                        let mut state = world.state();
                        let failure = match state.refuses_watches {
                            _ if state.api_away => Some(lost()),
                            refusal => refusal.map(|(code, why)| refusal_of(code, why)),
                        };
                        if let Some(failure) = failure {
                            drop(state);
                            let failure = watcher::Error::WatchStartFailed(failure);
                            return Some((Err(failure), (world, None)));
                        }
                        let (tx, rx) = mpsc::unbounded_channel();
                        let _ = tx.send(Ok(Event::Init));
                        for pod in state.objects.values() {
                            let _ = tx.send(Ok(Event::InitApply(pod.clone())));
                        }
                        let _ = tx.send(Ok(Event::InitDone));
                        state.watch = Some(tx);
                        drop(state);
                        events.insert(rx)
                    }
                };
                match rx.recv().await {
                    Some(event) => return Some((event, (world, events))),
                    None => events = None,
                }
            }
        })
        .boxed()
    }

    async fn node_uid(&self) -> Result<String, RefusedRequest> {
        let state = self.state();
        match (state.api_away, state.has_no_node) {
            (true, _) => Err(refused(Refusal::NoAnswer)),
            (false, true) => Err(refused(Refusal::NotFound)),
            (false, false) => Ok(NODE_UID.to_owned()),
        }
    }

    async fn probe(&self) -> Result<(), RefusedRequest> {
        let takes = self.state().probe_takes;
        if self.state().silent {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(takes).await;
        let is_away = self.state().api_away;
        if is_away { Err(refused(Refusal::NoAnswer)) } else { Ok(()) }
    }

    async fn budgets(&self) -> Result<Vec<PodDisruptionBudget>, RefusedRequest> {
        let hangs = {
            let state = self.state();
            state.budgets_hang || state.silent
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        let state = self.state();
        let refusal = if state.api_away { Refusal::NoAnswer } else { Refusal::NotAllowed };
        state.budgets.clone().filter(|_| !state.api_away).ok_or_else(|| refused(refusal))
    }

    async fn evict(&self, pod: &PodRef, grace: Duration) -> Result<(), RefusedRequest> {
        self.note(&format!("evict {} {}", pod.name, grace.as_secs()));
        self.answer(pod).await?;
        let next = self.state().refuses.pop_front();
        if let Some(refusal) = next {
            let source = Some(kube::Error::Api(Box::new(answer(refusal, &pod.name))));
            return Err(RefusedRequest { source, ..refused(refusal) });
        }
        self.begin(&pod.uid, grace);
        Ok(())
    }

    async fn delete(&self, pod: &PodRef, grace: Duration) -> Result<(), RefusedRequest> {
        self.note(&format!("delete {} {}", pod.name, grace.as_secs()));
        self.answer(pod).await?;
        if let Some(why) = self.state().forbids_deletions {
            return Err(RefusedRequest::of("delete the pod", refusal_of(403, why)));
        }
        self.begin(&pod.uid, grace);
        Ok(())
    }
}

impl AskResponders for World {
    async fn serves_eviction_requests(&self) -> Result<bool, RefusedRequest> {
        let mut state = self.state();
        state.discoveries += 1;
        if state.api_away { Err(refused(Refusal::NoAnswer)) } else { Ok(state.serves_requests) }
    }

    async fn request_eviction(&self, pod: &PodRef) -> Result<(), RefusedRequest> {
        self.note(&format!("request {}", pod.name));
        self.answer(pod).await?;
        let next = self.state().refuses_request.take();
        next.map_or(Ok(()), |refusal| Err(refused(refusal)))
    }

    async fn responding(&self, pod: &PodRef) -> Result<Responding, RefusedRequest> {
        self.answer(pod).await?;
        Ok(self.state().responding.clone().unwrap_or(Responding::Pending))
    }
}

impl LocalContainers for World {
    async fn look(&self) -> Result<PodUidMap<RuntimePodState>, NodeError> {
        let mut state = self.state();
        state.looks += 1;
        if state.runtime_away {
            return Err(NodeError::because("no socket"));
        }
        let all = state.running.union(&state.sandboxes);
        let inside = |uid: &PodUid| RuntimePodState {
            running: state.running.get(uid).map(|_| "a".to_owned()).into_iter().collect(),
            has_sandbox: state.sandboxes.contains(uid),
        };
        Ok(all.map(|uid| (uid.clone(), inside(uid))).collect())
    }

    async fn pods(&self) -> Result<Vec<FoundPod>, NodeError> {
        let state = self.state();
        if state.runtime_away {
            return Err(NodeError::because("no socket"));
        }
        let all = state.running.union(&state.sandboxes);
        Ok(all.map(|uid| state.named(found(uid, state.running.contains(uid)))).collect())
    }

    fn ends(&self, uid: &PodUid) -> Vec<BoxFuture<'static, ()>> {
        let (world, uid) = (self.clone(), uid.clone());
        let end = async move {
            while !world.state().ended_at.contains_key(&uid) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let state = self.state();
        let had_exited = state.one_had_exited.then(|| std::future::ready(()).boxed());
        state.kernel_tells.then(|| end.boxed()).into_iter().chain(had_exited).collect()
    }

    async fn stop(
        &self,
        uid: &PodUid,
        stop: &ContainerStop,
    ) -> Result<StoppedContainers, NodeError> {
        let ContainerStop { grace, runs_hooks, sidecars } = stop;
        if *runs_hooks {
            self.note(&format!("run the hooks of {}", uid.as_str()));
        }
        let last: String = sidecars.iter().map(|name| format!(", then {name}")).collect();
        self.note(&format!("stop {} {}{last}", uid.as_str(), seconds_up(*grace)));
        let without_runtime = self.state().runtime_away;
        if without_runtime && !self.state().processes_known {
            return Err(NodeError::because("no socket"));
        }
        let (ran, takes) = {
            let state = self.state();
            (state.running.contains(uid), state.takes.min(*grace))
        };
        if !ran {
            return Ok(StoppedContainers::default());
        }
        tokio::time::sleep(takes).await;
        let lags = {
            let mut state = self.state();
            state.ended_at.entry(uid.clone()).or_insert_with(Instant::now);
            state.lags
        };
        tokio::time::sleep(lags).await;
        self.state().running.remove(uid);
        self.start_again(uid);
        let without_hook = runs_hooks.then(|| "a".to_owned()).into_iter().collect();
        let hook_begun_before = Vec::new();
        Ok(StoppedContainers { ran, without_hook, hook_begun_before, without_runtime })
    }

    async fn exits(&self, uid: &PodUid) -> Result<Vec<StoppedContainer>, NodeError> {
        let takes = self.state().exits_take;
        tokio::time::sleep(takes).await;
        let exit_code = self.state().exit_codes.get(uid).copied();
        let ended = exit_code.map(|code| StoppedContainer::new("a", code, code == 137));
        Ok(ended.into_iter().collect())
    }
}

impl LocalHooks for World {
    async fn hooks_begin(&self, uid: &PodUid) -> Result<(), NodeError> {
        self.knows_hooks()?;
        self.note(&format!("the kubelet runs the hooks of {}", uid.as_str()));
        Ok(())
    }

    async fn with_begun_hooks(&self) -> Result<Vec<PodUid>, NodeError> {
        self.knows_hooks()?;
        let state = self.state();
        Ok(state.hooks_begun.iter().filter(|uid| state.running.contains(uid)).cloned().collect())
    }
}

impl LocalHolds for World {
    async fn take_down(&self, uid: &PodUid) -> Result<(), NodeError> {
        self.note(&format!("take {} down", uid.as_str()));
        self.state().sandboxes.remove(uid);
        Ok(())
    }

    async fn held(&self, uid: &PodUid, _: bool) -> Result<Vec<String>, NodeError> {
        let takes = self.state().held_takes;
        tokio::time::sleep(takes).await;
        let state = self.state();
        let ended_for = state.ended_at.get(uid).map_or(Duration::ZERO, Instant::elapsed);
        let is_mounted = ended_for < state.unmounts_after;
        Ok(is_mounted.then(|| "/volume".to_owned()).into_iter().collect())
    }

    async fn unused_volumes(&self) -> Result<Vec<String>, NodeError> {
        let takes = self.state().unused_take;
        tokio::time::sleep(takes).await;
        Ok(self.state().unused_volumes.clone())
    }
}

impl LocalKubelet for World {
    async fn is_kubelet_absent(&self) -> bool {
        *self.0.kubelet_ended.borrow()
    }

    async fn kubelet_ended(&self) {
        let _ = self.0.kubelet_ended.subscribe().wait_for(|ended| *ended).await;
    }

    async fn is_kubelet_stopped(&self) -> bool {
        let is_stopped = self.state().kubelet_stopped;
        if is_stopped {
            // The service manager takes its time.
            tokio::time::sleep(secs(1)).await;
        }
        is_stopped
    }

    async fn stop_kubelet(&self) -> Result<(), NodeError> {
        self.note("stop the kubelet");
        if self.state().stop_fails > 0 {
            self.state().stop_fails -= 1;
            return Err(NodeError::because("the service manager did not answer"));
        }
        if !self.state().kubelet_is_service {
            return Err(NodeError::because("it is part of k3s.service"));
        }
        let stops_after = self.state().stops_after;
        tokio::time::sleep(stops_after).await;
        self.state().kubelet_stopped = true;
        Ok(())
    }

    async fn start_kubelet(&self) -> Result<(), NodeError> {
        let starts_after = self.state().starts_after;
        tokio::time::sleep(starts_after).await;
        if std::mem::take(&mut self.state().kubelet_stopped) {
            self.note("start the kubelet");
        }
        Ok(())
    }
}

/// A pod as a kubelet records it: the pod of a manifest if its UID says so.
fn found(uid: &PodUid, runs: bool) -> FoundPod {
    let source = if uid.as_str().contains("static") { "file" } else { "api" };
    let text = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
    FoundPod {
        uid: uid.clone(),
        name: uid.as_str().trim_start_matches("uid-").to_owned(),
        namespace: "default".to_owned(),
        labels: BTreeMap::new(),
        annotations: text("kubernetes.io/config.source", source),
        containers: vec![FoundContainer {
            name: "a".to_owned(),
            id: uid.as_str().to_owned(),
            image: "x".to_owned(),
            running_since: runs.then_some(WallTime::UNIX_EPOCH),
            annotations: match uid.as_str().contains("hook") {
                true => {
                    text("io.kubernetes.container.preStopHandler", r#"{"sleep": {"seconds": 1}}"#)
                }
                false => text("io.kubernetes.pod.terminationGracePeriod", "40"),
            },
        }],
    }
}

/// The UID by which the container runtime knows the pod.
fn inside(object: &api::Pod) -> PodUid {
    let annotations = object.metadata.annotations.as_ref();
    let annotations = annotations.filter(|all| all.contains_key("kubernetes.io/config.mirror"));
    let hash = annotations.and_then(|all| all.get("kubernetes.io/config.hash"));
    PodUid::new(&**hash.or(object.metadata.uid.as_ref()).unwrap())
}

fn refused(refusal: Refusal) -> RefusedRequest {
    RefusedRequest { what: "terminate the pod", refusal, source: None }
}

/// The API server's answer to an eviction that is refused.
fn answer(refusal: Refusal, pod: &str) -> Status {
    let says = |code, message: String| Status { code, message, ..Status::default() };
    match refusal {
        Refusal::NotAllowed => {
            let right = r#"User "n1" cannot create resource "pods/eviction" in API group """#;
            says(403, format!("pods \"{pod}\" is forbidden: {right}"))
        }
        Refusal::Denied => {
            says(429, "admission webhook \"db\" denied the request: it is the primary".to_owned())
        }
        _ => against(pod),
    }
}

/// The API server's answer if a budget with the pod's name refuses.
fn against(budget: &str) -> Status {
    let message =
        format!("The disruption budget {budget} needs 1 healthy pods and has 1 currently");
    serde_json::from_value(serde_json::json!({
        "code": 429, "reason": "TooManyRequests",
        "details": {"causes": [{"reason": "DisruptionBudget", "message": message}]},
    }))
    .unwrap()
}

fn refusal_of(code: u16, why: &str) -> kube::Error {
    let status = Status { code, message: why.into(), ..Status::default() };
    kube::Error::Api(Box::new(status))
}

fn lost() -> kube::Error {
    kube::Error::Service("the connection was lost".into())
}

/// Stops a pod with this grace period. Returns how long it took, in seconds, and the result.
pub(super) async fn stop(
    core: &StopCore<World, World>,
    name: &str,
    grace: u64,
) -> (u64, Result<PodStopped, RuntimeError>) {
    let begun = Instant::now();
    let stopped = core.stop(&uid(name), None, Grace::fixed(secs(grace))).await;
    (begun.elapsed().as_secs(), stopped)
}

/// Whether a stop is still in progress after that time.
pub(super) async fn waits(
    core: &StopCore<World, World>,
    name: &str,
    grace: u64,
    within: u64,
) -> bool {
    timeout(secs(within), stop(core, name, grace)).await.is_err()
}
