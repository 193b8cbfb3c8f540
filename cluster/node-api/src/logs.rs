//! Reads and follows container logs.

mod file;
mod lines;
mod options;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use hyper::StatusCode;
use hyper::body::{Bytes, Frame};
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout_at};
use winddown_host::{Subscription, pod_logs};
use winddown_shared::status::StatusEntry;
use winddown_shared::{NodeHandle, PodUid};

use crate::answer::FailureAnswer;
use crate::context::RequestContext;
use crate::route::ContainerRef;

use file::OpenLog;
pub(crate) use lines::LogLines;
pub(crate) use options::LogOptions;

/// How much of a log is read before another reader has its turn, if nothing of it is for the client.
const TURN_BYTES: usize = 1024 * 1024;
/// How much of the end of a log is searched for its last lines at least, in bytes.
const LEAST_SEARCHED: u64 = 16 * 1024 * 1024;
/// How long the runtime may take to write a container's last output to its log.
const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_millis(200);

/// A log that is being read: one block at a time, and only when the client has taken the previous one.
pub(crate) struct LogReading {
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
struct LoggedRun {
    node: NodeHandle,
    pod: PodUid,
    container: String,
    id: String,
    changes: watch::Receiver<u64>,
}

/// Opens the log of a container.
pub(crate) async fn open(
    context: &RequestContext,
    container_ref: &ContainerRef,
    query: Option<&str>,
) -> Result<LogReading, FailureAnswer> {
    let Ok(place) = Arc::clone(&context.logs).try_acquire_owned() else {
        let text = "this node has as many logs open as it can: try again later";
        return Err(FailureAnswer::new(StatusCode::SERVICE_UNAVAILABLE, text));
    };
    let options = LogOptions::parse(query.unwrap_or_default(), context.node.now())?;
    let entry = pod(context, container_ref)?;
    let status = status_of(&entry.status, &container_ref.container);
    let directory = directory(context, container_ref, &entry)?;
    let run = options
        .follow
        .then(|| LoggedRun::that_goes_on(&context.node, &entry, container_ref))
        .flatten();
    let (status, container_ref, growth) =
        (status.cloned(), container_ref.clone(), context.growth.clone());
    let client = Arc::new(());
    let here = Arc::downgrade(&client);
    // Between two checks of its length a log grows beyond it.
    let most = context.log_max_bytes.saturating_mul(2).max(LEAST_SEARCHED);
    let reads = Arc::clone(&context.reads);
    let turn = Arc::clone(&reads).acquire_owned().await;
    let opening = tokio::task::spawn_blocking(move || {
        // Kept by the thread, also if the client does not wait for it.
        let _turn = turn;
        // The watch starts before anything is read, so that all later writes are reported.
        let growing = match (&run, growth) {
            (Some(_), Some(growth)) => Some(growth.follow(&directory).map_err(no_log)?),
            (Some(_), None) => {
                let text = "logs cannot be followed: the kernel gives no watch (fs.inotify)";
                return Err(FailureAnswer::new(StatusCode::INTERNAL_SERVER_ERROR, text));
            }
            (None, _) => None,
        };
        let runs = pod_logs::logged_runs(&directory).unwrap_or_default();
        let attempt = attempt(&container_ref, status.as_ref(), &runs, options.previous)?;
        let path = directory.join(format!("{attempt}.log"));
        let is_given_up = || here.strong_count() == 0;
        let reader = Reader::open(path, &options, run.is_some(), most, is_given_up);
        let following =
            run.zip(growing).map(|(run, growing)| Following { growing, run, last_words: None });
        Ok((reader.map_err(no_log)?, following))
    });
    let opened = opening.await.unwrap_or_else(|error| Err(no_log(io::Error::other(error))));
    let (reader, following) = opened?;
    Ok(LogReading { _client: client, _place: place, reader: Some(reader), reads, following })
}

fn pod(
    context: &RequestContext,
    container_ref: &ContainerRef,
) -> Result<StatusEntry, FailureAnswer> {
    let ContainerRef { namespace, pod, container } = container_ref;
    let not_found = |text| FailureAnswer::new(StatusCode::NOT_FOUND, text);
    let entry = context
        .pod(namespace, pod)
        .ok_or_else(|| not_found(format!("pod {pod:?} does not exist")))?;
    let spec = entry.pod.spec.as_ref();
    let containers = spec.into_iter().flat_map(|spec| &spec.containers).map(|one| &one.name);
    let init = spec.and_then(|spec| spec.init_containers.as_ref());
    let ephemeral = spec.and_then(|spec| spec.ephemeral_containers.as_ref());
    let mut names = containers
        .chain(init.into_iter().flatten().map(|one| &one.name))
        .chain(ephemeral.into_iter().flatten().map(|one| &one.name));
    if !names.any(|name| name == container) {
        return Err(not_found(format!("container {container:?} not found in pod {pod:?}")));
    }
    Ok(entry)
}

/// The directory of a container's logs.
fn directory(
    context: &RequestContext,
    container_ref: &ContainerRef,
    entry: &StatusEntry,
) -> Result<PathBuf, FailureAnswer> {
    let ContainerRef { namespace, pod, container } = container_ref;
    let names = [namespace, pod, container, entry.pod.uid().as_str()];
    if !names.into_iter().all(pod_logs::is_safe) {
        return Err(FailureAnswer::new(StatusCode::BAD_REQUEST, "these are no names of a pod"));
    }
    let logs = pod_logs::pod_logs(&context.log_dir, namespace, pod, entry.pod.uid());
    Ok(logs.join(container))
}

/// The status of the container of this name, of whatever kind.
pub(crate) fn status_of<'a>(status: &'a PodStatus, container: &str) -> Option<&'a ContainerStatus> {
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

