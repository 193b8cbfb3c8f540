//! The exit record of a command.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use winddown_host::regular;
use winddown_shared::{WallTime, millis};

use crate::members;
use crate::order::{MessageSource, Order};
use crate::procfs;
use crate::record::{self, ExitRecord};

/// The bytes reserved on disk for the record before the command runs.
const RESERVED_BYTES: usize = 8 * 1024;
/// The maximum length of a termination message, in bytes; the kubelet's limit.
const MAX_MESSAGE: u64 = 4096;
/// How many names at the end of the path of a termination message its pod may have replaced, if it has the directory of
/// all pods as a volume: those of the pod, of the container, of the attempt, of the file.
const MESSAGE_NAMES: usize = 4;

pub(crate) struct ObservedExit {
    /// The wait status; none if the supervisor killed the command without collecting it.
    pub(crate) status: Option<WaitStatus>,
    /// Whether process 1 had sent SIGTERM: the machine goes down.
    pub(crate) is_cut_short: bool,
    pub(crate) started_at: WallTime,
    pub(crate) finished_at: WallTime,
    pub(crate) ran: Duration,
    /// The end of the log, which may replace the message.
    pub(crate) log_tail: String,
}

/// Reserves space for the record, so that a full disk cannot prevent it later.
pub(crate) fn reserve(dir: &Path) -> io::Result<()> {
    record::create(&dir.join(record::EXIT_RESERVE))?.write_all(&[b' '; RESERVED_BYTES])
}

pub(crate) fn describe(dir: &Path, order: &Order, seen: ObservedExit) -> ExitRecord {
    let (exit_code, signal) = match seen.status.map_or((137, None), code) {
        // Its work is not done: with 0, a pod of a Job would have succeeded.
        (0, _) if seen.is_cut_short => (143, Some(Signal::SIGTERM as i32)),
        seen => seen,
    };
    let is_out_of_memory = || members::were_out_of_memory(&order.command.cgroups);
    let (source, log_tail) = (order.message.as_ref(), || seen.log_tail);
    let (reason, message) = explain(dir, exit_code, is_out_of_memory, source, log_tail);
    ExitRecord {
        exit_code,
        signal,
        reason: reason.to_owned(),
        message,
        started_at: seen.started_at,
        finished_at: seen.finished_at,
        ran_ms: millis(seen.ran),
        boot_id: procfs::boot_id(&order.proc_root),
    }
}

/// Writes the record to the reserved file and renames the file. On a full disk a message that does not fit is left out.
pub fn write(dir: &Path, mut exit: ExitRecord) -> io::Result<File> {
    let room = dir.join(record::EXIT_RESERVE);
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(&room)?;
    let mut attempt = |exit: &ExitRecord| {
        let mut json = serde_json::to_vec(exit)?;
        json.resize(json.len().max(RESERVED_BYTES), b' ');
        file.rewind()?;
        file.write_all(&json)?;
        file.set_len(json.len() as u64)
    };
    if attempt(&exit).is_err() {
        exit.message.clear();
        attempt(&exit)?;
    }
    std::fs::rename(room, dir.join(record::EXIT))?;
    Ok(file)
}

/// Returns the exit code, 128 + signal if killed by a signal, and the signal.
pub fn code(status: WaitStatus) -> (i32, Option<i32>) {
    match status {
        WaitStatus::Signaled(_, signal, _) => (128 + signal as i32, Some(signal as i32)),
        WaitStatus::Exited(_, code) => (code, None),
        _ => (137, None),
    }
}

/// Returns the reason of the exit of the attempt in `dir`, and its termination message: why it could not be started, or
/// what the container wrote, or after a failure the end of its log.
pub fn explain(
    dir: &Path,
    exit_code: i32,
    is_out_of_memory: impl FnOnce() -> bool,
    source: Option<&MessageSource>,
    log_tail: impl FnOnce() -> String,
) -> (&'static str, String) {
    let start_error =
        regular::read_to_string(&dir.join(record::START_ERROR), regular::MAX_CONFIGURATION_BYTES)
            .unwrap_or_default();
    if !start_error.is_empty() {
        return ("StartError", start_error);
    }
    let reason = reason(exit_code, is_out_of_memory);
    let Some(source) = source else { return (reason, String::new()) };
    let written = written_message(&source.file);
    let falls_back = written.is_empty() && exit_code != 0 && source.fall_back_to_log;
    (reason, if falls_back { log_tail() } else { written })
}

