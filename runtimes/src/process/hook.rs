//! preStop and postStart handlers, and what probes ask.
//!
//! A command runs under a supervisor of its own, so that whatever it forks ends with it. The agent
//! holds the supervisor's stdin: letting go of it, or dying, ends the command.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use tokio::sync::oneshot;

use super::order::{Command, Order};
use super::procfs::Process;
use super::{Context, ProcessConfig};
use crate::environment::NodeFacts;
use crate::reach::{Endpoint, HttpGet};
use crate::ready::Ready;

/// What a lifecycle handler does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Handler {
    /// Runs a command with the container's user, environment and working directory.
    Exec(Vec<String>),
    /// Waits.
    Sleep(Duration),
    /// Asks over HTTP.
    Http(HttpGet),
    /// Connects.
    Tcp(Endpoint),
}

/// Why a hook did not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HookError {
    /// It ended with another exit code than 0.
    #[error("{command}: exit code {code}")]
    Failed { command: String, code: i32 },
    /// It could not be started or watched.
    #[error("cannot run {command}")]
    Broken {
        command: String,
        #[source]
        source: io::Error,
    },
    /// The container does not answer as it should.
    #[error("the container does not answer")]
    NoAnswer(#[source] io::Error),
}

impl Handler {
    /// What a spec's handler asks for; none for kinds that are refused beforehand.
    pub(crate) fn of(
        handler: &api::LifecycleHandler,
        container: &api::Container,
        node: &NodeFacts,
    ) -> Option<Self> {
        if let Some(exec) = &handler.exec {
            return Some(Self::Exec(exec.command.clone().unwrap_or_default()));
        }
        if let Some(get) = &handler.http_get {
            return HttpGet::of(get, container, node).map(Self::Http);
        }
        if let Some(socket) = &handler.tcp_socket {
            return Endpoint::of(socket, container, node).map(Self::Tcp);
        }
        let seconds = handler.sleep.as_ref()?.seconds;
        Some(Self::Sleep(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))))
    }
}

/// Does what the handler says. `as_container` is the container's own command, of which everything
/// but the words is taken. Dropping the future kills what runs.
///
/// # Errors
/// The command failed, or could not be run.
pub(crate) async fn run(
    context: &Arc<Context>,
    handler: &Handler,
    as_container: Command,
) -> Result<(), HookError> {
    match handler {
        Handler::Sleep(length) => {
            tokio::time::sleep(*length).await;
            Ok(())
        }
        Handler::Http(get) => get.ask().await.map_err(HookError::NoAnswer),
        Handler::Tcp(endpoint) => endpoint.connect().await.map_err(HookError::NoAnswer),
        Handler::Exec(argv) => exec(context, Command { argv: argv.clone(), ..as_container }).await,
    }
}

async fn exec(context: &Arc<Context>, command: Command) -> Result<(), HookError> {
    let words = command.argv.join(" ");
    let broken = |source| HookError::Broken { command: words.clone(), source };
    let config = context.config.clone();
    // The leash: while it is held, the command may run.
    let (leash, let_go) = oneshot::channel::<()>();
    let (done, outcome) = oneshot::channel();
    tokio::spawn(async move {
        let started = tokio::task::spawn_blocking(move || Hook::start(&config, command)).await;
        let outcome = match started {
            Ok(Ok(hook)) => hook.follow(let_go).await,
            Ok(Err(error)) => Err(error),
            Err(error) => Err(io::Error::other(error)),
        };
        // Nobody waits any more: the hook was let go.
        let _ = done.send(outcome);
    });
    let outcome = outcome.await;
    drop(leash);
    match outcome {
        Ok(Ok(0)) => Ok(()),
        Ok(Ok(code)) => Err(HookError::Failed { command: words, code }),
        Ok(Err(error)) => Err(broken(error)),
        Err(error) => Err(broken(io::Error::other(error))),
    }
}

/// A command that runs.
struct Hook {
    child: Child,
    stdin: Option<ChildStdin>,
    process: Process,
}

impl Hook {
    fn start(config: &ProcessConfig, command: Command) -> io::Result<Self> {
        let order = Order {
            launcher: config.shim.with("launch"),
            command,
            log: None,
            message: None,
            proc_root: config.proc_root.clone(),
        };
        let mut json = serde_json::to_vec(&order)?;
        json.push(b'\n');
        let mut shim = std::process::Command::new(&config.shim.program);
        // A name that people find in a list of processes.
        shim.arg0("winddown-supervisor");
        shim.args(&config.shim.args).arg("hook").env_clear().stdin(Stdio::piped());
        let mut child = shim.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        match Self::hold(&mut child, &json) {
            Ok((process, stdin)) => Ok(Self { child, stdin, process }),
            Err(error) => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(error)
            }
        }
    }

    fn hold(child: &mut Child, order: &[u8]) -> io::Result<(Process, Option<ChildStdin>)> {
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        let process = Process::open_any(pid)?.ok_or(io::ErrorKind::NotFound)?;
        let mut stdin = child.stdin.take();
        if let Some(stdin) = &mut stdin {
            stdin.write_all(order)?;
        }
        Ok((process, stdin))
    }

    /// Resolves with the exit code when nothing of the command runs. Ends it when `let_go` closes.
    async fn follow(mut self, let_go: oneshot::Receiver<()>) -> io::Result<i32> {
        let ended = Ready::new(self.process.duplicate()?)?;
        tokio::select! {
            outcome = ended.readable() => outcome?,
            _ = let_go => {
                drop(self.stdin.take());
                ended.readable().await?;
            }
        }
        // It has ended, so this does not wait.
        Ok(self.child.wait()?.code().unwrap_or(137))
    }
}
