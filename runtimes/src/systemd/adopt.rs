//! Takes over what runs already: what the service manager says counts, and the records say what it was.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout};
use winddown_engine::probing::ProbeState;
use winddown_shared::{PodUid, RuntimeError, error_chain};
use winddown_shim::record::{self, AttemptRecord, ExitRecord};

use super::attempt::{Attempt, UNIT, UnitRecord};
use super::names::{self, Role};
use super::units::{ServiceUnits, UnitView};
use super::{Context, end};
use crate::process::{caused, watcher};
use crate::programs::pod::{self, Container, End, PodEntry, Run, kind_of};
use crate::programs::{config::ProcessConfig, paths, pod_record, stop_marker};

/// How long the ends of containers that ended meanwhile may hold up the agent's start.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was found on disk of one pod.
#[derive(Debug)]
pub(crate) struct FoundPod {
    pub(crate) uid: PodUid,
    known: pod_record::Found,
    /// Of each container, its attempts in ascending order.
    containers: Vec<(Arc<str>, Vec<FoundAttempt>)>,
}

#[derive(Debug)]
struct FoundAttempt {
    attempt: Attempt,
    record: AttemptRecord,
    unit: UnitRecord,
    exit: Option<ExitRecord>,
    asked: bool,
}

/// All pods on disk. Blocks.
pub(crate) fn find(config: &ProcessConfig) -> std::io::Result<Vec<FoundPod>> {
    let dirs = std::fs::read_dir(paths::pods(config))?.flatten().map(|entry| entry.path());
    Ok(dirs.filter(|path| path.is_dir()).filter_map(|dir| find_pod(config, &dir)).collect())
}

fn find_pod(config: &ProcessConfig, dir: &Path) -> Option<FoundPod> {
    let uid = PodUid::new(dir.file_name()?.to_str()?);
    let entries = std::fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
    let mut containers: Vec<(Arc<str>, Vec<FoundAttempt>)> = entries
        .filter(|path| path.is_dir())
        .filter_map(|path| find_container(config, &uid, &path))
        .collect();
    containers.sort_by(|a, b| a.0.cmp(&b.0));
    let known = pod_record::find(config, &uid);
    Some(FoundPod { uid, known, containers })
}

fn find_container(
    config: &ProcessConfig,
    uid: &PodUid,
    dir: &Path,
) -> Option<(Arc<str>, Vec<FoundAttempt>)> {
    let name: Arc<str> = dir.file_name()?.to_str()?.into();
    let entries = std::fs::read_dir(dir).ok()?.flatten();
    let mut numbers: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    let attempts = numbers.into_iter().filter_map(|number| {
        let attempt = Attempt::new(config, uid, &name, number);
        let records = record::read(&attempt.dir.join(UNIT))
            .zip(record::read(&attempt.dir.join(record::ATTEMPT)));
        let Some((unit, record)) = records else {
            // The agent died before it was complete: nothing was asked for.
            attempt.withdraw();
            return None;
        };
        let exit = record::read(&attempt.dir.join(record::EXIT));
        let asked = stop_marker::was_asked(&attempt.dir);
        Some(FoundAttempt { attempt, record, unit, exit, asked })
    });
    let attempts = attempts.collect();
    Some((name, attempts))
}

