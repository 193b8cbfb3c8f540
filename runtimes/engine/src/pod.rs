//! A pod, its containers and their runs, in a runtime's memory.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use tokio::time::Instant;
use winddown_shared::{ContainerKind, Grace, Pod, PodRef, PodUid, Requests, RuntimePod, WallTime};

use crate::container_plan::{self, ContainerObservation, ContainerRule, CrashBackoff};
use crate::entry::StateEntry;

mod container;
mod notice_content;
mod stop_record;

pub use container::{
    Container, End, IMAGE_PULL, IMAGE_PULL_BACK_OFF, REGISTRY_UNAVAILABLE, Run, RunStopRequest,
    SIGNATURE_INVALID, StartFailure, is_of_pull,
};
pub(crate) use notice_content::NoticeContent;
pub use stop_record::StopRecord;

/// What tells an exit code may only be slow: a supervisor whose disk is busy, or a containerd that systemd restarts, which
/// is back in less than the longer one.
const EXIT_REPORT_TIMEOUT_BOUNDS: (Duration, Duration) =
    (Duration::from_secs(2), Duration::from_secs(10));

/// What a pod runs in: its sandbox, or a boot of the machine. It decides whether an earlier run is still valid. Its
/// associated types hold the runtime-specific state of pods, containers and runs.
pub trait RunScope: Debug + Default + Send + Sync + 'static {
    /// State of a pod.
    type Pod: Debug + Default + Send;
    /// State of a container.
    type Container: Debug + Default + Send;
    /// State of a run.
    type Run: Debug + Send;

    /// Whether the sandbox or boot of the run is gone, so that its pod starts over.
    fn is_past(pod: &Self::Pod, run: &Self::Run) -> bool;

    /// The rules of the containers that the runtime runs.
    fn rules(pod: &Pod) -> Vec<ContainerRule> {
        container_plan::rules(pod)
    }

    /// Whether the run survives a soft-reboot of the node.
    fn survives(_: &Self::Run) -> bool {
        false
    }

    /// Whether anything of the pod runs in addition to the newest runs of its containers.
    fn has_more(_: &Self::Pod) -> bool {
        false
    }
}

/// A pod.
pub type PodEntry<B> = StateEntry<EnginePodState<B>>;

/// The state of a pod. The lock is never held across an await or a system call that can wait.
#[derive(Debug, Default)]
pub struct EnginePodState<B: RunScope> {
    /// The pod as last given, or as it was found; none if only traces of it were found.
    pub pod: Option<Pod>,
    /// Its namespace and name; empty while unknown.
    pub label: (Arc<str>, Arc<str>),
    /// Its own grace period, as far as it is known without the pod.
    pub grace: Option<Duration>,
    /// The resources that it requests, as far as they are known without the pod.
    pub requests: Option<Requests>,
    /// The mark of the spec that it was started with, as it was found.
    pub spec_mark: Option<Arc<str>>,
    /// When it was first started.
    pub started_at: Option<WallTime>,
    /// Its IP addresses, if it has its own.
    pub ips: Vec<String>,
    /// Whether it is being stopped, or was: nothing may be started.
    pub stopping: bool,
    /// Why it is being stopped, and how long that may take.
    pub(crate) ending: Option<Grace>,
    /// The notice in its file, if any. None before this agent has written the file.
    pub(crate) notice: Option<Option<NoticeContent>>,
    /// The number of starts in progress. A stop waits for them: it could not stop containers that it does not see yet.
    pub starting: usize,
    /// The number of starts begun plus starts finished: shows whether an observation of the pod is out of date.
    pub starts: u64,
    /// The containers in the spec's order, init containers first.
    pub containers: Vec<Container<B>>,
    /// What ran when the stop began; kept so that a second stop reports the same.
    pub stop: Option<StopRecord>,
    /// State of this kind of runtime.
    pub own: B::Pod,
}

/// `namespace/name`, or the UID of a pod whose name is not known yet. Takes the lock.
pub fn title<B: RunScope>(entry: &PodEntry<B>) -> String {
    let (namespace, name) = entry.lock().label.clone();
    if name.is_empty() { entry.uid().to_string() } else { format!("{namespace}/{name}") }
}

