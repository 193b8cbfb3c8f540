//! The supervisor: one small process per running container, which owns it.
//!
//! The program `winddown-shim` is [`run`] and nothing else. The supervisor, not the agent, is the
//! container's parent, so a container outlives a restart or a SIGKILL of the agent. It is
//! single-threaded, sleeps in `poll`, and has no timer while the container runs.
//!
//! # Behaviour
//! * It is a subreaper in a session of its own; every signal that can be blocked is blocked, so that no signal
//!   to a group or from a terminal ends it. Containers get an empty signal mask.
//! * Its stderr is the file `supervisor`, opened and locked by the agent. The lock exists exactly as long as the
//!   supervisor, so a supervisor that was started is visible at all times.
//! * The command runs only after its pid is on disk: the launcher waits for the command until then.
//! * When the command exits, the supervisor writes the rest of the log and the exit record, then sends SIGKILL to all
//!   remaining descendants, including those in other sessions (they are reparented to the subreaper).
//! * When its stdout closes, the agent knows that nothing of the container runs any more. The exit record is synced
//!   only after that, so that a slow disk delays no waiter.
//! * A full disk costs log lines, never the container.
//!
//! `hook` is the same supervisor for a command beside the container (hook, probe, exec): it writes no records and no
//! log, and kills the command when the agent closes the pipe (the time is up, or the agent is gone).

pub mod exit;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod identity;
mod journal_copy;
mod launcher;
pub mod log;
pub mod log_pipes;
mod log_writer;
pub mod members;
pub mod order;
mod output;
pub mod procfs;
pub mod record;
mod step;
mod supervise;
mod tree;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use winddown_shared::WallClock;

/// Runs the program. `args` are the arguments after its name: `run DIR`, `hook` or `launch PID`; or under a service
/// manager, which supervises the process itself, `become` or `log FILE BYTES FILES`.
///
/// Call it first in `main`, before any thread or async runtime exists: it must stay small and
/// single-threaded. Returns when the container and everything it left behind have ended.
pub fn run(args: impl IntoIterator<Item = OsString>, wall: &WallClock) -> ExitCode {
    // The program is started through a file descriptor, after which the kernel would name it.
    let _ = nix::sys::prctl::set_name(c"winddown-shim");
    close_inherited();
    let mut args = args.into_iter();
    let mode = args.next();
    match (mode.as_deref().and_then(|m| m.to_str()), args.next()) {
        (Some("run"), Some(dir)) => supervise::container(&PathBuf::from(dir), wall),
        (Some("hook"), None) => supervise::hook(wall),
        (Some("launch"), Some(supervisor)) => launcher::launch(Some(&supervisor)),
        (Some("become"), None) => launcher::launch(None),
        (Some("log"), Some(file)) => log_writer::run(file.into(), args, wall),
        _ => {
            eprintln!("winddownd starts this program for each container; not for manual use");
            ExitCode::from(2)
        }
    }
}

/// Closes everything above stderr.
///
/// systemd hands descriptors to the agent without close-on-exec, among them the inhibitor lock from
/// the fd store. A supervisor outlives the agent and must not hold that lock, nor may a container.
fn close_inherited() {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers =
        open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // Collected first: reading the directory needs a file descriptor of its own, which is closed by then.
    for fd in numbers.filter(|&fd| fd > 2).collect::<Vec<_>>() {
        let _ = nix::unistd::close(fd);
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
