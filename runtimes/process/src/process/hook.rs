//! Runs the commands of hooks, probes and clients.
//!
//! A command runs under a supervisor of its own, so that whatever it forks ends with it. The agent holds the
//! supervisor's stdin: when the agent closes it or dies, the supervisor kills the command.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use winddown_engine::action_error::ActionError;
use winddown_host::ready::Ready;
use winddown_shared::Pod;
use winddown_shim::order::{ExecCommand, Order};
use winddown_shim::procfs::Process;

use super::{Context, start};
use crate::programs::CommandFiles;
use crate::programs::config::{ProcessConfig, SHIM};

/// Runs a command like one of the container, in its cgroups, and resolves with its exit code. Dropping the future kills
/// the command.
pub(crate) async fn exec(
    context: &Arc<Context>,
    (pod, container): (&Pod, &str),
    mut command: ExecCommand,
    files: CommandFiles,
) -> Result<i32, ActionError> {
    let what = format!("cannot run {}", command.argv.join(" "));
    // What the agent or the supervisor cannot do says nothing about the container.
    let unasked = |source: io::Error| ActionError::Unasked { what, source: Some(Box::new(source)) };
    let (context, pod, container) = (Arc::clone(context), pod.clone(), container.to_owned());
    // The command may run as long as the leash is held.
    let (leash, mut let_go) = oneshot::channel::<()>();
    let (done, outcome) = oneshot::channel();
    tokio::spawn(async move {
        let CommandFiles { out, error, held } = files;
        let start = move || {
            if let_go.try_recv() == Err(TryRecvError::Closed) {
                return Err(io::Error::other("its caller does not wait for it any more"));
            }
            // The container's cgroups account for the command, which ends with the container at the latest.
            command.cgroups = context.driver.cgroups.newest(&pod, &container);
            let hook = Hook::start(&context.config, command, (out, error))?;
            Ok((hook, let_go))
        };
        let started = tokio::task::spawn_blocking(start).await;
        let outcome = match started {
            Ok(Ok((hook, let_go))) => hook.follow(let_go).await,
            Ok(Err(error)) => Err(error),
            Err(error) => Err(io::Error::other(error)),
        };
        drop(held);
        // On error no caller waits any more: the hook was abandoned.
        let _ = done.send(outcome);
    });
    let outcome = outcome.await;
    drop(leash);
    outcome.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(unasked)
}

/// A running command.
struct Hook {
    child: Child,
    stdin: Option<ChildStdin>,
    process: Process,
}

impl Hook {
    fn start(
        config: &ProcessConfig,
        command: ExecCommand,
        (out, error): (Option<OwnedFd>, Option<OwnedFd>),
    ) -> io::Result<Self> {
        let order = Order {
            launcher: config.shim.again("launch"),
            command,
            log: None,
            message: None,
            proc_root: config.proc_root.clone(),
        };
        let mut json = serde_json::to_vec(&order)?;
        json.push(b'\n');
        let mut shim = std::process::Command::new(&config.shim.program);
        shim.arg0(SHIM);
        shim.args(&config.shim.args).arg("hook").env_clear().stdin(Stdio::piped());
        let whither = |fd: Option<OwnedFd>| fd.map_or_else(Stdio::null, Stdio::from);
        let mut child = shim.stdout(whither(out)).stderr(whither(error)).spawn()?;
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
            start::send(stdin, order)?;
        }
        Ok((process, stdin))
    }

    /// Resolves with the exit code when no process of the command runs any more. Ends the command when `let_go` closes.
    async fn follow(mut self, let_go: oneshot::Receiver<()>) -> io::Result<i32> {
        let ended = Ready::new(self.process.duplicate()?)?;
        tokio::select! {
            outcome = ended.readable() => outcome?,
            _ = let_go => {
                drop(self.stdin.take());
                ended.readable().await?;
            }
        }
        // The process has exited, so this does not wait. A supervisor that cannot run the command kills itself.
        let no_code = || io::Error::other("its supervisor was killed");
        self.child.wait()?.code().ok_or_else(no_code)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use winddown_shared::{WallClock, WallTime};

    use super::*;
    use crate::process::Supervisors;
    use crate::process::cgroup::Cgroups;
    use crate::programs::config::ShimCommand;

    async fn run(shim: ShimCommand, files: CommandFiles) -> Result<i32, ActionError> {
        let dir = tempfile::tempdir().unwrap();
        let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
        let config = ProcessConfig::new(dir.path(), dir.path().join("logs"), shim, wall);
        let alive = tokio::sync::watch::channel(()).1;
        let driver = Supervisors { cgroups: Cgroups::new(&config), on_machine: None };
        let context = Arc::new(Context::new(config, String::new(), alive, driver));
        let command = ExecCommand { argv: vec!["true".into()], ..ExecCommand::default() };
        let meta = json!({"name": "web", "namespace": "default", "uid": "u"});
        let object = json!({"metadata": meta, "spec": {"containers": [{"name": "main"}]}});
        let pod = Pod::new(serde_json::from_value(object).unwrap()).unwrap();
        exec(&context, (&pod, "main"), command, files).await
    }

    #[tokio::test]
    async fn a_command_that_cannot_be_run_says_nothing_about_its_container() {
        for shim in [
            // The agent cannot start its supervisor.
            ShimCommand::new("/none", []),
            // The supervisor is killed, or cannot start it.
            ShimCommand::new("/bin/sh", ["-c".into(), "kill -KILL $$".into()]),
        ] {
            let ran = run(shim, CommandFiles::default()).await;
            assert!(matches!(ran, Err(ActionError::Unasked { .. })), "{ran:?}");
        }
    }

    /// The launcher opens them by their paths, as root: a number that is free would go to a file of another pod.
    #[tokio::test]
    async fn the_files_of_an_abandoned_command_stay_open_until_nothing_of_it_runs() {
        // A supervisor that its agent's end does not kill at once.
        let shim = ShimCommand::new("/bin/sh", ["-c".into(), "cat >/dev/null; sleep 0.5".into()]);
        let (held, near) = io::pipe().unwrap();
        let near = tokio::net::unix::pipe::Sender::from_owned_fd(near.into()).unwrap();
        let files = CommandFiles { held: vec![held.into()], ..CommandFiles::default() };
        let begun = tokio::time::Instant::now();
        let running = run(shim, files);
        let abandoned = tokio::time::timeout(std::time::Duration::from_millis(200), running).await;
        assert!(abandoned.is_err(), "{abandoned:?}");
        while near.try_write(b"x").is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let open = begun.elapsed();
        assert!(open > std::time::Duration::from_millis(600), "closed after {open:?}");
    }
}
