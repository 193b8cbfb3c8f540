//! A login manager behind a unix socket, for nodes without logind: see [`crate::shutdown_socket`].

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use winddown_shared::ShutdownKind;

use super::session::{
    AbortOnDrop, Listed, LoginCalls, LoginManager, LogindCallError, LogindEvent, Session,
};
use crate::shutdown_socket::{
    Inhibit, ShutdownMessage, SocketAnswer, SocketLineError, SocketLines, SocketRequest, Turn,
};

/// The capacity for events that wait for the supervisor.
const QUEUE_CAPACITY: usize = 32;

/// Opens connections to the socket.
#[derive(Clone)]
pub(super) struct SocketLogin {
    pub(super) path: PathBuf,
    /// The timeout of one request.
    pub(super) timeout: Duration,
}

/// Makes requests, each on a connection of its own, so that no answer is stale.
pub(super) struct SocketCalls {
    login: SocketLogin,
    /// The ID of the lock granted last; 0 before the first.
    granted: AtomicU64,
    /// The task that receives changes; aborted with the session.
    _listener: AbortOnDrop,
}

// === impl SocketLogin ===

impl SocketLogin {
    /// Connects and sends a request.
    async fn ask(
        &self,
        call: &'static str,
        request: &SocketRequest,
    ) -> Result<SocketLines, LogindCallError> {
        let stream = UnixStream::connect(&self.path).await.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => LogindCallError::Absent {
                call,
                detail: format!("{}: {error}", self.path.display()),
            },
            _ => lost(call, &error),
        })?;
        self.trust(call, &stream)?;
        let mut lines = SocketLines::of(stream);
        lines.write(request).await.map_err(|error| translate(call, error))?;
        Ok(lines)
    }

    /// Checks that the server runs as root or as this user, because an announced shutdown stops every pod.
    fn trust(&self, call: &'static str, stream: &UnixStream) -> Result<(), LogindCallError> {
        let uid = stream.peer_cred().map_err(|error| lost(call, &error))?.uid();
        if uid == 0 || uid == nix::unistd::geteuid().as_raw() {
            return Ok(());
        }
        let path = self.path.display();
        let detail = format!("{path} is served by user {uid}, who may not announce a shutdown");
        Err(LogindCallError::Refused { call, detail })
    }

    /// Requests the current state.
    async fn look(&self, call: &'static str) -> Result<ShutdownMessage, LogindCallError> {
        let look =
            async { shutdown(call, &mut self.ask(call, &SocketRequest::Watch).await?).await };
        self.bounded(call, look).await
    }

    async fn bounded<T>(
        &self,
        call: &'static str,
        work: impl Future<Output = Result<T, LogindCallError>>,
    ) -> Result<T, LogindCallError> {
        let after = self.timeout;
        timeout(after, work).await.unwrap_or(Err(LogindCallError::Timeout { call, after }))
    }
}

impl LoginManager for SocketLogin {
    type Calls = SocketCalls;

    async fn connect(&self) -> Result<Session<SocketCalls>, LogindCallError> {
        let call = "Watch";
        let connect = async {
            let mut lines = self.ask(call, &SocketRequest::Watch).await?;
            let first = shutdown(call, &mut lines).await?;
            Ok((lines, first))
        };
        let (lines, first) = self.bounded(call, connect).await?;
        let (tx, heard) = mpsc::channel(QUEUE_CAPACITY);
        let listener = AbortOnDrop(tokio::spawn(listen(lines, first, tx)));
        let calls =
            SocketCalls { login: self.clone(), granted: AtomicU64::new(0), _listener: listener };
        Ok(Session { calls, heard })
    }
}

/// Reports changes until the connection closes.
async fn listen(mut lines: SocketLines, mut last: ShutdownMessage, tx: mpsc::Sender<LogindEvent>) {
    loop {
        let now = match shutdown("listen", &mut lines).await {
            Ok(now) => now,
            Err(error) => {
                tracing::warn!("the socket that announces shutdowns: {error}");
                return;
            }
        };
        let at = Instant::now();
        let event = if now.preparing == last.preparing {
            LogindEvent::Changed { at }
        } else {
            LogindEvent::Prepare { begins: now.preparing, kind: now.kind(), at }
        };
        last = now;
        if tx.send(event).await.is_err() {
            return;
        }
    }
}

