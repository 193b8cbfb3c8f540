//! A login manager behind a unix socket, for nodes without logind: lines of JSON, and a lock that is an open
//! connection. examples/shutdown-socket is the protocol.

mod protocol;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use winddown_shared::ShutdownKind;

use self::protocol::{Answer, Request, Shutdown};
use super::session::{
    AbortOnDrop, CallError, Listed, LoginCalls, LoginManager, LogindEvent, Session,
};

/// No line of the other side is longer, in bytes.
const LONGEST_LINE: u64 = 64 * 1024;
/// Changes that may wait for the supervisor.
const QUEUE: usize = 32;

/// Opens connections to the socket.
#[derive(Clone)]
pub(super) struct SocketLogin {
    pub(super) path: PathBuf,
    /// How long one question may take.
    pub(super) timeout: Duration,
}

/// Asks questions, each on a connection of its own, so that no answer is an old one.
pub(super) struct SocketCalls {
    login: SocketLogin,
    /// The lock that was granted last; 0 before the first.
    granted: AtomicU64,
    /// Hears changes; ends with the session.
    _listener: AbortOnDrop,
}

/// One connection, read line by line.
struct Lines {
    call: &'static str,
    stream: BufReader<UnixStream>,
}

// === impl SocketLogin ===

impl SocketLogin {
    /// Connects and makes a request.
    async fn ask(&self, call: &'static str, request: &Request<'_>) -> Result<Lines, CallError> {
        let stream = UnixStream::connect(&self.path).await.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                CallError::Absent { call, detail: format!("{}: {error}", self.path.display()) }
            }
            _ => lost(call, &error),
        })?;
        self.trust(call, &stream)?;
        let mut lines = Lines { call, stream: BufReader::new(stream) };
        lines.say(request).await?;
        Ok(lines)
    }

    /// Who announces a shutdown has every pod ended.
    fn trust(&self, call: &'static str, stream: &UnixStream) -> Result<(), CallError> {
        let uid = stream.peer_cred().map_err(|error| lost(call, &error))?.uid();
        if uid == 0 || uid == nix::unistd::geteuid().as_raw() {
            return Ok(());
        }
        let path = self.path.display();
        let detail = format!("{path} is served by user {uid}, who may not announce a shutdown");
        Err(CallError::Refused { call, detail })
    }

    /// How things stand now.
    async fn look(&self, call: &'static str) -> Result<Shutdown, CallError> {
        let look = async { self.ask(call, &Request::watch()).await?.shutdown().await };
        self.bounded(call, look).await
    }

    async fn bounded<T>(
        &self,
        call: &'static str,
        work: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let after = self.timeout;
        timeout(after, work).await.unwrap_or(Err(CallError::Timeout { call, after }))
    }
}

impl LoginManager for SocketLogin {
    type Calls = SocketCalls;

    async fn connect(&self) -> Result<Session<SocketCalls>, CallError> {
        let call = "Watch";
        let connect = async {
            let mut lines = self.ask(call, &Request::watch()).await?;
            let first = lines.shutdown().await?;
            Ok((lines, first))
        };
        let (lines, first) = self.bounded(call, connect).await?;
        let (tx, heard) = mpsc::channel(QUEUE);
        let listener = AbortOnDrop(tokio::spawn(listen(lines, first, tx)));
        let calls =
            SocketCalls { login: self.clone(), granted: AtomicU64::new(0), _listener: listener };
        Ok(Session { calls, heard })
    }
}

/// Says what changes until the connection ends.
async fn listen(mut lines: Lines, mut last: Shutdown, tx: mpsc::Sender<LogindEvent>) {
    loop {
        let now = match lines.shutdown().await {
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
    async fn preparing(&self) -> Result<bool, CallError> {
        self.login.look("preparing").await.map(|shutdown| shutdown.preparing)
    }

    async fn delay(&self) -> Result<Duration, CallError> {
        self.login.look("delaySeconds").await.map(|shutdown| shutdown.delay())
    }

    async fn inhibit(&self, who: &str, why: &str) -> Result<OwnedFd, CallError> {
        let call = "Inhibit";
        let inhibit = async {
            let mut lines = self.login.ask(call, &Request::inhibit(who, why)).await?;
            match lines.answer().await? {
                Answer::Granted { id } => {
                    let stream = lines.stream.into_inner().into_std();
                    Ok((id, OwnedFd::from(stream.map_err(|error| lost(call, &error))?)))
                }
                Answer::Refused { reason } => Err(CallError::Refused { call, detail: reason }),
                Answer::Shutdown(_) => Err(malformed(call, "neither Granted nor Refused")),
            }
        };
        let (id, lock) = self.login.bounded(call, inhibit).await?;
        self.granted.store(id, Ordering::Relaxed);
        Ok(lock)
    }

    async fn listed(&self, who: &str) -> Result<Listed, CallError> {
        let shutdown = self.login.look("inhibitors").await?;
        Ok(shutdown.lists(who, self.granted.load(Ordering::Relaxed)))
    }

    async fn request(&self) -> (Option<String>, ShutdownKind) {
        let Ok(shutdown) = self.login.look("message").await else {
            return (None, ShutdownKind::Unknown);
        };
        let kind = shutdown.kind();
        (shutdown.message.filter(|text| !text.is_empty()), kind)
    }

    /// There is no file of configuration that this side could write.
    async fn reload(&self) -> Result<(), CallError> {
        Ok(())
    }
}

// === impl Lines ===

impl Lines {
    async fn say(&mut self, request: &Request<'_>) -> Result<(), CallError> {
        let mut line = serde_json::to_vec(request)
            .map_err(|error| malformed(self.call, &error.to_string()))?;
        line.push(b'\n');
        self.stream.write_all(&line).await.map_err(|error| lost(self.call, &error))
    }

    async fn answer(&mut self) -> Result<Answer, CallError> {
        let mut line = Vec::new();
        let read = (&mut self.stream).take(LONGEST_LINE).read_until(b'\n', &mut line).await;
        read.map_err(|error| lost(self.call, &error))?;
        if line.is_empty() {
            let detail = "closed by the other side".to_owned();
            return Err(CallError::Connection { call: self.call, detail });
        }
        Answer::read(&line).map_err(|detail| malformed(self.call, &detail))
    }

    async fn shutdown(&mut self) -> Result<Shutdown, CallError> {
        match self.answer().await? {
            Answer::Shutdown(shutdown) => Ok(shutdown),
            _ => Err(malformed(self.call, "the line is no Shutdown")),
        }
    }
}

fn lost(call: &'static str, error: &io::Error) -> CallError {
    CallError::Connection { call, detail: error.to_string() }
}

fn malformed(call: &'static str, detail: &str) -> CallError {
    CallError::Malformed { call, detail: detail.to_owned() }
}