/// Returns the reason of the exit of a container that was started.
pub fn reason(exit_code: i32, is_out_of_memory: impl FnOnce() -> bool) -> &'static str {
    match exit_code {
        0 => "Completed",
        _ if is_out_of_memory() => "OOMKilled",
        _ => "Error",
    }
}

/// Returns what a container wrote to its termination message file, up to the maximum length: nothing if the file cannot
/// be read, or if something else has taken its place. Blocking.
pub fn written_message(path: &Path) -> String {
    let (pods, name) = regular::split(path, MESSAGE_NAMES);
    let mut bytes = Vec::new();
    let read = regular::open_below(pods, name).and_then(|file| match file.metadata()?.len() {
        // Without CAP_FOWNER, the first read of a file waits where the disk is busy.
        0 => Ok(0),
        _ => file.take(MAX_MESSAGE).read_to_end(&mut bytes),
    });
    read.map(|_| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::order::ExecCommand;

    fn record(message: String) -> ExitRecord {
        let at: WallTime = "2026-01-02T03:04:05Z".parse().unwrap();
        ExitRecord {
            exit_code: 1,
            signal: None,
            reason: "Error".to_owned(),
            message,
            started_at: at,
            finished_at: at,
            ran_ms: 5,
            boot_id: "b".to_owned(),
        }
    }

    #[test]
    fn a_link_a_pipe_and_a_device_in_place_of_a_message_are_neither_followed_nor_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("pods/u/main/0");
        std::fs::create_dir_all(&run).unwrap();
        std::fs::write(run.join("message"), "it failed").unwrap();
        std::fs::write(run.join("long"), "x".repeat(10_000)).unwrap();
        symlink(run.join("message"), run.join("link")).unwrap();
        symlink("/dev/zero", run.join("device")).unwrap();
        nix::unistd::mkfifo(&run.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        symlink("u", dir.path().join("pods/linked")).unwrap();
        assert_eq!(written_message(&run.join("message")), "it failed");
        assert_eq!(written_message(&run.join("long")).len(), 4096);
        for name in ["link", "device", "pipe", "missing", "."] {
            assert_eq!(written_message(&run.join(name)), "", "{name}");
        }
        assert_eq!(written_message(&dir.path().join("pods/linked/main/0/message")), "");
    }

    #[test]
    fn a_container_that_exits_with_0_because_the_machine_goes_down_is_not_done() {
        let dir = tempfile::tempdir().unwrap();
        let order = Order {
            launcher: Vec::new(),
            command: ExecCommand::default(),
            log: None,
            message: None,
            proc_root: "/proc".into(),
        };
        for (status, is_cut_short, expected) in
            [(0, false, (0, None)), (0, true, (143, Some(15))), (3, true, (3, None))]
        {
            let at = WallTime::default();
            let seen = ObservedExit {
                status: Some(WaitStatus::Exited(nix::unistd::Pid::from_raw(7), status)),
                is_cut_short,
                started_at: at,
                finished_at: at,
                ran: Duration::ZERO,
                log_tail: String::new(),
            };
            let exit = describe(dir.path(), &order, seen);
            assert_eq!((exit.exit_code, exit.signal), expected, "{status} {is_cut_short}");
        }
    }

    #[test]
    fn a_record_reads_back_also_when_it_needs_more_than_its_room() {
        for length in [0, 10, 4096] {
            let dir = tempfile::tempdir().unwrap();
            reserve(dir.path()).unwrap();
            // Each of these takes six bytes in JSON.
            let exit = record("\u{1}".repeat(length));
            write(dir.path(), exit.clone()).unwrap();
            let back: ExitRecord = record::read(&dir.path().join(record::EXIT)).unwrap();
            assert_eq!(back, exit);
            assert!(!dir.path().join(record::EXIT_RESERVE).exists());
        }
    }
}
