//! Takes over running containers: the service manager knows what runs, and the records describe it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use winddown_engine::disk_notes::NotedRun;
use winddown_shared::{ContainerKind, RuntimeError, error_chain};
use winddown_shim::record::{self, AttemptRecord, ExitRecord};

use super::attempt::{UNIT, UnitAttempt, UnitRecord};
use super::names::{self, UnitRole};
use super::units::{ServiceUnits, UnitView};
use super::{Context, end};
use crate::programs::adopt::{self, FoundProgramPod};
use crate::programs::config::ProcessConfig;
use crate::programs::open::OpenError;
use crate::programs::pod::{self, Container, PodEntry, Run};
use crate::programs::{caused, exits, paths, pod_record};

/// How long recording containers that exited while no agent ran may delay the agent's start.
const RECORD_EXITS_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct FoundAttempt {
    attempt: UnitAttempt,
    record: AttemptRecord,
    unit: UnitRecord,
    exit: Option<ExitRecord>,
    noted: NotedRun,
}

/// Reads the records of all pods on disk. Blocks.
pub(crate) fn find(
    config: &ProcessConfig,
) -> Result<Vec<FoundProgramPod<FoundAttempt>>, OpenError> {
    adopt::find(config, [], |uid, name, number| {
        let attempt = UnitAttempt::new(config, uid, name, number);
        let unusable = |source| OpenError::Unusable { path: attempt.dir.clone(), source };
        let path = attempt.dir.join(UNIT);
        let unit: Option<UnitRecord> = record::try_read(&path).map_err(unusable)?;
        let record: Option<AttemptRecord> =
            record::try_read(&attempt.dir.join(record::ATTEMPT)).map_err(unusable)?;
        // The note of the start replaced it, and a power cut may have emptied that.
        let emptied = record.as_ref().filter(|_| path.exists()).map(|record| UnitRecord {
            boot_id: record.boot_id.clone(),
            started: false,
            survives: false,
        });
        let Some((unit, record)) = unit.or(emptied).zip(record) else {
            // The agent died before the attempt was complete: no unit was requested.
            attempt.withdraw();
            return Ok(None);
        };
        let exit = record::try_read(&attempt.dir.join(record::EXIT)).map_err(unusable)?;
        let noted = paths::noted(&attempt.dir);
        Ok(Some(FoundAttempt { attempt, record, unit, exit, noted }))
    })
}

/// Creates pods from what was found on disk and what is `listed`, and watches those that run. Stops hooks, and log
/// writers that no container uses.
pub(crate) async fn adopt<U: ServiceUnits>(
    context: &Arc<Context<U>>,
    found: Vec<FoundProgramPod<FoundAttempt>>,
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
        let entry = context.pods.get(&attempt.uid).unwrap_or_else(|| {
            let entry = context.pods.get_or_new(&attempt.uid);
            let mut state = entry.lock();
            state.grace = view.stop_timeout;
            adopt::know(&mut state, pod_record::find(&context.config, &attempt.uid));
            drop(state);
            entry
        });
        if !enter_unrecorded(context, &entry, &attempt) {
            listed.insert(attempt.unit, view);
            continue;
        }
        tracing::warn!(unit = attempt.unit, "found a container without a record");
        ended.extend(follow(context, &entry, attempt, view));
    }
    // Hooks, log writers without a container, and old runs that systemd could not be asked to forget.
    for unit in listed.keys().filter(|unit| names::parse(unit).is_some()) {
        if let Err(error) = context.driver.units.stop(unit).await {
            tracing::warn!(
                unit,
                error = error_chain(&error),
                "a unit without a container keeps running"
            );
        } else {
            let _ = context.driver.units.forget_failure(unit).await;
        }
    }
    // Containers that exited while no agent ran are recorded before the runtime is used.
    let _ = timeout(RECORD_EXITS_TIMEOUT, join_all(ended)).await;
    Ok(())
}

