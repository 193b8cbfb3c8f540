//! Lists what the runtime has and updates the agent's state from it: adoption at the start, and the
//! safety net below events and pidfds.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use winddown_engine::disk_notes::NotedRun;
use winddown_host::beat;
use winddown_shared::{
    CONFIG_SPEC_ANNOTATION, EndCause, PodUid, PodUidMap, RuntimeError, error_chain,
};

use super::client::{CallError, MAX_CONCURRENT_QUERIES};
use super::end_note::{self, EndNote};
use super::labels::{self, ContainerFacts};
use super::pod::{self, Container, Dead, PodEntry, PodState, Sandbox};
use super::{CriContext, api, blocking, by_pod, dirs, exits, health, observe, sandbox};

const LISTING: &str = "listing what the container runtime has";

/// A listing's sandboxes and containers of one pod.
#[derive(Debug, Default)]
struct Listed {
    sandboxes: Vec<api::PodSandbox>,
    containers: Vec<api::Container>,
}

/// Lists everything periodically.
pub(super) async fn follow(context: Arc<CriContext>) {
    let mut health = context.health.subscribe();
    loop {
        beat::sleep(context.config.times.relist).await;
        if health.wait_for(|h| h.reachable).await.is_err() {
            return;
        }
        relist(&context).await;
    }
}

/// Lists everything; a failure is only logged.
pub(super) async fn relist(context: &Arc<CriContext>) {
    if let Err(error) = list_all(context).await {
        tracing::debug!(error = error_chain(&error), "cannot list what the container runtime has");
    }
}

/// Updates all pods from the runtime. A pod of which something is started meanwhile is skipped: the
/// task that starts it knows better.
///
/// # Errors
/// The runtime did not answer; the known state stays as it is.
pub(super) async fn list_all(context: &Arc<CriContext>) -> Result<(), RuntimeError> {
    let _turn = context.listing.turn.lock().await;
    let before: HashMap<PodUid, u64> = {
        let pods = context.pods.lock();
        pods.iter().map(|(uid, entry)| (uid.clone(), entry.lock().starts)).collect()
    };
    health::know_name(context).await.map_err(|error| {
        health::note_unreachable(context, &error);
        error.during("asking the container runtime for its name")
    })?;
    let all = by_pod::ask_all(context, LISTING, |selector| list(context, selector)).await?;
    let mut listed: HashMap<String, Listed> = all.into_iter().flatten().collect();
    let mut entries = Vec::new();
    for (uid, &starts) in &before {
        let Some(entry) = context.pods.get(uid) else { continue };
        let found = listed.remove(uid.as_str()).unwrap_or_default();
        entries.push((entry, starts, found));
    }
    for (uid, found) in listed {
        let uid = PodUid::new(uid.as_str());
        // If a pod appeared since the listing was requested, the task that created it knows better.
        if context.pods.get(&uid).is_none() {
            entries.push((context.pods.get_or_new(&uid), 0, found));
        }
    }
    let asked =
        entries.into_iter().map(|(entry, starts, found)| take(context, entry, starts, found));
    stream::iter(asked).for_each_concurrent(MAX_CONCURRENT_QUERIES, |taking| taking).await;
    context.set_adopted();
    Ok(())
}

/// Updates one pod from the runtime. No start of the pod may be in progress.
///
/// # Errors
/// The runtime did not answer; the known state stays as it is.
pub(super) async fn list_pod(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
) -> Result<(), RuntimeError> {
    let uid = entry.uid().as_str();
    let starts = entry.lock().starts;
    let listed = list(context, labels::of_pod(uid)).await;
    let mut listed = listed.map_err(|error| {
        health::note_unreachable(context, &error);
        error.during(LISTING)
    })?;
    let found = listed.remove(uid).unwrap_or_default();
    take(context, Arc::clone(entry), starts, found).await;
    Ok(())
}