/// Resolves when this run of the container has ended. Cancel-safe.
pub async fn ended<B: RunScope>(entry: &PodEntry<B>, name: &str, id: &str) {
    let is_over = |run: Option<&mut Run<B>>| run.is_none_or(|run| run.end.is_some());
    entry.wait_for(|state| is_over(state.run(name, id)).then_some(())).await;
}

/// Resolves when the preStop hook of this run of the container is over. Cancel-safe.
pub(crate) async fn hook_over<B: RunScope>(entry: &PodEntry<B>, name: &str, id: &str) {
    let is_over = |run: Option<&mut Run<B>>| run.is_none_or(|run| run.pre_stop.is_over);
    entry.wait_for(|state| is_over(state.run(name, id)).then_some(())).await;
}

/// Resolves when the pod is asked to stop. Cancel-safe.
pub async fn stopping<B: RunScope>(entry: &PodEntry<B>) {
    entry.wait_for(|state| state.stopping.then_some(())).await;
}

/// Resolves when no start is in progress. Cancel-safe.
pub async fn started<B: RunScope>(entry: &PodEntry<B>) {
    entry.wait_for(|state| (state.starting == 0).then_some(())).await;
}

/// A guard that counts one start in progress.
#[derive(Debug)]
pub struct StartInProgress<B: RunScope>(Arc<PodEntry<B>>);

// === impl EnginePodState ===

impl<B: RunScope> EnginePodState<B> {
    /// Updates the pod, and adds its containers in the spec's order.
    pub fn take_pod(&mut self, pod: &Pod) {
        if self.pod.as_ref().is_some_and(|known| known.is_same_object(pod)) {
            return;
        }
        let rules = B::rules(pod);
        let mut known = std::mem::replace(&mut self.containers, Vec::with_capacity(rules.len()));
        for rule in rules {
            let old = known.iter().position(|c| c.name == rule.name).map(|i| known.remove(i));
            let fresh = || Container::new(rule.name.clone(), rule.kind);
            let mut container = old.unwrap_or_else(fresh);
            let found = container_plan::find(pod, &rule.name);
            container.take(rule.kind, found.as_ref().map(|found| &*found.container));
            self.containers.push(container);
        }
        // Containers that the spec no longer has may still run.
        self.containers.append(&mut known);
        self.label = (pod.namespace().clone(), pod.name().clone());
        self.pod = Some(pod.clone());
    }

    /// How long a stop waits for the exit code of a container that has exited: for the rest of its grace period, within
    /// bounds.
    pub fn exit_report_timeout(&self) -> Duration {
        let left = self.ending.as_ref().filter(|_| self.stopping).map(Grace::remaining);
        left.unwrap_or_default().clamp(EXIT_REPORT_TIMEOUT_BOUNDS.0, EXIT_REPORT_TIMEOUT_BOUNDS.1)
    }

    /// Updates the pod, which is wanted to run: it is no longer being stopped.
    pub fn want(&mut self, pod: &Pod) {
        self.leave_other_spec(pod);
        self.take_pod(pod);
        self.begin_again();
        self.stopping = false;
        self.ending = None;
        self.stop = None;
    }

    /// Notes that a manifest which keeps its UID has another spec now: what the runs of the old one did says nothing
    /// about the new one.
    fn leave_other_spec(&mut self, pod: &Pod) {
        if self.spec_mark.as_deref() == pod.spec_mark() || self.any_running() {
            return;
        }
        if self.spec_mark.is_some() {
            for container in &mut self.containers {
                container.trouble = None;
                if let Some(run) = &mut container.run {
                    run.undone = true;
                }
            }
        }
        self.spec_mark = pod.spec_mark().map(Into::into);
    }

    /// Notes that the earlier runs of a pod that was stopped, maybe under an earlier agent, and what kept others from
    /// starting, are past.
    fn begin_again(&mut self) {
        if self.any_running() {
            return;
        }
        let is_news = |end: &End| end.asked && !end.is_past;
        let ends =
            |c: &Container<B>| c.run.as_ref().and_then(|run| run.end.as_ref()).is_some_and(is_news);
        if self.stopping || self.containers.iter().any(ends) {
            for container in &mut self.containers {
                container.trouble = None;
                if let Some(end) = container.run.as_mut().and_then(|run| run.end.as_mut()) {
                    end.is_past = true;
                }
            }
        }
    }