// === impl SocketCalls ===

impl LoginCalls for SocketCalls {
    async fn preparing(&self) -> Result<bool, LogindCallError> {
        self.login.look("preparing").await.map(|shutdown| shutdown.preparing)
    }

    async fn delay(&self) -> Result<Duration, LogindCallError> {
        self.login.look("delaySeconds").await.map(|shutdown| shutdown.delay().unwrap_or_default())
    }

    async fn inhibit(&self, who: &str, why: &str) -> Result<OwnedFd, LogindCallError> {
        let call = "Inhibit";
        let (who, why) = (who.to_owned(), why.to_owned());
        let request = SocketRequest::Inhibit(Inhibit { who, why, turn: Turn::default() });
        let inhibit = async {
            let mut lines = self.login.ask(call, &request).await?;
            match answer(call, &mut lines).await? {
                SocketAnswer::Granted { id } => {
                    let stream = lines.into_stream().into_std();
                    Ok((id, OwnedFd::from(stream.map_err(|error| lost(call, &error))?)))
                }
                SocketAnswer::Refused { reason } => {
                    Err(LogindCallError::Refused { call, detail: reason })
                }
                _ => Err(malformed(call, "neither Granted nor Refused")),
            }
        };
        let (id, lock) = self.login.bounded(call, inhibit).await?;
        self.granted.store(id, Ordering::Relaxed);
        Ok(lock)
    }

    async fn listed(&self, who: &str) -> Result<Listed, LogindCallError> {
        let shutdown = self.login.look("inhibitors").await?;
        Ok(lists(&shutdown, who, self.granted.load(Ordering::Relaxed)))
    }

    async fn request(&self) -> (Option<String>, ShutdownKind) {
        let Ok(shutdown) = self.login.look("message").await else {
            return (None, ShutdownKind::Unknown);
        };
        let kind = shutdown.kind();
        (shutdown.message.filter(|text| !text.is_empty()), kind)
    }

    /// Does nothing: this login manager has no configuration that the agent could change.
    async fn reload(&self) -> Result<(), LogindCallError> {
        Ok(())
    }
}

async fn answer(
    call: &'static str,
    lines: &mut SocketLines,
) -> Result<SocketAnswer, LogindCallError> {
    let answer = lines.read().await.map_err(|error| translate(call, error))?;
    let closed =
        || LogindCallError::Connection { call, detail: "closed by the other side".to_owned() };
    answer.ok_or_else(closed)
}

async fn shutdown(
    call: &'static str,
    lines: &mut SocketLines,
) -> Result<ShutdownMessage, LogindCallError> {
    match answer(call, lines).await? {
        SocketAnswer::Shutdown(shutdown) if shutdown.delay().is_none() => {
            let detail = format!("delaySeconds {:?} is no time", shutdown.delay_seconds);
            Err(LogindCallError::Malformed { call, detail })
        }
        SocketAnswer::Shutdown(shutdown) => Ok(shutdown),
        _ => Err(malformed(call, "the line is no Shutdown")),
    }
}

/// Checks whether the lock with this ID, or one that an earlier process of `who` took, is held. If the server provides
/// no list and the lock is from an earlier session (ID 0), another server may have granted it.
fn lists(shutdown: &ShutdownMessage, who: &str, id: u64) -> Listed {
    let Some(inhibitors) = &shutdown.inhibitors else {
        return if id == 0 { Listed::UnderAnotherPid } else { Listed::Unknown };
    };
    let mut found = Listed::No;
    for holder in inhibitors.iter().filter(|holder| holder.who == who) {
        if holder.id == id {
            return Listed::Ours;
        }
        found = Listed::UnderAnotherPid;
    }
    found
}

fn translate(call: &'static str, error: SocketLineError) -> LogindCallError {
    match error {
        SocketLineError::Lost(error) => lost(call, &error),
        SocketLineError::Malformed(detail) => LogindCallError::Malformed { call, detail },
    }
}

fn lost(call: &'static str, error: &io::Error) -> LogindCallError {
    LogindCallError::Connection { call, detail: error.to_string() }
}

fn malformed(call: &'static str, detail: &str) -> LogindCallError {
    LogindCallError::Malformed { call, detail: detail.to_owned() }
}