/// Removes the containers and their log writers from `listed`, and returns the containers.
fn unrecorded<U>(
    context: &Context<U>,
    listed: &mut HashMap<String, UnitView>,
) -> Vec<(UnitAttempt, UnitView)> {
    let attempt = |unit: &String| {
        let named = names::parse(unit)?;
        let UnitRole::Main(number) = named.role else { return None };
        Some(UnitAttempt::new(&context.config, &named.uid, &named.container.into(), number))
    };
    let attempts: Vec<UnitAttempt> = listed.keys().filter_map(attempt).collect();
    let take = |attempt: UnitAttempt| {
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
    let listed = context.driver.units.list(&names::of_pod(entry.uid())).await.map_err(|error| {
        caused(format!("the running containers of pod {} are unknown", entry.uid()), error)
    })?;
    for (unit, view) in listed {
        let Some(named) = names::parse(&unit).filter(|named| named.uid == *entry.uid()) else {
            continue;
        };
        let UnitRole::Main(number) = named.role else { continue };
        let attempt =
            UnitAttempt::new(&context.config, entry.uid(), &named.container.into(), number);
        if enter_unrecorded(context, entry, &attempt)
            && let Some(ended) = follow(context, entry, attempt, view)
        {
            ended.await;
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
    let mut run = run_of(&one.record, &one.attempt, one.noted);
    run.own.is_of_earlier_boot = is_of_earlier_boot;
    run.own.survives = one.unit.survives;
    if !is_loaded {
        exits::enter_past(&context.config, &mut run, one.exit.clone());
    }
    Some(run)
}

/// Returns an adopted run that still runs.
fn run_of(record: &AttemptRecord, attempt: &UnitAttempt, noted: NotedRun) -> Run {
    let id = (&attempt.uid, &*attempt.container, attempt.number);
    pod::adopted(id, (record.created_at, Duration::from_millis(record.backoff_ms)), noted)
}

/// Adds a run that may have no record. Returns false if it or a newer one of its container is known.
fn enter_unrecorded<U>(context: &Context<U>, entry: &PodEntry, attempt: &UnitAttempt) -> bool {
    {
        let mut state = entry.lock();
        let container = state.container(&attempt.container);
        let newest = container.as_ref().and_then(|container| container.run.as_ref());
        if newest.is_some_and(|run| run.attempt >= attempt.number) {
            return false;
        }
        if container.is_none() {
            let name = Arc::clone(&attempt.container);
            state.containers.push(Container::new(name, ContainerKind::Regular));
        }
    }
    let record =
        record::read(&attempt.dir.join(record::ATTEMPT)).unwrap_or_else(|| AttemptRecord {
            created_at: context.config.wall.now(),
            backoff_ms: 0,
            log: std::path::PathBuf::new(),
            boot_id: context.boot_id.clone(),
            cgroups: Vec::new(),
        });
    let run = run_of(&record, attempt, paths::noted(&attempt.dir));
    pod::enter(entry, &attempt.container, run);
    true
}

/// Watches a run. If it has ended, returns a future that resolves when the end is recorded.
fn follow<'a, U: ServiceUnits>(
    context: &'a Arc<Context<U>>,
    entry: &Arc<PodEntry>,
    attempt: UnitAttempt,
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use winddown_shared::{PodUid, WallClock, WallTime};

    use super::*;
    use crate::process::cgroup::Unenforced;
    use crate::programs::config::ShimCommand;
    use crate::systemd::Services;

    fn config(dir: &Path) -> ProcessConfig {
        let (shim, wall) = (ShimCommand::new("/none", []), WallClock::new(WallTime::default));
        ProcessConfig::new(dir, dir.join("logs"), shim, wall)
    }

    #[tokio::test]
    async fn a_unit_of_an_old_run_without_a_record_does_not_replace_the_newest_run() {
        let dir = tempfile::tempdir().unwrap();
        let alive = tokio::sync::watch::channel(()).1;
        let services = Services::new((), Unenforced::default(), String::new(), None);
        let context = Context::new(config(dir.path()), String::new(), alive, services);
        let entry = context.pods.get_or_new(&PodUid::new("u"));
        let attempt =
            |number| UnitAttempt::new(&context.config, entry.uid(), &"main".into(), number);
        assert!(enter_unrecorded(&context, &entry, &attempt(7)));
        assert!(!enter_unrecorded(&context, &entry, &attempt(3)));
        assert!(entry.lock().attempt("main", 7).is_some());
    }

    #[test]
    fn a_record_that_cannot_be_read_does_not_count_as_missing() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let attempt = paths::pods(&config).join("u/main/0");
        std::fs::create_dir_all(attempt.join(UNIT)).unwrap();
        assert!(matches!(find(&config), Err(OpenError::Unusable { path, .. }) if path == attempt));
        assert!(attempt.exists());
        std::fs::remove_dir(attempt.join(UNIT)).unwrap();
        assert_eq!(find(&config).unwrap()[0].containers[0].1.len(), 0);
        assert!(!attempt.exists(), "its unit was never requested");
    }

    /// The note of the start replaces the durable record, and reaches the disk later than its name.
    #[tokio::test]
    async fn an_attempt_whose_record_the_power_cut_emptied_may_have_run() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let attempt = UnitAttempt::new(&config, &PodUid::new("u"), &"main".into(), 0);
        std::fs::create_dir_all(&attempt.dir).unwrap();
        std::fs::write(attempt.dir.join(UNIT), "").unwrap();
        record::write(&attempt.dir.join(record::ATTEMPT), &begun("before"), false).unwrap();
        let found = find(&config).unwrap();
        let alive = tokio::sync::watch::channel(()).1;
        for (boot, is_run) in [("before", false), ("now", true)] {
            let services = Services::new((), Unenforced::default(), String::new(), None);
            let context = Context::new(config.clone(), boot.to_owned(), alive.clone(), services);
            let run = resume(&context, &found[0].containers[0].1[0], false);
            assert_eq!(run.is_some(), is_run, "{boot}");
        }
    }

    fn begun(boot_id: &str) -> AttemptRecord {
        AttemptRecord {
            created_at: WallTime::default(),
            backoff_ms: 0,
            log: "log".into(),
            boot_id: boot_id.to_owned(),
            cgroups: Vec::new(),
        }
    }

    #[test]
    fn an_exit_that_cannot_be_read_does_not_count_as_missing() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let attempt = UnitAttempt::new(&config, &PodUid::new("u"), &"main".into(), 0);
        std::fs::create_dir_all(attempt.dir.join(record::EXIT)).unwrap();
        attempt.note_started("boot").unwrap();
        record::write(&attempt.dir.join(record::ATTEMPT), &begun("boot"), false).unwrap();
        let found = find(&config);
        assert!(matches!(found, Err(OpenError::Unusable { path, .. }) if path == attempt.dir));
    }
}