/// Makes pods of what is on disk and of what is `listed`, and watches what runs. Ends hooks and
/// writers of logs that no container uses.
pub(crate) async fn adopt<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    found: Vec<FoundPod>,
    listed: Vec<(String, UnitView)>,
) -> HashMap<PodUid, Arc<PodEntry>> {
    let mut listed: HashMap<String, UnitView> = listed.into_iter().collect();
    let mut pods = HashMap::with_capacity(found.len());
    let mut ended = Vec::new();
    for pod in found {
        let entry = Arc::new(PodEntry::new(pod.uid.clone(), context.changes.clone()));
        for (attempt, view) in resume(context, &entry, pod, &mut listed) {
            listed.remove(&attempt.log_unit);
            ended.extend(follow(context, &entry, attempt, view));
        }
        pods.insert(entry.uid().clone(), entry);
    }
    for (attempt, view) in unrecorded(context, &mut listed) {
        tracing::warn!(
            unit = attempt.unit,
            "a container of which there is no record: only its UID is known"
        );
        let entry = pods.entry(attempt.uid.clone()).or_insert_with(|| {
            Arc::new(PodEntry::new(attempt.uid.clone(), context.changes.clone()))
        });
        enter_unrecorded(context, entry, &attempt);
        ended.extend(follow(context, entry, attempt, view));
    }
    // Hooks, and log writers without a container.
    for unit in listed.keys().filter(|unit| names::parse(unit).is_some()) {
        if let Err(error) = context.units.stop(unit).await {
            tracing::warn!(
                unit,
                error = error_chain(&error),
                "a unit without a container keeps running"
            );
        }
    }
    // Those that ended while no agent ran are entered before anyone asks.
    let _ = timeout(PATIENCE, join_all(ended)).await;
    pods
}

/// Takes the containers, and the writers of their logs, out of what is listed.
fn unrecorded<U>(
    context: &Context<U>,
    listed: &mut HashMap<String, UnitView>,
) -> Vec<(Attempt, UnitView)> {
    let attempt = |unit: &String| {
        let named = names::parse(unit)?;
        let Role::Main(number) = named.role else { return None };
        Some(Attempt::new(&context.config, &named.uid, &named.container.into(), number))
    };
    let attempts: Vec<Attempt> = listed.keys().filter_map(attempt).collect();
    let take = |attempt: Attempt| {
        listed.remove(&attempt.log_unit);
        listed.remove(&attempt.unit).map(|view| (attempt, view))
    };
    attempts.into_iter().filter_map(take).collect()
}

/// Enters what the service manager runs of a pod and nobody knows of. Only after a start that was not
/// answered; otherwise there is no such thing.
///
/// # Errors
/// The service manager does not answer, so what runs is not known.
pub(crate) async fn look_again<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    entry: &Arc<PodEntry>,
) -> Result<(), RuntimeError> {
    if !context.is_unsure(entry.uid()) {
        return Ok(());
    }
    let listed =
        context.units.list(&names::of_pod(entry.uid())).await.map_err(|error| {
            caused(format!("what runs of pod {} is not known", entry.uid()), error)
        })?;
    for (unit, view) in listed {
        let Some(named) = names::parse(&unit).filter(|named| named.uid == *entry.uid()) else {
            continue;
        };
        let Role::Main(number) = named.role else { continue };
        let is_known = {
            let mut state = entry.lock();
            state.run(&named.container, number).is_some()
        };
        if !is_known {
            let container: Arc<str> = named.container.into();
            let attempt = Attempt::new(&context.config, entry.uid(), &container, number);
            enter_unrecorded(context, entry, &attempt);
            if let Some(ended) = follow(context, entry, attempt, view) {
                ended.await;
            }
        }
    }
    context.sure(entry.uid());
    Ok(())
}

/// Enters a pod's attempts. Returns those whose units are loaded.
fn resume<U>(
    context: &Context<U>,
    entry: &PodEntry,
    found: FoundPod,
    listed: &mut HashMap<String, UnitView>,
) -> Vec<(Attempt, UnitView)> {
    let mut loaded = Vec::new();
    let mut state = entry.lock();
    for (name, attempts) in found.containers {
        let kind = kind_of(found.known.pod.as_ref(), &name);
        let mut container = Container::new(name, kind);
        for one in attempts {
            let view = listed.remove(&one.attempt.unit);
            let is_of_earlier_boot = one.unit.boot_id != context.boot_id;
            if view.is_none() && one.exit.is_none() && !one.unit.started && !is_of_earlier_boot {
                // Asked for at most, and not there: it never ran. That it was started is not on disk
                // at once, so of an earlier boot it may have.
                one.attempt.withdraw();
                continue;
            }
            let mut run = run_of(&one.record, one.attempt.number, one.asked);
            run.is_of_earlier_boot = is_of_earlier_boot;
            match view {
                Some(view) => loaded.push((one.attempt, view)),
                None => run.end = Some(past(context, &one)),
            }
            container.last_exit = container.run.take().and_then(|old| old.end).map(|e| e.exit);
            container.run = Some(run);
        }
        state.containers.push(container);
    }
    state.started_at = found.known.started_at;
    if let Some(pod) = &found.known.pod {
        state.take_pod(pod);
    }
    loaded
}

