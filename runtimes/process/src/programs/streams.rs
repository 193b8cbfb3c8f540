//! Runs clients' commands beside containers, over streams that the caller serves.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, ptsname, unlockpt};
use winddown_engine::pod::ended;
use winddown_engine::stopping::KILLED;
use winddown_host::{CommandStream, PodStream, PodStreams, Stdio, StreamRequest};
use winddown_shared::{PodUid, RuntimeError};
use winddown_shim::order::StandardInput;

use super::{ProgramContext, ProgramDriver, ProgramRuntime, caused, failed};

#[derive(Debug, Default)]
pub(crate) struct CommandFiles {
    /// Where its output goes; `None` discards it.
    pub(crate) out: Option<OwnedFd>,
    /// Where its errors go; `None` discards them.
    pub(crate) error: Option<OwnedFd>,
    /// What it opens by its path, below the agent's process or as a terminal. Stays open until nothing of the command
    /// runs any more: a number that is free goes to the next file, which is another pod's.
    pub(crate) held: Vec<OwnedFd>,
}

impl<D: ProgramDriver> PodStreams for ProgramRuntime<D> {
    fn open<'a>(
        &'a self,
        pod: &'a PodUid,
        wanted: StreamRequest,
    ) -> BoxFuture<'a, Result<Option<PodStream>, RuntimeError>> {
        async move { open(&self.context, pod, wanted) }.boxed()
    }
}

fn open<D: ProgramDriver>(
    context: &Arc<ProgramContext<D>>,
    pod: &PodUid,
    wanted: StreamRequest,
) -> Result<Option<PodStream>, RuntimeError> {
    let StreamRequest::Exec { container, command: argv, stdio } = wanted else {
        let what = "programs of the host have no attach and no port-forward: use `runtime: cri`, or reach \
                    their ports at the node's address";
        return Err(failed(what.to_owned()));
    };
    let Some(entry) = context.pods.get(pod) else { return Ok(None) };
    let Some(run) = entry.lock().running_id(&container) else { return Ok(None) };
    let broken = |error| caused("cannot make the streams of a command".to_owned(), error);
    let (near, far) = ends(stdio).map_err(broken)?;
    let context = Arc::clone(context);
    let exit = async move {
        let Far { input, files } = far;
        let beside = context.beside(&entry, &container, &argv);
        let failed = |error| caused(format!("in container {container}"), error);
        let (pod, mut command) = beside.map_err(failed)?;
        if stdio.tty && !command.env.iter().any(|(name, _)| name == "TERM") {
            command.env.push(("TERM".to_owned(), "xterm".to_owned()));
        }
        command.input = input;
        let ran = D::exec(&context, (&pod, &container), command, files, Duration::MAX);
        tokio::select! {
            ran = ran => ran.map_err(failed),
            () = ended(&entry, &container, &run) => Ok(KILLED),
        }
    };
    let [stdin, stdout, stderr] = near;
    Ok(Some(PodStream::Command(CommandStream { stdin, stdout, stderr, exit: exit.boxed() })))
}

/// The command's side of its streams.
struct Far {
    input: Option<StandardInput>,
    files: CommandFiles,
}

/// Creates both sides of the streams. The near side is stdin, stdout and stderr.
fn ends(stdio: Stdio) -> io::Result<([Option<OwnedFd>; 3], Far)> {
    if stdio.tty {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let terminal = openpt(flags)?;
        unlockpt(&terminal)?;
        let path = PathBuf::from(ptsname(&terminal, Vec::new())?.to_string_lossy().into_owned());
        // Without it the terminal would count as closed until the command opens it.
        let held = ioctl_tiocgptpeer(&terminal, flags)?;
        let stdin = if stdio.stdin { Some(terminal.try_clone()?) } else { None };
        let near = [stdin, Some(unblocked(terminal)?), None];
        let input = Some(StandardInput::Terminal(path));
        let files = CommandFiles { held: vec![held], ..CommandFiles::default() };
        return Ok((near, Far { input, files }));
    }
    let pipe = |wanted: bool| -> io::Result<(Option<OwnedFd>, Option<OwnedFd>)> {
        if !wanted {
            return Ok((None, None));
        }
        let (read, write) = io::pipe()?;
        Ok((Some(read.into()), Some(write.into())))
    };
    let ((held, stdin), (stdout, out), (stderr, error)) =
        (pipe(stdio.stdin)?, pipe(stdio.stdout)?, pipe(stdio.stderr)?);
    let path = |fd: &OwnedFd| format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
    let input = held.as_ref().map(|fd| StandardInput::Pipe(path(fd).into()));
    let [stdin, stdout, stderr] = [stdin, stdout, stderr].map(|fd| fd.map(unblocked).transpose());
    let near = [stdin?, stdout?, stderr?];
    let files = CommandFiles { out, error, held: held.into_iter().collect() };
    Ok((near, Far { input, files }))
}

fn unblocked(fd: OwnedFd) -> io::Result<OwnedFd> {
    fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
    Ok(fd)
}
