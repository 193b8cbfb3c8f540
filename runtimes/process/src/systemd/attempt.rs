//! One attempt of a container: its records and its units.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use winddown_engine::amounts::{amount, shares, weight};
use winddown_engine::{container_plan, stopping};
use winddown_shared::{Pod, PodUid, Quantity, RuntimeError};
use winddown_shim::log_pipes;
use winddown_shim::order::ExecCommand;
use winddown_shim::record::{self, AttemptRecord, RecordError};

use super::units::{JournalMarks, Keep, NewUnit, UnitLimits, UnitOutput};
use super::{Context, names};
use crate::programs::config::ProcessConfig;
use crate::programs::draft::AttemptDraft;
use crate::programs::{caused, launch, paths};

/// The stop timeout of a log writer.
const LOG_GRACE: Duration = Duration::from_secs(5);
/// File name of the [`UnitRecord`] in the attempt's directory.
pub(crate) const UNIT: &str = "unit.json";

/// The record of an attempt's unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UnitRecord {
    /// The boot of the unit. Units of another boot are gone.
    pub(crate) boot_id: String,
    /// Whether the unit was started. If false, it still may have been.
    pub(crate) started: bool,
    /// Whether the unit survives a soft-reboot.
    #[serde(default)]
    pub(crate) survives: bool,
}

/// The directory and the unit names of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct UnitAttempt {
    pub(crate) uid: PodUid,
    pub(crate) container: Arc<str>,
    pub(crate) number: u32,
    pub(crate) dir: PathBuf,
    pub(crate) unit: String,
    pub(crate) log_unit: String,
    /// Whether its units are meant to survive a soft-reboot.
    pub(crate) survives: bool,
}

/// An attempt that can be started.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) record: AttemptRecord,
    /// Whether it did not exist before, so that no unit of it can have been started.
    pub(crate) is_new: bool,
    pub(crate) log: NewUnit,
    pub(crate) main: NewUnit,
    /// CPU weight of the pod relative to other pods, from its requests.
    pub(crate) pod_weight: u64,
}

impl UnitAttempt {
    pub(crate) fn new(
        config: &ProcessConfig,
        uid: &PodUid,
        container: &Arc<str>,
        number: u32,
    ) -> Self {
        Self {
            uid: uid.clone(),
            container: Arc::clone(container),
            number,
            dir: paths::container(config, uid, container).join(number.to_string()),
            unit: names::main(uid, container, number),
            log_unit: names::log(uid, container, number),
            survives: false,
        }
    }

    /// Records the attempt, so that it survives whatever happens next, and builds its units. Blocks.
    ///
    /// # Errors
    /// The disk cannot be written, or the pod asks for something that cannot be done.
    pub(crate) fn prepare<U>(
        &self,
        context: &Context<U>,
        pod: &Pod,
        backoff: Duration,
    ) -> Result<Option<Prepared>, RuntimeError> {
        let config = &context.config;
        let Some(found) = container_plan::find(pod, &self.container) else { return Ok(None) };
        let container = &*found.container;
        let next = (self.number, backoff);
        let draft = AttemptDraft::new(context, pod, &self.container, next, Vec::new())?;
        let Some(draft) = draft else { return Ok(None) };
        let is_new = self.write(context, pod, &draft).map_err(|e| {
            caused(
                format!("cannot prepare container {} of pod {}", self.container, pod.pod_ref()),
                e,
            )
        })?;
        let AttemptDraft { record, order, .. } = draft;
        let broken = |e: io::Error| {
            caused(format!("cannot prepare the start of container {}", self.container), e)
        };
        let (out_read, out) = io::pipe().map_err(broken)?;
        let (error_read, error) = io::pipe().map_err(broken)?;
        let mut main =
            command_unit(config, pod, &self.container, self.unit.clone(), &order.command)
                .map_err(broken)?;
        main.description = format!("Container {} of pod {}", self.container, pod.pod_ref());
        main.output = UnitOutput::To(out.into());
        main.error = UnitOutput::To(error.into());
        main.limits = limits(container);
        main.keep = Keep::Result;
        main.survives = self.survives;
        main.slice = self.slice();
        main.stop_signal = launch::stop_signal(Some(pod), &self.container).as_raw();
        main.after = Some(self.log_unit.clone());
        main.before = Some(context.driver.agent.clone());
        let pipes = log_pipes::as_input(out_read.as_fd(), error_read.as_fd()).map_err(broken)?;
        let log = self.log_unit(context, pod, &record.log, pipes);
        let pod_weight = positive(weight(shares(pod.fit_requests().cpu_milli()))).unwrap_or(1);
        Ok(Some(Prepared { record, is_new, log, main, pod_weight }))
    }