/// What the runtime has with these labels, by the UID of the pod.
fn list(
    context: &CriContext,
    selector: HashMap<String, String>,
) -> BoxFuture<'_, Result<HashMap<String, Listed>, CallError>> {
    let answers = async move {
        // Containers first: if one is created in between, its sandbox is then listed as well.
        let containers = context.client.containers(selector.clone()).await?;
        let sandboxes = context.client.sandboxes(selector).await?;
        let mut pods = HashMap::<String, Listed>::new();
        for sandbox in sandboxes {
            if let Some(uid) = sandbox.labels.get(labels::POD_UID) {
                pods.entry(uid.clone()).or_default().sandboxes.push(sandbox);
            }
        }
        for container in containers {
            if let Some(uid) = container.labels.get(labels::POD_UID) {
                pods.entry(uid.clone()).or_default().containers.push(container);
            }
        }
        Ok(pods)
    };
    answers.boxed()
}

/// Records a listing of one pod that was requested when `starts` starts had begun, and asks the runtime about what
/// the listing does not contain. If something of the pod was started since, the listing is too old and is ignored.
/// The second of two listings waits until the first has its answers: otherwise it would find nothing to ask about,
/// and treat unknown runs as known.
async fn take(context: &Arc<CriContext>, entry: Arc<PodEntry>, starts: u64, listed: Listed) {
    let asking = Arc::clone(&entry.lock().own.asking);
    let _turn = asking.lock().await;
    let running = listed.containers.iter().filter(|c| is_running(c.state()));
    let running: HashSet<String> = running.map(|c| c.id.clone()).collect();
    let ended = noted_ends(context, &entry).await;
    let (news, lost, has_lost_sandbox, has_unknown) = {
        let mut state = entry.lock();
        if state.starting > 0 || state.starts != starts {
            return;
        }
        let had_sandbox = state.own.sandbox().is_some();
        take_sandboxes(&mut state, &listed.sandboxes);
        let (news, lost) = take_containers(&mut state, listed.containers);
        for (name, note) in ended {
            end_note::enter(context, &mut state, &name, note);
        }
        let runs = |(name, id): &(Arc<str>, Arc<str>)| {
            state.run(name, id).is_some_and(|run| run.is_running())
        };
        // Until the runtime has said whether they run, which the caller may not await: a stop would leave them out.
        let has_unknown = !news.iter().all(runs);
        state.own.unsure = has_unknown;
        (news, lost, had_sandbox && state.own.sandbox().is_none(), has_unknown)
    };
    if has_lost_sandbox {
        entry.announce();
    }
    for (name, id) in lost {
        observe::enter_lost(context, &entry, &name, &id);
    }
    let mut is_learnt = true;
    for (name, id) in news {
        let is_listed_running = running.contains(&*id);
        is_learnt &= learn(context, &entry, (name, id), is_listed_running).await;
    }
    {
        let mut state = entry.lock();
        if !is_learnt || (has_unknown && state.starts == starts) {
            state.own.unsure = !is_learnt;
        }
    }
    ask_last_exits(context, &entry).await;
    // A start that needs them asks again.
    let _ = sandbox::ask_addresses(context, &entry).await;
    forget_if_nothing(&mut context.pods.lock(), &entry);
}

/// How containers of the pod ended that an earlier agent has reclaimed. This agent knows what it reclaimed itself.
async fn noted_ends(context: &Arc<CriContext>, entry: &PodEntry) -> Vec<(String, Option<EndNote>)> {
    if context.listing.adopted.load(Ordering::Acquire) {
        return Vec::new();
    }
    let (config, uid) = (context.config.clone(), entry.uid().clone());
    // Cannot fail: none that cannot be read is an error.
    blocking(move || Ok(end_note::read(&config, &uid))).await.unwrap_or_default()
}