    /// The running containers: regular and ephemeral ones first, then init containers, then sidecars, each in the
    /// spec's order.
    pub fn running(&self) -> Vec<&Container<B>> {
        let mut running: Vec<_> = self.containers.iter().filter(|c| c.is_running()).collect();
        running.sort_by_key(|container| match container.kind {
            ContainerKind::Regular | ContainerKind::Ephemeral => 0,
            ContainerKind::Init => 1,
            ContainerKind::Sidecar => 2,
        });
        running
    }

    /// The containers to measure: first those that run, then those that have exited, for instance in a restart
    /// back-off, whose files remain. None of a pod that was stopped and no longer runs.
    pub fn measured(&self) -> Vec<&Container<B>> {
        if self.is_over() {
            return Vec::new();
        }
        let exited = self.containers.iter().filter(|c| c.run.is_some() && !c.is_running());
        self.running().into_iter().chain(exited).collect()
    }

    /// The container of this name.
    pub fn container(&mut self, name: &str) -> Option<&mut Container<B>> {
        self.containers.iter_mut().find(|c| &*c.name == name)
    }

    /// The id of the container's newest run, if it runs.
    pub fn running_id(&self, name: &str) -> Option<Arc<str>> {
        let container = self.containers.iter().find(|c| &*c.name == name)?;
        container.run.as_ref().filter(|run| run.is_running()).map(|run| Arc::clone(&run.id))
    }

    /// The newest run of the container, if it has this id.
    pub fn run(&mut self, name: &str, id: &str) -> Option<&mut Run<B>> {
        self.container(name)?.run.as_mut().filter(|run| &*run.id == id)
    }

    /// The newest run of the container, if it has this number.
    pub fn attempt(&mut self, name: &str, number: u32) -> Option<&mut Run<B>> {
        self.container(name)?.run.as_mut().filter(|run| run.attempt == number)
    }

    /// Whether anything of the pod runs, or may run because of a start in progress.
    pub fn any_running(&self) -> bool {
        self.starting > 0
            || B::has_more(&self.own)
            || self.containers.iter().any(Container::is_running)
    }

    /// Whether all running containers of the pod would survive a soft-reboot.
    pub fn survives_soft_reboot(&self) -> bool {
        let runs =
            self.containers.iter().filter_map(|c| c.run.as_ref().filter(|run| run.is_running()));
        let mut survive = runs.map(|run| B::survives(&run.own)).peekable();
        survive.peek().is_some() && survive.all(|survives| survives) && self.starting == 0
    }

    /// Whether the pod was stopped and no longer runs.
    pub fn is_over(&self) -> bool {
        self.stopping && !self.any_running()
    }

    /// Whether the sandbox or boot of the run is gone, or its pod was stopped after it.
    pub fn is_past(&self, run: &Run<B>) -> bool {
        B::is_past(&self.own, &run.own) || run.end.as_ref().is_some_and(|end| end.is_past)
    }

    /// The number of the container's next attempt, and the backoff that follows it.
    pub fn next(&self, name: &str, backoff: &CrashBackoff) -> Option<(u32, Duration)> {
        let container = self.containers.iter().find(|c| &*c.name == name)?;
        let is_past = container.run.as_ref().is_some_and(|run| self.is_past(run));
        Some(container.next(is_past, backoff))
    }

    /// Its name for events.
    pub fn pod_ref(&self, uid: &PodUid) -> PodRef {
        let (namespace, name) = self.label.clone();
        PodRef { namespace, name, uid: uid.clone() }
    }

    /// Returns the pod for a listing.
    pub fn summary(&self, uid: &PodUid) -> RuntimePod {
        let (namespace, name) = self.label.clone();
        let mut listed = RuntimePod::new(uid.clone(), name, namespace, self.any_running());
        listed.grace = self.pod.as_ref().map_or(self.grace, Pod::termination_grace_period);
        listed.requests = match &self.pod {
            Some(pod) => Some(pod.fit_requests().clone()),
            None => self.requests.clone(),
        };
        listed.spec_mark.clone_from(&self.spec_mark);
        listed
    }

    /// The container's spec, as far as it is known.
    pub fn spec_of<'a>(&'a self, container: &'a Container<B>) -> Option<Cow<'a, k8s::Container>> {
        let found = self.pod.as_ref().and_then(|pod| container_plan::find(pod, &container.name));
        let found_spec = || container.found_spec.as_deref().map(Cow::Borrowed);
        found.map(|found| found.container).or_else(found_spec)
    }

