//! Carries out the plan for a pod's containers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1 as k8s;
use tokio::time::Instant;
use winddown_shared::{EndCause, Grace, Pod, PodEventKind, RuntimeError, error_chain};

use crate::action::Action;
use crate::container_plan::{ContainerObservation, ContainerRule, SpecContainer};
use crate::disk_notes::RunNote;
use crate::driver::{Driver, Entry, act};
use crate::last_line::last_line;
use crate::pod::{self, RunScope as _, StartInProgress};
use crate::{container_plan, exit_report, log_links, prober, stopping};

/// How long a postStart hook may take. The kubelet sets no limit; the hook also ends with the container and with a stop
/// of its pod.
const LONGEST_HOOK: Duration = Duration::from_secs(3600);
/// How many containers of a pod are started at a time: each start has a task, and requests to the runtime.
const MAX_CONCURRENT_STARTS: usize = 10;

/// Runs one pass: starts containers until nothing more can be started without waiting. Returns when the next pass is
/// due.
///
/// # Errors
/// A container cannot be started for a reason that its status does not show, or it is unknown whether it was started.
pub async fn pass<D: Driver>(
    driver: &Arc<D>,
    entry: &Entry<D>,
    pod: &Pod,
) -> Result<Option<Duration>, RuntimeError> {
    driver.termination_notices().refresh(entry);
    let rules = D::RunScope::rules(pod);
    for rule in &rules {
        take_over(driver, entry, pod, &rule.name).await?;
    }
    let mut tried = vec![false; rules.len()];
    loop {
        let now = Instant::now();
        let seen = entry.lock().seen(&rules, now);
        let next = container_plan::plan(&rules, &seen);
        exit_report::of_exits(driver, entry, &rules);
        if !next.done {
            tell_back_offs(driver, entry, &rules, &seen);
        }
        for &i in &next.stop {
            end_failing(driver, entry, pod, &rules[i].name);
        }
        let mut again_in = next.again_in;
        let mut sooner = |wait: Duration| again_in = Some(again_in.map_or(wait, |w| w.min(wait)));
        let mut fresh = Vec::new();
        for &i in &next.start {
            match entry.lock().trouble_until(i, now) {
                Some(wait) => sooner(wait),
                // A container that ended again within this pass gets its turn in the next.
                None if tried[i] => sooner(Duration::ZERO),
                None => fresh.push(i),
            }
        }
        if fresh.is_empty() {
            return Ok(again_in);
        }
        for &i in &fresh {
            tried[i] = true;
        }
        if !driver.make_room(entry, pod).await? {
            return Ok(None);
        }
        // As with the kubelet, the next container starts when the hook of the one before is done.
        let waits = fresh.iter().any(|&i| post_start_hook(pod, &rules[i].name).is_some());
        let at_once = if waits { 1 } else { MAX_CONCURRENT_STARTS };
        let starts: Vec<_> =
            fresh.iter().map(|&i| start(driver, entry, pod, &rules[i].name)).collect();
        // All are awaited even if one fails: containers must not affect each other.
        let started = stream::iter(starts).buffered(at_once).collect::<Vec<_>>().await;
        started.into_iter().collect::<Result<(), RuntimeError>>()?;
    }
}

/// Begins the probes of an adopted container, which has none yet, and runs the postStart hook that an earlier agent did not
/// see end.
async fn take_over<D: Driver>(
    driver: &Arc<D>,
    entry: &Entry<D>,
    pod: &Pod,
    name: &Arc<str>,
) -> Result<(), RuntimeError> {
    let is_adopted = entry.lock().container(name).is_some_and(|c| c.is_adopted());
    if is_adopted {
        // An earlier agent may have made none.
        let id = entry.lock().running_id(name);
        if let Some(id) = id {
            log_links::make(&**driver, entry, (name, &id)).await;
        }
        prober::begin(driver, entry, pod, name, true);
    }
    let left = entry.lock().container(name).and_then(|c| c.take_left_hook());
    let Some(id) = left else { return Ok(()) };
    let work = {
        let (driver, entry) = (Arc::clone(driver), Arc::clone(entry));
        let (pod, name) = (pod.clone(), Arc::clone(name));
        async move {
            begin_run(&driver, &entry, &pod, (&name, &id)).await;
            Ok(())
        }
    };
    in_background(pod, name, work).await
}

/// Starts the next attempt of a container, its postStart hook and its probes.
///
/// Dropping the future does not cancel the start: it continues, is counted, and a stop waits for it.
async fn start<D: Driver>(
    driver: &Arc<D>,
    entry: &Entry<D>,
    pod: &Pod,
    name: &Arc<str>,
) -> Result<(), RuntimeError> {
    let Some(starting) = StartInProgress::begin(entry) else { return Ok(()) };
    let work = {
        let (driver, entry) = (Arc::clone(driver), Arc::clone(entry));
        let (pod, name) = (pod.clone(), Arc::clone(name));
        async move {
            // After this a stop sees the container, so its hook need not delay the stop.
            if let Some(id) = driver.start(starting, &pod, &name).await? {
                driver.pods().record_event(&entry, Some(&name), PodEventKind::Started);
                log_links::make(&*driver, &entry, (&name, &id)).await;
                begin_run(&driver, &entry, &pod, (&name, &id)).await;
            }
            Ok(())
        }
    };
    in_background(pod, name, work).await
}

