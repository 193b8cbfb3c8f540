//! Reads and follows the logs of containers: one block at a time, however long a log or a line is.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout_at};
use winddown_shared::k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use winddown_shared::status::StatusEntry;
use winddown_shared::{PodUid, WallTime};

use super::file::OpenLog;
use super::lines::LogLines;
use crate::{SharedWatch, Subscription, pod_logs};

/// How much of a log is read before another reader has its turn, if nothing of it is for the client.
const TURN_BYTES: usize = 1024 * 1024;
/// How much of the end of a log is searched for its last lines at least, in bytes.
const LEAST_SEARCHED: u64 = 16 * 1024 * 1024;
/// How long the runtime may take to write a container's last output to its log.
const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_millis(200);
/// The most logs that are read at the same moment, however many clients follow logs: half of the agent's threads for
/// disks, which they keep if the disk of the logs hangs.
pub const MAX_CONCURRENT_LOG_READS: usize = 4;

/// The logs of this node's containers. Clones share their limits.
#[derive(Clone)]
pub struct PodLogs {
    directory: PathBuf,
    max_bytes: u64,
    /// Reports logs that grow; `None` if inotify is unavailable.
    growth: Option<SharedWatch>,
    reads: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

/// Which part of a log is read, as `PodLogOptions` says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Whether what is written from now on is read as well, until the container exits.
    pub follow: bool,
    /// Whether the previous run is requested.
    pub previous: bool,
    /// Whether each line begins with its time.
    pub timestamps: bool,
    /// The time before which lines are left out.
    pub since: Option<WallTime>,
    /// How many of the last lines are read.
    pub tail_lines: Option<u64>,
    /// How many bytes are read.
    pub limit_bytes: Option<u64>,
    /// The only stream to return, `stdout` or `stderr`.
    pub stream: Option<&'static str>,
}

/// A container with a log.
#[derive(Clone)]
pub struct LoggedContainer {
    namespace: String,
    pod: String,
    uid: PodUid,
    container: String,
    /// Why it waits to be started; `None` if it does not.
    waits: Option<String>,
    /// Whether its status knows a run. A runtime opens the log before the status says that the container runs.
    has_run: bool,
    /// The run that goes on, if any.
    run: Option<LoggedRun>,
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// Too many are read already.
    #[error("too many logs are open on this node: try again later")]
    TooMany,
    /// The pod has no such container.
    #[error("container {container:?} not found in pod {pod:?}")]
    NoContainer {
        /// The name of the pod.
        pod: String,
        /// The name that was requested.
        container: String,
    },
    /// A name would lead out of the directory of logs.
    #[error("these are not a pod's names")]
    BadName,
    /// The container has no log of the requested run. In the kubelet's words.
    #[error("{0}")]
    NoRun(String),
    /// Logs cannot be followed.
    #[error("logs cannot be followed: the kernel gives no watch (fs.inotify)")]
    NoWatch,
    /// The log cannot be read.
    #[error("the log cannot be read: {0}")]
    Io(io::Error),
}

/// A log that is being read: one block at a time, and only when the client has taken the previous one.
pub struct LogReading {
    /// Dropped when the client is gone.
    _client: Arc<()>,
    /// Counts this log against the limit.
    _place: OwnedSemaphorePermit,
    reader: Option<Reader>,
    reads: Arc<Semaphore>,
    following: Option<Following>,
}

/// The blocking part of a [`LogReading`].
struct Reader {
    file: OpenLog,
    lines: LogLines,
    /// The offset to stop at, unless the log is followed.
    end: Option<u64>,
    block: Vec<u8>,
}

/// What a reader found in its turn.
enum Piece {
    /// Some of the container's output.
    Output(Vec<u8>),
    /// Nothing yet, but there is more to read.
    Nothing,
    /// The end of the log, for now.
    End,
}

/// The events that a follower waits for.
struct Following {
    growing: Subscription,
    run: LoggedRun,
    /// How long to wait for more output once the container has terminated.
    last_words: Option<Instant>,
}