/// Asks the runtime about a run. Returns whether it answered.
async fn learn(
    context: &Arc<CriContext>,
    entry: &Arc<PodEntry>,
    (name, id): (Arc<str>, Arc<str>),
    is_listed_running: bool,
) -> bool {
    let noted = recall(context, entry, &name, &id);
    match observe::ask(context, entry, &id, true).await {
        Ok(seen) => {
            if is_running(seen.status.state()) {
                adopt(context, entry, (&name, &id), noted);
            }
            exits::enter(context, entry, &seen);
            if seen.stage() == observe::ContainerStage::Unknown {
                restart_unknown(entry, &name, &id);
            }
        }
        Err(error) if error.is_not_found() => observe::enter_lost(context, entry, &name, &id),
        Err(error) => {
            tracing::debug!(
                pod = %pod::title(entry), container = %name, error = error_chain(&error),
                "cannot inspect a container"
            );
            // Otherwise a stop would leave it out, and it would be killed with its sandbox.
            if is_listed_running {
                adopt(context, entry, (&name, &id), noted);
            }
            // This task asks again.
            exits::settle_apart(context, entry, &name, &id);
            return false;
        }
    }
    true
}

fn is_running(state: api::ContainerState) -> bool {
    state == api::ContainerState::ContainerRunning
}

/// Forgets a pod of which nothing is left, unless another task works on it: a stop would not know of what that
/// task is about to create. `pods` is locked, so no task can begin now.
fn forget_if_nothing(pods: &mut PodUidMap<Arc<PodEntry>>, entry: &Arc<PodEntry>) {
    let is_nothing = {
        let state = entry.lock();
        state.pod.is_none() && state.own.all.is_empty() && state.containers.is_empty()
    };
    let is_known = pods.get(entry.uid()).is_some_and(|known| Arc::ptr_eq(known, entry));
    // One reference is in `pods`, the other is the caller's.
    if is_nothing && is_known && Arc::strong_count(entry) == 2 {
        pods.remove(entry.uid());
    }
}

/// Returns what an earlier agent noted on disk about a run. One that was asked to stop with its pod, or was cut short, is so
/// from now on: whatever its exit code, it has not done its work, and the stop signal is not sent twice.
fn recall(context: &CriContext, entry: &PodEntry, name: &str, id: &str) -> NotedRun {
    let attempt = entry.lock().run(name, id).map(|run| run.attempt);
    let noted = attempt.map(|attempt| dirs::noted(&context.config, entry.uid(), name, attempt));
    let noted = noted.unwrap_or_default();
    if let Some(run) = entry.lock().run(name, id) {
        run.recall(noted);
    }
    noted
}

/// Adopts a container that ran before this agent started: it is as ready as the earlier agent found it until its probe
/// says otherwise, and a start hook that was not over is run again.
fn adopt(context: &CriContext, entry: &PodEntry, (name, id): (&str, &str), noted: NotedRun) {
    if let Some(run) = entry.lock().run(name, id)
        && run.started_at.is_none()
    {
        run.adopt(noted);
        // Until the runtime says when.
        run.started_at = Some(context.config.wall.now());
    }
}

/// Has a running container restarted whose state the runtime lost, as containerd may when it is restarted itself: its
/// exit would never be reported. The kubelet does the same. A pod that is being stopped needs nothing more.
fn restart_unknown(entry: &PodEntry, name: &str, id: &str) {
    let mut state = entry.lock();
    let is_stopping = state.stopping;
    let run = state.run(name, id).filter(|run| run.is_running() && !is_stopping);
    let Some(run) = run.filter(|run| run.probe_state.failing.is_none()) else { return };
    run.probe_state.failing = Some(EndCause::Pod);
    // The runtime learns of the exit only if it ends the container itself.
    run.own.direct = None;
    drop(state);
    entry.announce();
}

/// Asks how the runs before the newest ended, if that is not known because they ended before this agent
/// started.
async fn ask_last_exits(context: &CriContext, entry: &PodEntry) {
    let unknown: Vec<(Arc<str>, Arc<str>)> = {
        let state = entry.lock();
        let unknown = state.containers.iter().filter(|c| c.last_exit.is_none());
        unknown
            .filter_map(|c| Some((Arc::clone(&c.name), Arc::clone(&c.own.first()?.id))))
            .collect()
    };
    for (name, id) in unknown {
        // This exit is only informative.
        let Ok(seen) = observe::ask(context, entry, &id, false).await else { continue };
        if let Some(container) = entry.lock().container(&name) {
            container.last_exit = seen.exit();
        }
    }
}

