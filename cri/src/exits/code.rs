//! How a container's first process ended, as the kernel tells it.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use winddown_engine::ready::Ready;
use winddown_shared::ProcStat;

/// How long a process that has ended may take to be taken note of by its parent.
const REAPED: Duration = Duration::from_secs(1);
/// The longest wait between two looks; the first is a millisecond.
const LONGEST: Duration = Duration::from_millis(8);

/// The exit code of a process that has ended, as Kubernetes shows it (128 + signal for a signal's
/// victim). None if the kernel does not tell it to this process.
///
/// It is read before the process's parent takes note, where this process may look at it: with a hundred
/// containers ending on a few processors the parents take their time.
pub(super) async fn exit_code(ended: &Ready, pid: i32) -> Option<i32> {
    let deadline = Instant::now() + REAPED;
    let mut wait = Duration::from_millis(1);
    while Instant::now() < deadline {
        // The one that is certain first; then the one that comes first.
        let told = ended.exit_code();
        if let Ok(Some(code)) = told {
            return Some(code);
        }
        if let Some(code) = of_zombie(ended, pid) {
            return Some(code);
        }
        // A kernel that does not tell.
        told.ok()?;
        sleep(wait).await;
        wait = (wait * 2).min(LONGEST);
    }
    None
}

/// The code of a process that has ended and that its parent has not taken note of. Reads three small
/// files of /proc.
fn of_zombie(process: &Ready, pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let code = zombie_code(&stat)?;
    // Whom it does not trust the kernel tells 0.
    let trusts = match fs::read_link(format!("/proc/{pid}/ns/mnt")) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    // Asked last: were it gone by now, the number could have been another process's.
    (trusts && is_unreaped(process)).then_some(code)
}

/// Whether a pidfd's process still has its number.
fn is_unreaped(process: &Ready) -> bool {
    let about = format!("/proc/self/fdinfo/{}", process.as_fd().as_raw_fd());
    let Ok(text) = fs::read_to_string(about) else { return false };
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    pid.and_then(|pid| pid.trim().parse::<i32>().ok()).is_some_and(|pid| pid > 0)
}

/// The exit code in a `/proc/PID/stat`; none if the process has not ended.
fn zombie_code(stat: &str) -> Option<i32> {
    let stat = ProcStat::new(stat)?;
    if stat.field(3) != Some('Z') {
        return None;
    }
    let status: i32 = stat.field(52)?;
    let (signal, code) = (status & 0x7f, status >> 8 & 0xff);
    Some(if signal == 0 { code } else { 128 + signal })
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

    use super::*;

    async fn ended(program: &[&str], signal: Option<Signal>) -> (Child, Ready, i32) {
        let child = Command::new(program[0]).args(&program[1..]).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let process = Pid::from_raw(pid).unwrap();
        let ready = Ready::new(pidfd_open(process, PidfdFlags::empty()).unwrap()).unwrap();
        if let Some(signal) = signal {
            kill_process(process, signal).unwrap();
        }
        ready.readable().await.unwrap();
        (child, ready, pid)
    }

    #[tokio::test]
    async fn the_code_is_known_before_the_parent_takes_note_of_the_end() {
        let (mut child, ready, pid) = ended(&["sh", "-c", "exit 3"], None).await;
        assert_eq!(of_zombie(&ready, pid), Some(3));
        assert_eq!(exit_code(&ready, pid).await, Some(3));
        child.wait().unwrap();
        assert_eq!(of_zombie(&ready, pid), None, "the number is free");
        let (mut child, ready, pid) = ended(&["sleep", "1000"], Some(Signal::KILL)).await;
        assert_eq!(exit_code(&ready, pid).await, Some(137));
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn a_number_that_is_another_processs_by_now_is_not_believed() {
        let (mut gone, ready, _) = ended(&["true"], None).await;
        gone.wait().unwrap();
        let (mut other, _, pid) = ended(&["sh", "-c", "exit 5"], None).await;
        assert_eq!(of_zombie(&ready, pid), None);
        other.wait().unwrap();
    }

    #[test]
    fn the_code_is_the_last_field_of_a_process_that_has_ended() {
        let stat = |state: &str, code: i32| {
            let rest = "0 ".repeat(48);
            format!("7 (a) Z (b) {state} {rest}{code}\n")
        };
        assert_eq!(zombie_code(&stat("Z", 3 << 8)), Some(3));
        assert_eq!(zombie_code(&stat("Z", 9)), Some(137));
        assert_eq!(zombie_code(&stat("Z", 0x80 | 11)), Some(139), "with a core");
        for text in [&stat("S", 0), "", "7 (a) Z", "7 (a"] {
            assert_eq!(zombie_code(text), None, "{text}");
        }
    }
}