/// One run of a container, i.e. the time between two restarts.
#[derive(Clone)]
struct LoggedRun {
    has_ended: Arc<dyn Fn() -> bool + Send + Sync>,
    changes: watch::Receiver<u64>,
}

/// The status of the container of this name, of whatever kind.
pub fn status_of<'a>(status: &'a PodStatus, container: &str) -> Option<&'a ContainerStatus> {
    [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ]
    .into_iter()
    .flatten()
    .flatten()
    .find(|status| status.name == container)
}

// === impl LoggedContainer ===

impl LoggedContainer {
    /// The container of this name; without a name the pod's first one.
    ///
    /// # Errors
    /// The pod has no such container.
    pub fn find(entry: &StatusEntry, name: Option<&str>) -> Result<Self, LogError> {
        let pod = &entry.pod;
        let spec = pod.spec.as_ref();
        let containers = spec.into_iter().flat_map(|spec| &spec.containers).map(|one| &one.name);
        let init = spec.and_then(|spec| spec.init_containers.as_ref());
        let ephemeral = spec.and_then(|spec| spec.ephemeral_containers.as_ref());
        let mut names = containers
            .chain(init.into_iter().flatten().map(|one| &one.name))
            .chain(ephemeral.into_iter().flatten().map(|one| &one.name));
        let found = names.find(|known| name.is_none_or(|name| name == *known)).cloned();
        let Some(container) = found else {
            let container = name.unwrap_or_default().to_owned();
            return Err(LogError::NoContainer { pod: pod.name().to_string(), container });
        };
        let status = status_of(&entry.status, &container);
        let waiting = status.and_then(|status| status.state.as_ref()?.waiting.as_ref());
        let waits = waiting.map(|waiting| waiting.reason.as_deref().unwrap_or("no reason given"));
        let last = status.and_then(|status| status.last_state.as_ref()?.terminated.as_ref());
        let has_run = last.is_some() || (status.is_some() && waits.is_none());
        Ok(Self {
            namespace: pod.namespace().to_string(),
            pod: pod.name().to_string(),
            uid: pod.uid().clone(),
            container,
            waits: waits.map(str::to_owned),
            has_run,
            run: None,
        })
    }

    /// The same, to be followed until its present run has ended: `status` returns the pod's status, and `changes`
    /// reports that any status has changed.
    #[must_use]
    pub fn followed(
        self,
        changes: watch::Receiver<u64>,
        status: impl Fn() -> Option<Arc<PodStatus>> + Send + Sync + 'static,
    ) -> Self {
        let Some(now) = status() else { return self };
        let Some(id) = running(&now, &self.container).map(str::to_owned) else { return self };
        let container = self.container.clone();
        let has_ended =
            move || status().is_none_or(|status| running(&status, &container) != Some(&*id));
        Self { run: Some(LoggedRun { has_ended: Arc::new(has_ended), changes }), ..self }
    }

    /// The directory of its logs below that of all logs.
    fn directory(&self, logs: &std::path::Path) -> Result<PathBuf, LogError> {
        let names = [&self.namespace, &self.pod, &self.container, self.uid.as_str()];
        if !names.into_iter().all(pod_logs::is_safe) {
            return Err(LogError::BadName);
        }
        let logs = pod_logs::pod_logs(logs, &self.namespace, &self.pod, &self.uid);
        Ok(logs.join(&self.container))
    }

    /// The number of the requested run; if there is none, fails with the kubelet's message.
    fn attempt(&self, runs: &[u32], previous: bool) -> Result<u32, LogError> {
        let Self { pod, container, waits, .. } = self;
        // While the container waits for its restart, the last run is the previous one.
        let back = usize::from(previous && waits.is_none());
        let found = runs.iter().nth_back(back).filter(|_| self.has_run);
        found.copied().ok_or_else(|| {
            LogError::NoRun(match waits {
                _ if previous => {
                    format!("previous terminated container {container:?} in pod {pod:?} not found")
                }
                Some(reason) => {
                    format!("container {container:?} in pod {pod:?} is waiting to start: {reason}")
                }
                None => format!("container {container:?} in pod {pod:?} has no log"),
            })
        })
    }
}