    /// The current states of the containers of these rules, for the plan. These containers come first in the state, in
    /// the same order.
    pub fn seen(&self, rules: &[ContainerRule], now: Instant) -> Vec<ContainerObservation> {
        let is_past = |run: Option<&Run<B>>| run.is_some_and(|run| self.is_past(run));
        let containers = self.containers.iter().zip(rules);
        containers.map(|(c, rule)| c.seen(rule, is_past(c.run.as_ref()), now)).collect()
    }

    /// Whether a regular container was started since the pod started over, so that none waits for its sidecars any more.
    pub(crate) fn has_begun(&self) -> bool {
        let regular = self.containers.iter().filter(|c| c.kind == ContainerKind::Regular);
        let mut runs = regular.filter_map(|container| container.run.as_ref());
        runs.any(|run| run.started_at.is_some() && !run.undone && !self.is_past(run))
    }

    /// Whether nothing of the pod runs, and nothing will be started.
    pub fn has_completed(&mut self, pod: &Pod) -> bool {
        self.leave_other_spec(pod);
        self.take_pod(pod);
        let rules = B::rules(pod);
        let seen = self.seen(&rules, Instant::now());
        !self.any_running() && container_plan::plan(&rules, &seen).done
    }

    /// How long until the next try to start the container at this index, if the last one failed; none if it may be
    /// started now.
    pub fn trouble_until(&self, place: usize, now: Instant) -> Option<Duration> {
        let trouble = self.containers.get(place)?.trouble.as_ref()?;
        let left = trouble.until.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }
}

// === impl StartInProgress ===

impl<B: RunScope> StartInProgress<B> {
    /// Begins a start; none if the pod is being stopped.
    pub fn begin(entry: &Arc<PodEntry<B>>) -> Option<Self> {
        let mut state = entry.lock();
        if state.stopping {
            return None;
        }
        state.starting += 1;
        state.starts += 1;
        Some(Self(Arc::clone(entry)))
    }

    /// The pod that is being started.
    pub fn entry(&self) -> &Arc<PodEntry<B>> {
        &self.0
    }
}