pub(super) fn take_sandboxes(state: &mut PodState, listed: &[api::PodSandbox]) {
    if let Some(one) = listed.first() {
        let label = |key| one.labels.get(key).map_or("", String::as_str).into();
        state.label = (label(labels::POD_NAMESPACE), label(labels::POD_NAME));
    }
    let oldest = listed.iter().map(|s| s.created_at).min();
    state.started_at = state.started_at.or_else(|| observe::time(oldest?));
    let known = state.own.all.clone();
    let sandboxes = listed.iter().map(|sandbox| Sandbox {
        id: sandbox.id.as_str().into(),
        attempt: sandbox.metadata.as_ref().map_or(0, |m| m.attempt),
        handler: sandbox.runtime_handler.as_str().into(),
        ready: sandbox.state() == api::PodSandboxState::SandboxReady,
        stopped: known.iter().any(|one| one.stopped && *one.id == *sandbox.id),
    });
    sandbox::take(state, sandboxes.collect());
    let newest = listed.iter().max_by_key(|s| s.metadata.as_ref().map_or(0, |m| m.attempt));
    if let Some(newest) = newest {
        // The pod itself says what it requests, where it is known.
        if state.pod.is_none() && state.requests.is_none() {
            state.requests = labels::read_requests(&newest.annotations);
        }
        // From then on the pod says it. If its first sandbox fails, the newest one is that of the spec before.
        if state.spec_mark.is_none() {
            let mark = newest.annotations.get(CONFIG_SPEC_ANNOTATION);
            state.spec_mark = mark.map(|mark| mark.as_str().into());
        }
    }
}

/// Returns the runs to ask about, and those that are gone, each with its container's name.
#[allow(clippy::type_complexity, reason = "two lists of the same pairs")]
pub(super) fn take_containers(
    state: &mut PodState,
    listed: Vec<api::Container>,
) -> (Vec<(Arc<str>, Arc<str>)>, Vec<(Arc<str>, Arc<str>)>) {
    let mut by_name = HashMap::<String, Vec<(ContainerFacts, api::Container)>>::new();
    for container in listed {
        let facts = labels::read_container(&container.labels, &container.annotations);
        if let Some(facts) = facts {
            by_name.entry(facts.name.clone()).or_default().push((facts, container));
        }
    }
    let lost = state.containers.iter().filter(|c| !by_name.contains_key(&*c.name));
    let lost = lost.filter_map(|c| {
        let run = c.run.as_ref().filter(|run| run.end.is_none())?;
        Some((Arc::clone(&c.name), Arc::clone(&run.id)))
    });
    let lost = lost.collect();
    state.own.strays.clear();
    let mut found: Vec<_> = by_name.into_values().collect();
    found.sort_by_key(|runs| runs.iter().map(|(facts, _)| facts.place).min());
    let mut news = Vec::new();
    for runs in found {
        news.extend(take_runs(state, runs));
    }
    (news, lost)
}