/// Carries out a part of the start of a container. Dropping the future does not cancel it.
///
/// Not an `async fn`: that would store the work a second time, and every future around it once more.
fn in_background(
    pod: &Pod,
    name: &str,
    work: impl Future<Output = Result<(), RuntimeError>> + Send + 'static,
) -> impl Future<Output = Result<(), RuntimeError>> {
    let working = tokio::spawn(work);
    let what = move || format!("starting container {name} of pod {}", pod.pod_ref());
    let failed = move |error| RuntimeError::Failed { what: what(), source: Some(Arc::new(error)) };
    async move { working.await.unwrap_or_else(|error| Err(failed(error))) }
}

/// Runs the postStart hook of a run, and its probes from then on.
async fn begin_run<D: Driver>(
    driver: &Arc<D>,
    entry: &Entry<D>,
    pod: &Pod,
    (name, id): (&Arc<str>, &str),
) {
    let well = post_start(driver, entry, pod, (name, id)).await;
    prober::begin(driver, entry, pod, name, well);
}

/// The container of this name, and its postStart hook, if it has one.
fn post_start_hook<'a>(
    pod: &'a Pod,
    name: &str,
) -> Option<(SpecContainer<'a>, k8s::LifecycleHandler)> {
    let found = container_plan::find(pod, name)?;
    let hook = found.container.lifecycle.as_ref()?.post_start.clone()?;
    Some((found, hook))
}

/// Runs the postStart hook, if any. Returns whether it did not fail.
async fn post_start<D: Driver>(
    driver: &Arc<D>,
    entry: &Entry<D>,
    pod: &Pod,
    (name, id): (&str, &str),
) -> bool {
    let Some((found, hook)) = post_start_hook(pod, name) else { return true };
    let Some(action) = Action::of_handler(&hook, &found.container) else { return true };
    let attempt = entry.lock().run(name, id).map(|run| run.attempt);
    let note = |holds| {
        if let Some(attempt) = attempt {
            driver.note(entry, (name, attempt), RunNote::Hook, holds);
        }
    };
    // An agent that is killed leaves the hook to the next one, as hooks may run more than once.
    note(true);
    // Boxed: few containers have a hook, and every start would have room for one.
    let acted = Box::pin(act(driver, entry, (name, id), &action, LONGEST_HOOK));
    let well = tokio::select! {
        outcome = acted => {
            if let Err(error) = &outcome {
                tracing::warn!(pod = %pod.pod_ref(), container = %name, error = error_chain(error), "the postStart hook failed");
                if let Some(run) = entry.lock().run(name, id) {
                    run.probe_state.output = last_line(&error.output());
                }
                driver.pods().record_event(entry, Some(name), PodEventKind::PostStartFailed);
            }
            outcome.is_ok()
        }
        () = pod::ended(entry, name, id) => true,
        () = pod::stopping(entry) => true,
    };
    note(false);
    well
}

/// Reports, once for each run, that its container waits for the restart backoff.
fn tell_back_offs<D: Driver>(
    driver: &Arc<D>,
    entry: &Entry<D>,
    rules: &[ContainerRule],
    seen: &[ContainerObservation],
) {
    let waiting = rules.iter().zip(seen).filter(|(rule, seen)| match seen {
        ContainerObservation::Ended { exit_code, wait } => {
            rule.restart.applies_to(*exit_code) && !wait.is_zero()
        }
        _ => false,
    });
    for (rule, _) in waiting {
        let told = entry.lock().container(&rule.name).and_then(|container| {
            let end = container.run.as_mut()?.end.as_mut()?;
            Some(std::mem::replace(&mut end.told, true))
        });
        if told == Some(false) {
            driver.pods().record_event(entry, Some(&rule.name), PodEventKind::BackOff);
        }
    }
}

/// Stops a container that has to be restarted, without delaying the pod.
fn end_failing<D: Driver>(driver: &Arc<D>, entry: &Entry<D>, pod: &Pod, name: &Arc<str>) {
    let (driver, entry, name) = (Arc::clone(driver), Arc::clone(entry), Arc::clone(name));
    let why = entry.lock().container(&name).and_then(|container| {
        let failing = container.run.as_ref()?.probe_state.failing;
        failing.filter(|_| !container.is_outdated())
    });
    let why = why.unwrap_or(EndCause::Changed);
    let grace = Grace::fixed(stopping::grace_of_restart(pod, &name, why));
    tokio::spawn(async move {
        if let Err(error) = stopping::stop_to_restart(&driver, &entry, &name, why, grace).await {
            tracing::warn!(
                pod = %pod::title(&entry), container = %name, error = error_chain(&error),
                "cannot stop a failing container"
            );
            // It is still failing: the next pass tries again.
            entry.announce();
        }
    });
}
