//! An attempt of a container before it is started: the order for its supervisor, and its records on disk.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use winddown_engine::{container_plan, files};
use winddown_host::regular;
use winddown_shared::{Pod, RuntimeError, error_chain, millis};
use winddown_shim::members;
use winddown_shim::order::Order;
use winddown_shim::record::{self, AttemptRecord, RecordError};

use super::{ProgramContext, launch, paths, pod_record};

/// An attempt that can be started.
#[derive(Debug)]
pub(crate) struct AttemptDraft {
    pub(crate) dir: PathBuf,
    pub(crate) record: AttemptRecord,
    pub(crate) order: Order,
}

impl AttemptDraft {
    /// Drafts the attempt `number` of a container, after this backoff; none if the pod has no such container.
    pub(crate) fn new<D>(
        context: &ProgramContext<D>,
        pod: &Pod,
        name: &str,
        (number, backoff): (u32, Duration),
        cgroups: Vec<PathBuf>,
    ) -> Result<Option<Self>, RuntimeError> {
        let config = &context.config;
        let Some(found) = container_plan::find(pod, name) else { return Ok(None) };
        let logs = files::pod_logs(&config.log_dir, pod.namespace(), pod.name(), pod.uid());
        let log = logs.join(files::run_log(name, number));
        let dir = paths::container(config, pod.uid(), name).join(number.to_string());
        let order = launch::order(context, pod, &found, &dir, log.clone(), cgroups.clone())?;
        let record = AttemptRecord {
            created_at: config.wall.now(),
            backoff_ms: millis(backoff),
            log,
            boot_id: context.boot_id.clone(),
            cgroups,
        };
        Ok(Some(Self { dir, record, order }))
    }

    /// Creates the parent directories of the attempt's own, and writes the pod's record.
    pub(crate) fn make_room<D>(
        &self,
        context: &ProgramContext<D>,
        pod: &Pod,
    ) -> Result<(), RecordError> {
        self.make_room_for_log(&context.config.log_dir)?;
        record::make_passage(&paths::pod(&context.config, pod.uid()))?;
        record::make_passage(self.container_dir())?;
        context.termination_notices.make_room(pod.uid());
        pod_record::write(&context.config, pod)
    }

    /// Creates the directory of the container's logs, below that of all logs, in which no link is followed. Where one is,
    /// or anything else that a pod may have put there, no other pod is kept from starting.
    fn make_room_for_log(&self, all: &Path) -> Result<(), RecordError> {
        let Some(logs) = self.record.log.parent() else { return Ok(()) };
        let name = logs.strip_prefix(all).unwrap_or(logs);
        let made = files::log_directory(all, record::PASSAGE)
            .and_then(|_| regular::make_directory_below(all, name, record::PASSAGE));
        match made {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                tracing::warn!(
                    path = %logs.display(), error = error_chain(&error),
                    "what a container prints is lost, because its log has no directory; move away what is in its place"
                );
                Ok(())
            }
            made => made.map(drop).map_err(RecordError::new("create", logs)),
        }
    }

    /// Writes the attempt to its existing directory, calling `last` to write the part that makes it complete, so that
    /// it survives whatever happens next. If anything fails, the attempt is withdrawn.
    pub(crate) fn write(
        &self,
        last: impl FnOnce() -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        let written = record::write(&self.dir.join(record::ATTEMPT), &self.record, true)
            .and_then(|()| self.make_termination_log())
            .and_then(|()| last())
            .and_then(|()| record::sync_dir(&self.dir))
            .and_then(|()| record::sync_dir(self.container_dir()));
        if written.is_err() {
            self.withdraw();
        }
        written
    }

    /// Removes an attempt that never ran, so that its number is free again.
    pub(crate) fn withdraw(&self) {
        let _ = std::fs::remove_dir_all(&self.dir);
        for dir in &self.record.cgroups {
            let _ = members::remove(dir);
        }
    }

    fn container_dir(&self) -> &Path {
        self.dir.parent().unwrap_or(&self.dir)
    }

    fn make_termination_log(&self) -> Result<(), RecordError> {
        let path = self.dir.join(record::TERMINATION_LOG);
        let owner = (self.order.command.uid, self.order.command.gid);
        record::create(&path)
            .and_then(|file| match owner {
                (None, None) => Ok(()),
                (uid, gid) => std::os::unix::fs::fchown(&file, uid, gid),
            })
            .map_err(RecordError::new("create", &path))
    }
}