    pub(crate) fn note_started(&self, boot_id: &str) -> Result<(), RecordError> {
        let unit =
            UnitRecord { boot_id: boot_id.to_owned(), started: true, survives: self.survives };
        record::write(&self.dir.join(UNIT), &unit, false)
    }

    /// Removes an attempt that never ran, so that its number is free again.
    pub(crate) fn withdraw(&self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }

    /// Writes the records. Returns whether the attempt did not exist before.
    fn write<U>(
        &self,
        context: &Context<U>,
        pod: &Pod,
        draft: &AttemptDraft,
    ) -> Result<bool, RecordError> {
        draft.make_room(context, pod)?;
        let path = self.dir.join(UNIT);
        if path.exists() {
            return Ok(false);
        }
        record::make_passage(&self.dir)?;
        let unit = UnitRecord {
            boot_id: context.boot_id.clone(),
            started: false,
            survives: self.survives,
        };
        // This record makes the attempt complete.
        draft.write(|| record::write(&path, &unit, true)).map(|()| true)
    }

    fn slice(&self) -> String {
        if self.survives { names::SURVIVORS.to_owned() } else { names::slice(&self.uid) }
    }

    fn log_unit<U>(&self, context: &Context<U>, pod: &Pod, log: &Path, pipes: OwnedFd) -> NewUnit {
        let config = &context.config;
        let mut argv = config.shim.with("log");
        argv.push(log.display().to_string());
        argv.push(config.log_max_bytes.to_string());
        argv.push(config.log_max_files.to_string());
        NewUnit {
            name: self.log_unit.clone(),
            slice: self.slice(),
            description: format!("Log of container {} of pod {}", self.container, pod.pod_ref()),
            argv,
            input: Some(pipes),
            output: UnitOutput::Null,
            error: UnitOutput::Journal,
            limits: UnitLimits::default(),
            keep: Keep::Alive,
            stop_signal: rustix::process::Signal::TERM.as_raw(),
            stop_timeout: LOG_GRACE,
            max_runtime: None,
            survives: self.survives,
            after: None,
            before: Some(context.driver.agent.clone()),
            journal: Some(JournalMarks {
                identifier: format!("{}/{}", pod.name(), self.container),
                fields: vec![
                    ("WINDDOWN_NAMESPACE", pod.namespace().to_string()),
                    ("WINDDOWN_POD", pod.name().to_string()),
                    ("WINDDOWN_POD_UID", pod.uid().to_string()),
                    ("WINDDOWN_CONTAINER", self.container.to_string()),
                    ("WINDDOWN_ATTEMPT", self.number.to_string()),
                ],
            }),
        }
    }
}