/// An adopted run that goes on.
fn run_of(record: &AttemptRecord, attempt: u32, asked: bool) -> Run {
    Run {
        attempt,
        started_at: record.created_at,
        backoff: Duration::from_millis(record.backoff_ms),
        supervisor: None,
        main: None,
        cgroups: Vec::new(),
        probe_state: ProbeState::ADOPTED,
        is_of_earlier_boot: false,
        ending: false,
        // When exactly is not known any more, but it was: it is not asked twice.
        signalled_at: asked.then(Instant::now),
        forced: false,
        end: None,
    }
}

/// The end of a run whose unit is gone. The wall clock may have jumped: it waits no longer than its
/// back-off from now. A restart of the machine is not a crash of the container.
fn past<U>(context: &Context<U>, one: &FoundAttempt) -> End {
    let (config, now) = (&context.config, context.config.wall.now());
    let ran = Duration::from_millis(one.exit.as_ref().map_or(0, |exit| exit.ran_ms));
    let since = one.exit.as_ref().map_or(Duration::ZERO, |exit| {
        Duration::try_from(now.duration_since(exit.finished_at)).unwrap_or_default()
    });
    let exit = match &one.exit {
        Some(exit) => watcher::recorded_exit(exit.clone()),
        None => watcher::unknown_exit(Some(one.record.created_at), now),
    };
    let is_due = one.asked || one.unit.boot_id != context.boot_id;
    let backoff = config.backoff.after(Duration::from_millis(one.record.backoff_ms), ran);
    let wait = if is_due { Duration::ZERO } else { backoff.saturating_sub(since) };
    End { exit, ran, asked: one.asked, restart_at: Instant::now() + wait }
}

/// Enters a run of which there may be no record.
fn enter_unrecorded<U>(context: &Context<U>, entry: &PodEntry, attempt: &Attempt) {
    let record =
        record::read(&attempt.dir.join(record::ATTEMPT)).unwrap_or_else(|| AttemptRecord {
            created_at: context.config.wall.now(),
            backoff_ms: 0,
            log: std::path::PathBuf::new(),
            boot_id: context.boot_id.clone(),
            cgroups: Vec::new(),
        });
    {
        let mut state = entry.lock();
        if state.container(&attempt.container).is_none() {
            let kind = kind_of(state.pod.as_ref(), &attempt.container);
            state.containers.push(Container::new(Arc::clone(&attempt.container), kind));
        }
    }
    let asked = stop_marker::was_asked(&attempt.dir);
    super::start::enter(entry, &attempt.container, run_of(&record, attempt.number, asked));
}

/// Watches a run. Returns what resolves when one that has ended is entered.
fn follow<'a, U: ServiceUnits>(
    context: &'a Arc<Context<U>>,
    entry: &Arc<PodEntry>,
    attempt: Attempt,
    view: UnitView,
) -> Option<impl Future<Output = ()> + use<'a, U>> {
    let watched = context.unit_cache.expect(&attempt.unit);
    let has_ended = view.phase.has_ended();
    context.unit_cache.see(&attempt.unit, view);
    let (name, number) = (Arc::clone(&attempt.container), attempt.number);
    end::watch(context, entry, attempt, watched);
    let entry = Arc::clone(entry);
    has_ended.then_some(async move { pod::ended(&entry, &name, number).await })
}