/// Takes all runs of one container. Returns the newest if its state has to be requested.
fn take_runs(
    state: &mut PodState,
    mut runs: Vec<(ContainerFacts, api::Container)>,
) -> Option<(Arc<str>, Arc<str>)> {
    use api::ContainerState::{ContainerCreated, ContainerExited, ContainerRunning};
    let attempt = |c: &api::Container| c.metadata.as_ref().map_or(0, |m| m.attempt);
    runs.sort_by_key(|(_, c)| std::cmp::Reverse((attempt(c), c.created_at)));
    let mut runs = runs.into_iter();
    let (facts, newest) = runs.next()?;
    let mut dead = Vec::new();
    for (_, old) in runs {
        if matches!(old.state(), ContainerCreated | ContainerExited) {
            let (id, sandbox) = (old.id.as_str().into(), old.pod_sandbox_id.as_str().into());
            dead.push(Dead { id, attempt: attempt(&old), sandbox });
        } else {
            state.own.strays.push(old.id.as_str().into());
        }
    }
    state.grace = state.grace.or(facts.grace);
    if state.container(&facts.name).is_none() {
        let name = facts.name.as_str().into();
        state.containers.push(Container::new(name, facts.kind));
    }
    let is_unknown = state.pod.is_none();
    let container = state.container(&facts.name)?;
    if is_unknown {
        container.found_spec = Some(Box::new(facts.spec));
    }
    let known = container.run.as_ref().filter(|run| *run.id == *newest.id);
    if known.is_none() {
        let sandbox = &newest.pod_sandbox_id;
        let mut run = pod::created(&newest.id, attempt(&newest), sandbox, facts.backoff);
        run.image = facts.image.as_deref().map(Into::into);
        pod::begin(container, run);
    }
    container.own = dead;
    let run = container.run.as_ref().filter(|run| run.end.is_none())?;
    let is_as_known = match newest.state() {
        ContainerRunning => run.started_at.is_some() && run.own.watched,
        ContainerCreated => run.started_at.is_none(),
        _ => false,
    };
    (!is_as_known).then(|| (Arc::clone(&container.name), Arc::clone(&run.id)))
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast;

    use super::*;

    #[test]
    fn an_older_run_that_was_never_started_does_not_run_and_is_garbage() {
        use api::ContainerState::{ContainerCreated, ContainerExited, ContainerRunning};
        for (older, is_stray) in [(ContainerCreated, false), (ContainerRunning, true)] {
            let container = |attempt: u32, state: api::ContainerState| api::Container {
                id: format!("id-{attempt}"),
                metadata: Some(api::ContainerMetadata { name: "main".to_owned(), attempt }),
                labels: HashMap::from([(labels::CONTAINER_NAME.to_owned(), "main".to_owned())]),
                state: state.into(),
                ..api::Container::default()
            };
            let mut state = PodState::default();
            take_containers(&mut state, vec![container(1, ContainerExited), container(0, older)]);
            let dead: Vec<&str> = state.containers[0].own.iter().map(|dead| &*dead.id).collect();
            assert_eq!((state.any_running(), dead.contains(&"id-0")), (is_stray, !is_stray));
        }
    }

    #[test]
    fn a_sandbox_that_a_listing_finds_has_not_the_address_of_the_one_before() {
        let listed = |attempt, state: api::PodSandboxState| api::PodSandbox {
            id: format!("id-{attempt}"),
            metadata: Some(api::PodSandboxMetadata { attempt, ..Default::default() }),
            state: state.into(),
            ..api::PodSandbox::default()
        };
        let dead = listed(0, api::PodSandboxState::SandboxNotready);
        let ready = |attempt| listed(attempt, api::PodSandboxState::SandboxReady);
        let mut state = PodState::default();
        take_sandboxes(&mut state, &[ready(0)]);
        state.ips = vec!["10.88.0.2".to_owned()];
        take_sandboxes(&mut state, std::slice::from_ref(&dead));
        assert_eq!(state.ips, ["10.88.0.2"], "there is no other");
        take_sandboxes(&mut state, &[dead, ready(1)]);
        assert_eq!(state.ips, Vec::<String>::new());
    }

    #[test]
    fn a_pod_that_another_task_works_on_is_not_forgotten() {
        let uid = PodUid::new("uid-web");
        let entry = Arc::new(PodEntry::new(uid.clone(), broadcast::Sender::new(1)));
        let mut pods = PodUidMap::default();
        pods.insert(uid, Arc::clone(&entry));
        let of_a_sync = Arc::clone(&entry);
        forget_if_nothing(&mut pods, &entry);
        assert_eq!(pods.len(), 1);
        drop(of_a_sync);
        forget_if_nothing(&mut pods, &entry);
        assert_eq!(pods.len(), 0);
    }
}
