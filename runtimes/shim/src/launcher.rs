//! Turns into the container's main process.
//!
//! The supervisor starts it, records its pid and only then sends it the command. The session, user and signal mask are
//! set here, in the process itself, because setting them between fork and exec of a parent would need unsafe code.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, umask};
use winddown_host::ignored_signals;

use super::identity;
use crate::order::{ExecCommand, StandardInput};
use crate::record;

/// The exit code that Kubernetes shows for a container whose program could not be started.
const START_ERROR_CODE: u8 = 128;
/// The usual umask: the agent's own is stricter.
const UMASK: Mode = Mode::S_IWGRP.union(Mode::S_IWOTH);

/// Reads an [`ExecCommand`] from stdin and executes it, as a child of the process `supervisor`, or with none as a service
/// that the service manager supervises. Returns only on failure.
pub(crate) fn launch(supervisor: Option<&OsStr>) -> ExitCode {
    let mut json = Vec::new();
    if io::stdin().lock().read_to_end(&mut json).is_err() {
        return ExitCode::from(START_ERROR_CODE);
    }
    // The supervisor died before it sent the command: nothing may run.
    let Ok(command) = serde_json::from_slice::<ExecCommand>(&json) else {
        return ExitCode::from(START_ERROR_CODE);
    };
    // Opened while this process may still write there; closed by a successful exec.
    let mut report = command.error_file.as_deref().and_then(|path| record::create(path).ok());
    let failure = become_it(&command, supervisor);
    report_failure(report.as_mut(), &failure);
    ExitCode::from(START_ERROR_CODE)
}

/// Executes the command. Returns only on failure, with the reason.
fn become_it(command: &ExecCommand, supervisor: Option<&OsStr>) -> String {
    let prepared = prepare(command, supervisor);
    let Err((what, source)) = prepared else {
        let Some((program, args)) = command.argv.split_first() else {
            return "there is no command to run".to_owned();
        };
        let mut exec = std::process::Command::new(program);
        exec.args(args).env_clear().envs(command.env.iter().map(|(k, v)| (k, v)));
        if command.env.iter().all(|(name, _)| name != "HOME") {
            exec.env("HOME", identity::home());
        }
        if command.input.is_none() {
            exec.stdin(Stdio::null());
        }
        let error = exec.exec();
        return format!("cannot run {program}: {error}");
    };
    format!("{what}: {source}")
}

fn prepare(command: &ExecCommand, supervisor: Option<&OsStr>) -> Result<(), (String, io::Error)> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: nix::Error| (what, io::Error::from(error))
    };
    if supervisor.is_some() {
        nix::unistd::setsid().map_err(failed("cannot start a session"))?;
    }
    if let Some(input) = &command.input {
        connect(input, command.uid).map_err(|e| ("cannot open its input".to_owned(), e))?;
    }
    if let Some(adj) = command.oom_score_adj {
        // Lowering it needs a privilege that the agent may lack; the container runs anyway.
        let _ = std::fs::write("/proc/self/oom_score_adj", adj.to_string());
    }
    if command.no_new_privs {
        nix::sys::prctl::set_no_new_privs().map_err(failed("cannot set no_new_privs"))?;
    }
    if let Some(user) = command.uid {
        let what = |error| ("cannot hand its output over".to_owned(), error);
        hand_over_output(user).map_err(what)?;
    }
    identity::take(command)?;
    if let Some(supervisor) = supervisor {
        // The container dies with its supervisor: without one its output and exit code would be lost.
        // Set after the change of user, which clears it.
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)
            .map_err(failed("cannot tie the container to its supervisor"))?;
        // The supervisor may have died before that took effect.
        if nix::unistd::getppid().to_string() != supervisor.to_string_lossy() {
            return Err(("the supervisor is gone".to_owned(), io::ErrorKind::BrokenPipe.into()));
        }
    }
    umask(UMASK);
    let cwd = command.cwd.as_deref().unwrap_or(Path::new("/"));
    std::env::set_current_dir(cwd).map_err(|e| (format!("workingDir {}", cwd.display()), e))?;
    ignore_nothing().map_err(|e| ("cannot reset ignored signals".to_owned(), e))?;
    SigSet::empty().thread_set_mask().map_err(failed("cannot clear the signal mask"))
}

/// Gives the user the pipes that it writes to, so that it can open them again as `/dev/stdout` and `/dev/stderr`.
fn hand_over_output(user: u32) -> io::Result<()> {
    for output in [rustix::stdio::stdout(), rustix::stdio::stderr()] {
        let mode = rustix::fs::fstat(output)?.st_mode;
        // Anything else, such as /dev/null, may not be its own.
        if rustix::fs::FileType::from_raw_mode(mode).is_fifo() {
            nix::unistd::fchown(output, Some(user.into()), None)?;
        }
    }
    Ok(())
}

/// Resets ignored signals. The agent may have been started with some: a shell script, for example, ignores SIGINT for
/// background jobs. Ignored signals survive an exec; caught ones are reset.
fn ignore_nothing() -> io::Result<()> {
    // Without /proc none is known; the container runs anyway.
    let ignored = ignored_signals();
    let is_ignored = |signal: &Signal| ignored & 1 << (*signal as u32 - 1) != 0;
    for signal in Signal::iterator().filter(is_ignored) {
        signal_hook::flag::register(signal as i32, Arc::default())?;
    }
    Ok(())
}

/// Connects the input to this process. A session leader without a terminal gets the terminal that it opens.
fn connect(input: &StandardInput, user: Option<u32>) -> io::Result<()> {
    match input {
        StandardInput::Pipe(path) => {
            rustix::stdio::dup2_stdin(&File::options().read(true).open(path)?)?;
        }
        StandardInput::Terminal(path) => {
            let terminal = File::options().read(true).write(true).open(path)?;
            if let Some(user) = user {
                // Otherwise the container could not open it again, for example as /dev/stdout.
                nix::unistd::fchown(&terminal, Some(user.into()), None)?;
            }
            rustix::stdio::dup2_stdin(&terminal)?;
            rustix::stdio::dup2_stdout(&terminal)?;
            rustix::stdio::dup2_stderr(&terminal)?;
        }
    }
    Ok(())
}

fn report_failure(file: Option<&mut File>, why: &str) {
    if let Some(file) = file {
        let _ = file.write_all(why.as_bytes());
    }
    // Not `eprintln!`, which panics when the log is gone.
    let _ = writeln!(io::stderr(), "{why}");
}