impl<B: RunScope> Drop for StartInProgress<B> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.starting -= 1;
        state.starts += 1;
        drop(state);
        self.0.bump();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use winddown_shared::{CONFIG_SPEC_ANNOTATION, ContainerExit};

    use super::*;

    #[derive(Debug, Default)]
    struct Place;

    impl RunScope for Place {
        type Pod = ();
        type Container = ();
        type Run = ();

        fn is_past((): &(), (): &()) -> bool {
            false
        }
    }

    /// A pod whose containers have run: `first` and `job` exited with 0 and by themselves, and `main`, with this policy
    /// and code, because it was asked to if `asked`.
    fn over(policy: &str, exit_code: i32, asked: bool) -> (EnginePodState<Place>, Pod) {
        let pod = json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "u"},
            "spec": {
                "restartPolicy": policy, "initContainers": [{"name": "first"}],
                "containers": [{"name": "main"}, {"name": "job"}],
            },
        });
        let pod = Pod::new(serde_json::from_value(pod).unwrap()).unwrap();
        let mut state = EnginePodState::default();
        state.take_pod(&pod);
        for container in &mut state.containers {
            let is_main = &*container.name == "main";
            let mut run = Run::new(&*container.name, 0, Duration::ZERO, ());
            run.started_at = Some(WallTime::UNIX_EPOCH);
            let exit = ContainerExit::new(if is_main { exit_code } else { 0 });
            let times = (Duration::ZERO, Duration::ZERO);
            if asked && is_main {
                run.ask(true);
            }
            run.finish(exit, times, &CrashBackoff::default());
            container.begin(run);
        }
        (state, pod)
    }

    /// No one had to kill it: a longer grace would not have helped.
    #[test]
    fn what_ran_out_of_memory_while_it_was_stopped_did_not_run_out_of_time() {
        for (reason, forced) in
            [("Error", true), ("OOMKilled", false), ("ContainerStatusUnknown", false)]
        {
            let (mut state, _) = over("Always", 137, true);
            state.stop.get_or_insert_default().add(&"main".into());
            let end = state.containers[1].run.as_mut().unwrap().end.as_mut().unwrap();
            end.exit.reason = reason.into();
            assert_eq!(crate::stopping::finish(&mut state).forced(), forced, "{reason}");
        }
    }

    /// Its first process may have survived the one that was killed.
    #[test]
    fn an_init_container_that_ran_out_of_memory_has_failed_although_it_exited_with_0() {
        for (policy, starts, is_over) in
            [("Always", &[0][..], false), ("OnFailure", &[0], false), ("Never", &[], true)]
        {
            let (mut state, pod) = over(policy, 0, false);
            for regular in state.containers.iter_mut().skip(1) {
                regular.run = None;
            }
            state.containers[0].run.as_mut().unwrap().end.as_mut().unwrap().exit.reason =
                "OOMKilled".into();
            let rules = Place::rules(&pod);
            let plan = container_plan::plan(&rules, &state.seen(&rules, Instant::now()));
            assert_eq!((&*plan.start, plan.done), (starts, is_over), "{policy}");
            let status = crate::status::status(&state, "x");
            assert!(!status.containers[0].ready, "{policy}");
        }
    }

    #[test]
    fn a_container_that_its_pods_stop_asked_to_exit_has_not_done_its_job() {
        let is_done = |policy, code, asked| {
            let (mut state, pod) = over(policy, code, asked);
            state.has_completed(&pod)
        };
        for (policy, code, asked, expected) in [
            ("OnFailure", 0, false, true),
            ("OnFailure", 0, true, false),
            ("OnFailure", 143, true, false),
            // It does not run twice, whatever it did.
            ("Never", 0, true, true),
            ("Never", 143, true, true),
            ("Always", 0, true, false),
        ] {
            assert_eq!(is_done(policy, code, asked), expected, "{policy} {code} {asked}");
        }
    }

    #[test]
    fn a_manifest_that_changes_under_its_uid_runs_though_the_pod_before_it_was_done() {
        let marked = |pod: &Pod, mark: &str| {
            let mut object = k8s::Pod::clone(pod);
            let marks = [(CONFIG_SPEC_ANNOTATION.to_owned(), mark.to_owned())];
            object.metadata.annotations = Some(marks.into());
            Pod::new(object).unwrap()
        };
        for (policy, code, asked) in
            [("Never", 143, true), ("Never", 0, false), ("OnFailure", 0, false)]
        {
            // The next agent knows the mark of what it finds.
            let (mut state, pod) = over(policy, code, asked);
            state.spec_mark = Some("old".into());
            let (old, new) = (marked(&pod, "old"), marked(&pod, "new"));
            assert!(state.has_completed(&old), "{policy}");
            assert!(!state.has_completed(&new), "{policy} {code}");
            // The same agent has had the old one.
            let (mut state, _) = over(policy, code, asked);
            state.spec_mark = Some("old".into());
            state.want(&old);
            state.want(&new);
            let rules = container_plan::rules(&new);
            let next = container_plan::plan(&rules, &state.seen(&rules, Instant::now()));
            assert_eq!(next.start, [0], "{policy} {code}");
        }
    }

    /// A pod whose only container, with this image, could not be started by now.
    fn failing(image: &str, mark: &str) -> (EnginePodState<Place>, Pod) {
        let pod = json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "u",
                "annotations": {CONFIG_SPEC_ANNOTATION: mark}},
            "spec": {"containers": [{"name": "main", "image": image}]},
        });
        let pod = Pod::new(serde_json::from_value(pod).unwrap()).unwrap();
        let mut state = EnginePodState::default();
        state.want(&pod);
        state.containers[0].fail(IMAGE_PULL, "no such image".into(), &CrashBackoff::default());
        (state, pod)
    }

    #[test]
    fn a_start_that_failed_is_waited_for_only_while_nothing_has_changed_that_may_mend_it() {
        let waits = |change: fn(&mut EnginePodState<Place>), wanted: &Pod| {
            let (mut state, _) = failing("app:1.O", "old");
            change(&mut state);
            state.want(wanted);
            state.trouble_until(0, Instant::now()).is_some()
        };
        let (_, same) = failing("app:1.O", "old");
        assert!(waits(|_| {}, &same));
        let (_, other) = failing("app:1.0", "old");
        assert!(!waits(|_| {}, &other), "another image");
        let (_, changed) = failing("app:1.O", "new");
        assert!(!waits(|_| {}, &changed), "another manifest");
        assert!(!waits(|state| state.stopping = true, &same), "drained and undrained");
    }

    #[test]
    fn only_an_image_that_cannot_be_pulled_twice_is_in_a_back_off() {
        let retry = CrashBackoff::default();
        let (mut state, _) = failing("app:1", "");
        let container = &mut state.containers[0];
        let mut fail = |reason| {
            let shown = container.fail(reason, "why".into(), &retry);
            (shown, container.trouble.as_ref().unwrap().wait.as_secs())
        };
        let twice = [fail(IMAGE_PULL), fail(IMAGE_PULL)];
        assert_eq!(twice, [(IMAGE_PULL_BACK_OFF, 20), (IMAGE_PULL_BACK_OFF, 40)]);
        let other = "CreateContainerError";
        assert_eq!([fail(other), fail(other)], [(other, 10), (other, 10)], "as a kubelet's");
        assert_eq!(fail(IMAGE_PULL), (IMAGE_PULL, 10), "the first failed pull");
        let unsigned = "SignatureValidationFailed";
        assert_eq!(fail(unsigned), (IMAGE_PULL_BACK_OFF, 20), "whatever the reason");
        assert_eq!(fail("RegistryUnavailable"), (IMAGE_PULL_BACK_OFF, 40));
        let message = "Back-off pulling image \"app:1\": RegistryUnavailable: why";
        assert_eq!(container.trouble.as_ref().unwrap().message, message);
    }

    #[test]
    fn a_new_image_of_a_crashing_init_container_is_started_at_once() {
        let pod = |image: &str| {
            let pod = json!({
                "metadata": {"name": "web", "namespace": "default", "uid": "u"},
                "spec": {"initContainers": [{"name": "first", "image": image}],
                    "containers": [{"name": "main", "image": "app:1"}]},
            });
            Pod::new(serde_json::from_value(pod).unwrap()).unwrap()
        };
        let backoff = CrashBackoff::default();
        let mut state = EnginePodState::<Place>::default();
        state.want(&pod("app:1"));
        let mut run = Run::new("first-0", 0, Duration::from_secs(300), ());
        run.image = Some("app:1".into());
        run.started_at = Some(WallTime::UNIX_EPOCH);
        run.finish(ContainerExit::new(1), (Duration::ZERO, Duration::ZERO), &backoff);
        state.containers[0].begin(run);
        for (image, starts, follows) in [("app:1", &[][..], 300), ("app:2", &[0], 0)] {
            let pod = pod(image);
            state.want(&pod);
            let rules = Place::rules(&pod);
            let plan = container_plan::plan(&rules, &state.seen(&rules, Instant::now()));
            assert_eq!(plan.start, starts, "{image}");
            assert_eq!(state.next("first", &backoff), Some((1, Duration::from_secs(follows))));
        }
    }

    #[test]
    fn a_pod_that_was_stopped_starts_over_with_its_init_containers_when_it_is_wanted_again() {
        let starts = |state: &EnginePodState<Place>, pod: &Pod| {
            let rules = container_plan::rules(pod);
            container_plan::plan(&rules, &state.seen(&rules, Instant::now())).start
        };
        // The next agent knows only what was asked.
        for is_stopping in [true, false] {
            let (mut state, pod) = over("OnFailure", 0, true);
            state.stopping = is_stopping;
            state.want(&pod);
            assert_eq!(starts(&state, &pod), [0], "stopping: {is_stopping}");
            let run = Run::new("first-1", 1, Duration::ZERO, ());
            let first = state.container("first").unwrap();
            first.begin(run);
            let run = first.run.as_mut().unwrap();
            run.started_at = Some(WallTime::UNIX_EPOCH);
            let times = (Duration::ZERO, Duration::ZERO);
            run.finish(ContainerExit::new(0), times, &CrashBackoff::default());
            state.want(&pod);
            assert_eq!(starts(&state, &pod), [1], "what exited by itself has done its job");
        }
        let (mut state, pod) = over("Always", 1, false);
        state.want(&pod);
        assert_eq!(starts(&state, &pod), [1, 2], "it was not stopped");
    }
}