/// The id of the container if it is running.
fn running<'a>(status: &'a PodStatus, container: &str) -> Option<&'a str> {
    let status = status_of(status, container)?;
    let runs = status.state.as_ref().is_some_and(|state| state.running.is_some());
    status.container_id.as_deref().filter(|_| runs)
}

/// Resolves when the status of any pod has changed; pending for ever if no more changes can come.
async fn changed(changes: &mut watch::Receiver<u64>) {
    if changes.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

// === impl PodLogs ===

impl PodLogs {
    /// The logs in `directory`, which is laid out as `/var/log/pods` is. A log is rotated at `max_bytes`: its last
    /// lines are looked for in twice as many, and at least 16 MiB. At most `max_open` are open at the same moment:
    /// clients that take nothing of a log may keep it open for ever. Without `growth` logs cannot be followed.
    pub fn new(
        directory: PathBuf,
        max_bytes: u64,
        max_open: usize,
        growth: Option<SharedWatch>,
    ) -> Self {
        Self {
            directory,
            max_bytes,
            growth,
            reads: Arc::new(Semaphore::new(MAX_CONCURRENT_LOG_READS)),
            open: Arc::new(Semaphore::new(max_open)),
        }
    }

    /// The same logs and limits, with logs that can be followed.
    #[must_use]
    pub fn with_growth(self, growth: SharedWatch) -> Self {
        Self { growth: Some(growth), ..self }
    }

    /// The directory of all logs.
    pub fn directory(&self) -> &std::path::Path {
        &self.directory
    }

    /// What bounds how many logs are read, and how many are open, at the same moment.
    pub fn limits(&self) -> [&Arc<Semaphore>; 2] {
        [&self.reads, &self.open]
    }

    /// Opens the log of a container. Dropping the future gives up the search for the last lines.
    ///
    /// # Errors
    /// There is no such log, or it cannot be read.
    pub async fn open(
        &self,
        container: LoggedContainer,
        options: LogOptions,
    ) -> Result<LogReading, LogError> {
        let Ok(place) = Arc::clone(&self.open).try_acquire_owned() else {
            return Err(LogError::TooMany);
        };
        let directory = container.directory(&self.directory)?;
        let run = container.run.clone().filter(|run| options.follow && !(run.has_ended)());
        let growth = self.growth.clone();
        let client = Arc::new(());
        let here = Arc::downgrade(&client);
        // Between two checks of its length a log grows beyond it.
        let most = self.max_bytes.saturating_mul(2).max(LEAST_SEARCHED);
        let reads = Arc::clone(&self.reads);
        let turn = Arc::clone(&reads).acquire_owned().await;
        let opening = tokio::task::spawn_blocking(move || {
            // Kept by the thread, also if the client does not wait for it.
            let _turn = turn;
            // The watch starts before anything is read, so that all later writes are reported.
            let growing = match (&run, growth) {
                (Some(_), Some(growth)) => Some(growth.follow(&directory).map_err(LogError::Io)?),
                (Some(_), None) => return Err(LogError::NoWatch),
                (None, _) => None,
            };
            let runs = pod_logs::logged_runs(&directory).unwrap_or_default();
            let attempt = container.attempt(&runs, options.previous)?;
            let path = directory.join(format!("{attempt}.log"));
            let is_given_up = || here.strong_count() == 0;
            let reader = Reader::open(path, &options, run.is_some(), most, is_given_up);
            let following =
                run.zip(growing).map(|(run, growing)| Following { growing, run, last_words: None });
            Ok((reader.map_err(LogError::Io)?, following))
        });
        let opened =
            opening.await.unwrap_or_else(|error| Err(LogError::Io(io::Error::other(error))));
        let (reader, following) = opened?;
        Ok(LogReading { _client: client, _place: place, reader: Some(reader), reads, following })
    }
}

// === impl LogReading ===

impl LogReading {
    /// The requested part of the log as a stream of blocks.
    pub fn into_stream(self) -> impl Stream<Item = io::Result<Vec<u8>>> + Send {
        stream::try_unfold(self, |mut reading| async move {
            let next = reading.next().await?;
            Ok(next.map(|bytes| (bytes, reading)))
        })
    }

    /// Returns the next block, or `None` at the end. Waits for more if the log is followed.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            // Checked before the log is read, so that everything written before the end is still read.
            let is_over = self.following.as_ref().is_none_or(Following::is_over);
            let Some(mut reader) = self.reader.take() else { return Ok(None) };
            let turn = Arc::clone(&self.reads).acquire_owned().await;
            let read = tokio::task::spawn_blocking(move || {
                let piece = reader.next();
                // A follower that waits for more must not keep others from reading.
                drop(turn);
                (reader, piece)
            });
            let (reader, piece) = read.await.map_err(io::Error::other)?;
            let is_full = reader.lines.is_full();
            self.reader = Some(reader).filter(|_| !is_full);
            match (piece?, &mut self.following) {
                (Piece::Output(bytes), _) => return Ok(Some(bytes)),
                (Piece::Nothing, _) => {}
                (Piece::End, Some(following)) if !is_over => following.more().await,
                (Piece::End, _) => return Ok(None),
            }
        }
    }
}

