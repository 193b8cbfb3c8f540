//! Notes about how a container's newest run ended, for when the container itself has been reclaimed. Of a pod from a file
//! nothing else says that it has done its work, and the next agent would run it again.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use winddown_engine::disk_notes::NotedRun;
use winddown_engine::files;
use winddown_engine::stopping::unknown_end;
use winddown_host::regular;
use winddown_shared::{ContainerExit, ContainerKind, PodUid, WallTime, error_chain};

use super::config::CriConfig;
use super::pod::{self, Container, PodState, Run};
use super::{CriContext, dirs, observe};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EndNote {
    id: String,
    sandbox: String,
    attempt: u32,
    /// Whether a stop of the pod had asked it to.
    asked: bool,
    /// Whether it was stopped to be started again.
    #[serde(default)]
    cut_short: bool,
    exit_code: i32,
    signal: Option<i32>,
    reason: String,
    message: String,
    started_at: Option<WallTime>,
    finished_at: Option<WallTime>,
}

impl EndNote {
    /// How the run ended; `None` if it has not, or if it says nothing about what the pod is to do.
    pub(super) fn of(run: &Run) -> Option<Self> {
        let end = run.end.as_ref().filter(|_| !run.undone)?;
        Some(Self {
            id: run.id.to_string(),
            sandbox: run.own.sandbox.to_string(),
            attempt: run.attempt,
            asked: end.asked,
            cut_short: run.cut_short,
            exit_code: end.exit.exit_code,
            signal: end.exit.signal,
            reason: end.exit.reason.to_string(),
            message: end.exit.message.clone(),
            started_at: end.exit.started_at,
            finished_at: end.exit.finished_at,
        })
    }

    /// Writes the note, so that it outlasts the machine as the container would have. Blocking.
    ///
    /// # Errors
    /// The disk cannot be written, or a pod has put something else in its place.
    pub(super) fn write(&self, config: &CriConfig, uid: &PodUid, name: &str) -> io::Result<()> {
        let (pods, path) = (dirs::pods(config), dirs::ended(config, uid, name));
        let below = path.strip_prefix(&pods).unwrap_or(&path);
        let directory = below.parent().unwrap_or(Path::new(""));
        regular::make_directory_below(&pods, directory, 0o700)?;
        let mut file = regular::append_below(&pods, below, 0o600)?;
        file.set_len(0)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        File::from(regular::open_directory_below(&pods, directory)?).sync_all()
    }
}

/// The notes about the pod's containers, with their names; `None` for one that cannot be read. Blocking.
pub(super) fn read(config: &CriConfig, uid: &PodUid) -> Vec<(String, Option<EndNote>)> {
    let of = |name: String| {
        let read = files::read_note(&dirs::ended(config, uid, &name));
        let note = read.and_then(|json| Ok(serde_json::from_slice(&json)?));
        let note = note.inspect_err(|error| {
            tracing::warn!(pod = %uid, container = %name, error = error_chain(error), "cannot read how a container ended");
        });
        (name, note.ok())
    };
    dirs::all_ended(config, uid).into_iter().map(of).collect()
}

/// Enters how a container ended of which the runtime has no run any more.
pub(super) fn enter(context: &CriContext, state: &mut PodState, name: &str, note: Option<EndNote>) {
    if state.container(name).is_some_and(|container| container.run.is_some()) {
        return;
    }
    let exit = match &note {
        Some(note) => note.exit(),
        None => unknown_end("how it ended cannot be read", None, context.config.wall.now()),
    };
    let note = note.unwrap_or_default();
    let mut run = pod::created(&note.id, note.attempt, &note.sandbox, Duration::ZERO);
    let (asked, cut_short) = (note.asked, note.cut_short);
    run.recall(NotedRun { asked, cut_short, ..NotedRun::default() });
    run.started_at = exit.started_at;
    observe::finish(&mut run, exit, context);
    run.own.reclaimed = true;
    if state.container(name).is_none() {
        // Of which kind it is, its pod says once it is known.
        state.containers.push(Container::new(name.into(), ContainerKind::Regular));
    }
    if let Some(container) = state.container(name) {
        pod::begin(container, run);
    }
}

impl EndNote {
    fn exit(&self) -> ContainerExit {
        let mut exit = ContainerExit::new(self.exit_code);
        exit.signal = self.signal;
        exit.reason = Arc::from(&*self.reason);
        exit.message.clone_from(&self.message);
        (exit.started_at, exit.finished_at) = (self.started_at, self.finished_at);
        exit
    }
}