/// Returns the number of the requested run; if there is none, fails with the kubelet's message.
fn attempt(
    container_ref: &ContainerRef,
    status: Option<&ContainerStatus>,
    runs: &[u32],
    previous: bool,
) -> Result<u32, FailureAnswer> {
    let ContainerRef { pod, container, .. } = container_ref;
    let state = status.and_then(|status| status.state.as_ref());
    let waiting = state.and_then(|state| state.waiting.as_ref());
    // While the container waits for its restart, the last run is the previous one.
    let back = usize::from(previous && waiting.is_none());
    runs.iter().nth_back(back).copied().ok_or_else(|| {
        let text = match waiting {
            _ if previous => {
                format!("previous terminated container {container:?} in pod {pod:?} not found")
            }
            Some(waiting) => format!(
                "container {container:?} in pod {pod:?} is waiting to start: {}",
                waiting.reason.as_deref().unwrap_or("no reason given")
            ),
            None => format!("container {container:?} in pod {pod:?} has no log"),
        };
        FailureAnswer::new(StatusCode::BAD_REQUEST, text)
    })
}

#[expect(clippy::needless_pass_by_value, reason = "an error is mapped by it")]
fn no_log(error: io::Error) -> FailureAnswer {
    FailureAnswer::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        format!("the log cannot be read: {error}"),
    )
}

// === impl LogReading ===

impl LogReading {
    /// The requested part of the log as a stream of blocks.
    pub(crate) fn into_stream(self) -> impl Stream<Item = io::Result<Frame<Bytes>>> + Send {
        stream::try_unfold(self, |mut reading| async move {
            let next = reading.next().await?;
            Ok(next.map(|bytes| (Frame::data(bytes), reading)))
        })
    }

    /// Returns the next block, or `None` at the end. Waits for more if the log is followed.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
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
                (Piece::Output(bytes), _) => return Ok(Some(bytes.into())),
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
        if self.last_words.is_none() && self.run.has_ended() {
            self.last_words = Some(Instant::now() + LAST_OUTPUT_TIMEOUT);
        }
        let is_there = match self.last_words {
            Some(until) => timeout_at(until, self.growing.changed()).await.unwrap_or(true),
            None => tokio::select! {
                grows = self.growing.changed() => grows,
                () = self.run.changed() => true,
            },
        };
        if !is_there {
            self.last_words = Some(Instant::now());
        }
    }
}

// === impl LoggedRun ===

impl LoggedRun {
    /// The current run of the container; `None` if it is not running.
    fn that_goes_on(
        node: &NodeHandle,
        entry: &StatusEntry,
        container_ref: &ContainerRef,
    ) -> Option<Self> {
        let changes = node.changes();
        let id = running(&entry.status, &container_ref.container)?.to_owned();
        let (pod, container) = (entry.pod.uid().clone(), container_ref.container.clone());
        let run = Self { node: node.clone(), pod, container, id, changes };
        (!run.has_ended()).then_some(run)
    }

    fn has_ended(&self) -> bool {
        let status = self.node.status(&self.pod);
        status.is_none_or(|status| running(&status, &self.container) != Some(&*self.id))
    }

    /// Resolves when the status of any pod has changed; pending for ever if no more changes can come.
    async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The id of the container if it is running.
fn running<'a>(status: &'a PodStatus, container: &str) -> Option<&'a str> {
    let status = status_of(status, container)?;
    let runs = status.state.as_ref().is_some_and(|state| state.running.is_some());
    status.container_id.as_deref().filter(|_| runs)
}
