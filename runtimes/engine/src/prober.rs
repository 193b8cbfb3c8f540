//! Runs the probes of a container's run.

use std::sync::Arc;
use std::time::Duration;

use winddown_shared::{ContainerKind, Pod, PodEventKind, ProbeKind, error_chain};

use crate::action::Action;
use crate::action_error::ActionError;
use crate::container_plan;
use crate::disk_notes::RunNote;
use crate::driver::{Driver, Entry, act};
use crate::last_line::last_line;
use crate::pod;
use crate::probing::{ProbeFinding, Probed, Probes};

struct ProbedRun<D: Driver> {
    driver: Arc<D>,
    entry: Entry<D>,
    name: Arc<str>,
    id: Arc<str>,
}

/// Starts probing the newest run of a container if it has probes and is not probed yet. `well` is whether its postStart
/// hook succeeded; if not, the container will be restarted.
pub(crate) fn begin<D: Driver>(
    driver: &Arc<D>,
    entry: &Entry<D>,
    pod: &Pod,
    name: &Arc<str>,
    well: bool,
) {
    let Some(found) = container_plan::find(pod, name) else { return };
    let (probes, id, age) = {
        let mut state = entry.lock();
        let mut probes =
            Probes::of(&found.container, |probe| Action::of_probe(probe, &found.container));
        let has_begun = state.has_begun();
        let Some(container) = state.container(name) else { return };
        let is_awaited = container.kind == ContainerKind::Sidecar && !has_begun;
        let run = container.run.as_mut();
        let Some(run) = run.filter(|run| run.is_running() && !run.probe_state.probed) else {
            return;
        };
        if run.probe_state.is_adopted() {
            probes.spread(&run.id);
        }
        run.probe_state.begin(&probes, is_awaited, well);
        if !probes.is_empty() && !run.probe_state.serves() {
            driver.note(entry, (name, run.attempt), RunNote::Unready, true);
        }
        let age = run.started_at.map(|at| driver.termination_notices().now().duration_since(at));
        // None if the clock was set back meanwhile.
        let age = age.and_then(|age| Duration::try_from(age).ok()).unwrap_or_default();
        (probes, Arc::clone(&run.id), age)
    };
    if well && !probes.is_empty() {
        let (driver, entry, name) = (Arc::clone(driver), Arc::clone(entry), Arc::clone(name));
        let alive = driver.alive();
        probes.begin(ProbedRun { driver, entry, name, id }, age, alive);
    }
}

impl<D: Driver> Probed for ProbedRun<D> {
    type Action = Action;

    async fn ask(&self, probe: ProbeKind, action: &Action, timeout: Duration) -> Option<bool> {
        let run = (&*self.name, &*self.id);
        let tell = |what| self.driver.pods().record_event(&self.entry, Some(&self.name), what);
        let pod = || pod::title(&self.entry);
        match act(&self.driver, &self.entry, run, action, timeout).await {
            Ok(None) => Some(true),
            Ok(Some(warning)) => {
                tell(PodEventKind::ProbeWarned { probe, warning });
                Some(true)
            }
            Err(error @ ActionError::Unasked { .. }) => {
                let error = error_chain(&error);
                tracing::debug!(pod = %pod(), container = %self.name, error, "a probe could not be asked");
                tell(PodEventKind::ProbeErrored { probe, error });
                None
            }
            Err(error) => {
                let output = error.output();
                tracing::debug!(pod = %pod(), container = %self.name, error = output, "a probe failed");
                if probe != ProbeKind::Readiness
                    && let Some(run) = self.entry.lock().run(&self.name, &self.id)
                {
                    run.probe_state.output = last_line(&output);
                }
                tell(PodEventKind::Unhealthy { probe, output });
                Some(false)
            }
        }
    }

    fn note(&self, found: ProbeFinding) {
        let mut state = self.entry.lock();
        let Some(run) = state.run(&self.name, &self.id) else { return };
        let (served, attempt) = (run.probe_state.serves(), run.attempt);
        let is_changed = run.probe_state.note(found);
        let serves = run.probe_state.serves();
        drop(state);
        if serves != served {
            let run = (&*self.name, attempt);
            self.driver.note(&self.entry, run, RunNote::Unready, !serves);
        }
        if is_changed {
            self.entry.announce();
        }
    }

    fn is_started(&self) -> bool {
        let mut state = self.entry.lock();
        state.run(&self.name, &self.id).is_some_and(|run| run.probe_state.started)
    }

    async fn is_ending(&self) {
        pod::stopping(&self.entry).await;
    }

    async fn is_over(&self) {
        pod::ended(&self.entry, &self.name, &self.id).await;
    }
}
