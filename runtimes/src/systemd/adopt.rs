//! Takes over running containers: the service manager knows what runs, and the records describe it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use winddown_shared::{ContainerKind, RuntimeError, error_chain};
use winddown_shim::record::{self, AttemptRecord, ExitRecord};

use super::attempt::{Attempt, UNIT, UnitRecord};
use super::names::{self, Role};
use super::units::{ServiceUnits, UnitView};
use super::{Context, end};
use crate::programs::adopt::{self, FoundPod};
use crate::programs::config::ProcessConfig;
use crate::programs::open::OpenError;
use crate::programs::pod::{self, Container, PodEntry, Run};
use crate::programs::{caused, exits, paths};

/// How long recording containers that exited while no agent ran may delay the agent's start.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct FoundAttempt {
    attempt: Attempt,
    record: AttemptRecord,
    unit: UnitRecord,
    exit: Option<ExitRecord>,
    asked: bool,
}

/// Reads the records of all pods on disk. Blocks.
///
/// # Errors
/// A directory cannot be read.
pub(crate) fn find(config: &ProcessConfig) -> Result<Vec<FoundPod<FoundAttempt>>, OpenError> {
    adopt::find(config, |uid, name, number| {
        let attempt = Attempt::new(config, uid, name, number);
        let records = record::read(&attempt.dir.join(UNIT))
            .zip(record::read(&attempt.dir.join(record::ATTEMPT)));
        let Some((unit, record)) = records else {
            // The agent died before the attempt was complete: no unit was requested.
            attempt.withdraw();
            return Ok(None);
        };
        let exit = record::read(&attempt.dir.join(record::EXIT));
        let asked = paths::asked(&attempt.dir).exists();
        Ok(Some(FoundAttempt { attempt, record, unit, exit, asked }))
    })
}

/// Creates pods from what was found on disk and what is `listed`, and watches those that run. Stops hooks, and log
/// writers that no container uses.
pub(crate) async fn adopt<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    found: Vec<FoundPod<FoundAttempt>>,
    listed: Vec<(String, UnitView)>,
) -> Result<(), OpenError> {
    let mut listed: HashMap<String, UnitView> = listed.into_iter().collect();
    let mut ended = Vec::new();
    for pod in found {
        let mut loaded = Vec::new();
        let entry = adopt::enter(context, pod, |_, one| {
            let view = listed.remove(&one.attempt.unit);
            let run = resume(context, &one, view.is_some());
            match (&run, view) {
                (None, _) => one.attempt.withdraw(),
                (Some(_), Some(view)) => loaded.push((one.attempt, view)),
                (Some(_), None) => {}
            }
            Ok(run)
        })?;
        for (attempt, view) in loaded {
            listed.remove(&attempt.log_unit);
            ended.extend(follow(context, &entry, attempt, view));
        }
    }
    for (attempt, view) in unrecorded(context, &mut listed) {
        tracing::warn!(
            unit = attempt.unit,
            "a container of which there is no record: only its UID is known"
        );
        let entry = context.pods.get_or_new(&attempt.uid);
        enter_unrecorded(context, &entry, &attempt);
        ended.extend(follow(context, &entry, attempt, view));
    }
    // Hooks, and log writers without a container.
    for unit in listed.keys().filter(|unit| names::parse(unit).is_some()) {
        if let Err(error) = context.driver.units.stop(unit).await {
            tracing::warn!(
                unit,
                error = error_chain(&error),
                "a unit without a container keeps running"
            );
        }
    }
    // Containers that exited while no agent ran are recorded before the runtime is used.
    let _ = timeout(PATIENCE, join_all(ended)).await;
    Ok(())
}

/// Removes the containers and their log writers from `listed`, and returns the containers.
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

/// Adds the pod's units that the agent does not know. They exist only after a start that was not answered.
///
/// # Errors
/// The service manager does not answer, so it is unknown what runs.
pub(crate) async fn look_again<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    entry: &Arc<PodEntry>,
) -> Result<(), RuntimeError> {
    if !context.driver.is_unsure(entry.uid()) {
        return Ok(());
    }
    let listed =
        context.driver.units.list(&names::of_pod(entry.uid())).await.map_err(|error| {
            caused(format!("what runs of pod {} is not known", entry.uid()), error)
        })?;
    for (unit, view) in listed {
        let Some(named) = names::parse(&unit).filter(|named| named.uid == *entry.uid()) else {
            continue;
        };
        let Role::Main(number) = named.role else { continue };
        let is_known = {
            let mut state = entry.lock();
            state.attempt(&named.container, number).is_some()
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
    context.driver.sure(entry.uid());
    Ok(())
}

/// Returns the attempt as a run; none if it never ran.
fn resume<U>(context: &Context<U>, one: &FoundAttempt, is_loaded: bool) -> Option<Run> {
    let is_of_earlier_boot = one.unit.boot_id != context.boot_id;
    // At most requested, and not loaded: it never ran. The note of a start reaches the disk later, so an attempt of an
    // earlier boot may have run.
    if !is_loaded && one.exit.is_none() && !one.unit.started && !is_of_earlier_boot {
        return None;
    }
    let mut run = run_of(&one.record, &one.attempt, one.asked);
    run.own.is_of_earlier_boot = is_of_earlier_boot;
    run.own.survives = one.unit.survives;
    if !is_loaded {
        exits::enter_past(&context.config, &mut run, one.exit.clone(), one.asked);
    }
    Some(run)
}

/// Returns an adopted run that still runs.
fn run_of(record: &AttemptRecord, attempt: &Attempt, asked: bool) -> Run {
    let id = (&attempt.uid, &*attempt.container, attempt.number);
    let mut run = pod::run(id, record.created_at, Duration::from_millis(record.backoff_ms));
    run.adopt(asked);
    run
}

/// Adds a run that may have no record.
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
            let name = Arc::clone(&attempt.container);
            state.containers.push(Container::new(name, ContainerKind::Regular));
        }
    }
    let asked = paths::asked(&attempt.dir).exists();
    pod::enter(entry, &attempt.container, run_of(&record, attempt, asked));
}

/// Watches a run. If it has ended, returns a future that resolves when the end is recorded.
fn follow<'a, U: ServiceUnits>(
    context: &'a Arc<Context<U>>,
    entry: &Arc<PodEntry>,
    attempt: Attempt,
    view: UnitView,
) -> Option<impl Future<Output = ()> + use<'a, U>> {
    let watched = context.driver.unit_cache.expect(&attempt.unit);
    let has_ended = view.phase.has_ended();
    context.driver.unit_cache.see(&attempt.unit, view);
    let name = Arc::clone(&attempt.container);
    let id = pod::id((&attempt.uid, &name, attempt.number));
    end::watch(context, entry, attempt, watched);
    let entry = Arc::clone(entry);
    has_ended.then_some(async move { winddown_engine::pod::ended(&entry, &name, &id).await })
}