/// Builds a unit that executes this command, without output, limits or a kept result.
///
/// The command is passed as a file in memory: every user may read what the service manager knows of a unit, and a
/// container's environment may hold secrets.
pub(crate) fn command_unit(
    config: &ProcessConfig,
    pod: &Pod,
    container: &str,
    name: String,
    command: &ExecCommand,
) -> io::Result<NewUnit> {
    let mut order = File::from(memfd_create("winddown-order", MemfdFlags::CLOEXEC)?);
    order.write_all(&serde_json::to_vec(command)?)?;
    order.rewind()?;
    Ok(NewUnit {
        name,
        slice: names::slice(pod.uid()),
        description: format!("Command beside container {container} of pod {}", pod.pod_ref()),
        argv: config.shim.with("become"),
        input: Some(order.into()),
        output: UnitOutput::Null,
        error: UnitOutput::Null,
        limits: UnitLimits { tasks_max: NO_LIMIT, ..UnitLimits::default() },
        keep: Keep::Nothing,
        stop_signal: rustix::process::Signal::TERM.as_raw(),
        stop_timeout: stopping::grace_of(pod),
        max_runtime: None,
        survives: false,
        after: None,
        before: None,
        journal: None,
    })
}

/// The task limit of a unit: none, because a pod has no field for it. systemd's default, 15% of the node's tasks, would
/// throttle a database with many threads; `pid.available` guards the node's.
const NO_LIMIT: Option<u64> = Some(u64::MAX);

/// Converts a container's limits as the kubelet does.
pub(super) fn limits(container: &api::Container) -> UnitLimits {
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|r| r.limits.as_ref());
    let requests = resources.and_then(|r| r.requests.as_ref());
    let cpu_limit = amount(limits, "cpu");
    let cpu = amount(requests, "cpu").or(cpu_limit).map_or(0, Quantity::milli_value);
    UnitLimits {
        memory_max: amount(limits, "memory").and_then(|q| positive(q.value())),
        cpu_milli: cpu_limit.and_then(|q| positive(q.milli_value())),
        cpu_weight: positive(weight(shares(cpu))),
        tasks_max: NO_LIMIT,
    }
}

fn positive(n: i64) -> Option<u64> {
    u64::try_from(n).ok().filter(|&n| n > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use winddown_shared::{WallClock, WallTime};

    use super::*;
    use crate::process::cgroup::Unenforced;
    use crate::programs::config::ShimCommand;
    use crate::systemd::Services;

    #[test]
    fn a_containers_limits_become_its_units() {
        let of = |resources: serde_json::Value| {
            let container = json!({"name": "main", "resources": resources});
            limits(&serde_json::from_value(container).unwrap())
        };
        let asked =
            json!({"limits": {"memory": "64Mi", "cpu": "1500m"}, "requests": {"cpu": "500m"}});
        let expected = UnitLimits {
            memory_max: Some(64 << 20),
            cpu_milli: Some(1500),
            cpu_weight: Some(20),
            tasks_max: Some(u64::MAX),
        };
        assert_eq!(of(asked), expected);
        let nothing =
            UnitLimits { cpu_weight: Some(1), tasks_max: NO_LIMIT, ..UnitLimits::default() };
        assert_eq!(of(json!({})), nothing);
    }

    #[tokio::test]
    async fn the_units_of_a_container_are_stopped_after_the_agents_own() {
        let dir = tempfile::tempdir().unwrap();
        let (shim, wall) = (ShimCommand::new("/none", []), WallClock::fixed(WallTime::UNIX_EPOCH));
        let config = ProcessConfig::new(dir.path(), dir.path().join("logs"), shim, wall);
        let agent = "my-agent.service".to_owned();
        let services = Services::new((), Unenforced::default(), agent.clone(), None);
        let alive = tokio::sync::watch::channel(()).1;
        let context = Context::new(config, "boot".to_owned(), alive, services);
        let main = json!({"name": "main", "command": ["/bin/sleep"]});
        let pod = json!({"metadata": {"name": "web", "namespace": "default", "uid": "u"}, "spec": {"containers": [main]}});
        let pod = Pod::new(serde_json::from_value(pod).unwrap()).unwrap();
        let attempt = UnitAttempt::new(&context.config, pod.uid(), &"main".into(), 0);
        let units = attempt.prepare(&context, &pod, Duration::ZERO).unwrap().unwrap();
        assert_eq!([units.main.before, units.log.before], [Some(agent.clone()), Some(agent)]);
    }
}