// === impl Reader ===

impl Reader {
    /// Lines are looked for in the last `most` bytes, until `is_given_up`.
    fn open(
        path: PathBuf,
        options: &LogOptions,
        follow: bool,
        most: u64,
        is_given_up: impl Fn() -> bool,
    ) -> io::Result<Self> {
        let mut file = OpenLog::open(path)?;
        let size = file.size()?;
        if let Some(lines) = options.tail_lines {
            file.seek_tail(lines, size, most, is_given_up)?;
        }
        let end = (!follow).then_some(size);
        Ok(Self { file, lines: LogLines::new(options), end, block: Vec::new() })
    }

    /// Returns the next piece of the container's output.
    fn next(&mut self) -> io::Result<Piece> {
        let (mut out, mut left) = (Vec::new(), TURN_BYTES);
        let mut next = None;
        while out.is_empty() && !self.lines.is_full() {
            let read = self.file.read(self.end, &mut self.block)?;
            self.lines.take(read, &mut out);
            if !read.is_empty() {
                left = left.saturating_sub(read.len());
                if left == 0 && out.is_empty() {
                    return Ok(Piece::Nothing);
                }
                continue;
            }
            // Once the next file exists, this one is read once more, because it may have been written to until then.
            match next.take() {
                Some(file) => {
                    self.file = file;
                    self.lines.turn();
                }
                None if self.end.is_some() => break,
                None => match self.file.next()? {
                    Some(file) => next = Some(file),
                    None => break,
                },
            }
        }
        Ok(if out.is_empty() { Piece::End } else { Piece::Output(out) })
    }
}

// === impl Following ===

impl Following {
    /// Whether the log is complete.
    fn is_over(&self) -> bool {
        self.last_words.is_some_and(|until| Instant::now() >= until)
    }

    /// Waits until there may be more output.
    async fn more(&mut self) {
        if self.last_words.is_none() && (self.run.has_ended)() {
            self.last_words = Some(Instant::now() + LAST_OUTPUT_TIMEOUT);
        }
        let is_there = match self.last_words {
            Some(until) => timeout_at(until, self.growing.changed()).await.unwrap_or(true),
            None => tokio::select! {
                grows = self.growing.changed() => grows,
                () = changed(&mut self.run.changes) => true,
            },
        };
        if !is_there {
            self.last_words = Some(Instant::now());
        }
    }
}
