//! The exit code of a container's first process, as the kernel reports it.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use winddown_host::{ProcStat, kernel, ready::Ready};
use winddown_shared::Backoff;

/// How long the parent of an exited process may take to reap it.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);
/// `PF_EXITING` of linux/sched.h.
const EXITING: u64 = 0x4;

/// The exit code of an exited process, as Kubernetes shows it (128 + signal if a signal killed it).
/// `None` if the kernel does not report it to this process.
///
/// Where this process may inspect the other one, the code is read before the parent reaps it: with a hundred
/// containers exiting on a few CPUs the parents take their time.
pub(super) async fn exit_code(ended: &Ready, pid: i32) -> Option<i32> {
    let deadline = Instant::now() + REAP_TIMEOUT;
    let mut backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(8));
    while Instant::now() < deadline {
        // The reliable source first, then the one that is available earlier.
        let told = ended.exit_code();
        if let Ok(Some(code)) = told {
            return Some(code);
        }
        if let Some(code) = of_zombie(ended, pid) {
            return Some(code);
        }
        // This kernel does not report exit codes of pidfds.
        told.ok()?;
        sleep(backoff.next_delay()).await;
    }
    None
}

/// The code of a process that has exited and that its parent has not reaped. Reads three small
/// files of /proc.
fn of_zombie(process: &Ready, pid: i32) -> Option<i32> {
    let stat = kernel::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let code = zombie_code(&stat)?;
    // To a process without ptrace access the kernel reports 0.
    let trusts = match fs::read_link(format!("/proc/{pid}/ns/mnt")) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    // Checked last: if it had been reaped by now, the PID could have been another process's.
    (trusts && is_unreaped(process)).then_some(code)
}

/// Whether the process of a pidfd still has its PID, that is, has not been reaped.
fn is_unreaped(process: &Ready) -> bool {
    let about = format!("/proc/self/fdinfo/{}", process.as_fd().as_raw_fd());
    let Ok(text) = kernel::read_to_string(about) else { return false };
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    pid.and_then(|pid| pid.trim().parse::<i32>().ok()).is_some_and(|pid| pid > 0)
}

/// The exit code in a `/proc/PID/stat`; `None` if the process has not exited. The first of a PID namespace may have and
/// still wait for the others to be reaped.
fn zombie_code(stat: &str) -> Option<i32> {
    let stat = ProcStat::new(stat)?;
    let is_exiting = || stat.field::<u64>(9).is_some_and(|flags| flags & EXITING != 0);
    if stat.field(3) != Some('Z') && !is_exiting() {
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

    fn skip(test: &str, why: &str) {
        assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{test} may not be skipped: {why}");
        println!("SKIPPED: {test}: {why}");
    }

    #[tokio::test]
    async fn the_code_is_known_while_the_parent_takes_note_of_the_end() {
        let (mut child, ready, _) = ended(&["true"], None).await;
        child.wait().unwrap();
        if !matches!(ready.exit_code(), Ok(Some(0))) {
            let test = "the_code_is_known_while_the_parent_takes_note_of_the_end";
            return skip(test, "Linux before 6.15 tells no exit codes");
        }
        for _ in 0..500 {
            let mut child = Command::new("true").spawn().unwrap();
            let process = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            let ready = Ready::new(pidfd_open(process, PidfdFlags::empty()).unwrap()).unwrap();
            let parent = std::thread::spawn(move || child.wait());
            let code = loop {
                let is_reaped = parent.is_finished();
                match ready.exit_code() {
                    Ok(None) if !is_reaped => {}
                    told => break told,
                }
            };
            assert_eq!(code.unwrap(), Some(0));
        }
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
        let of_namespace = format!("7 (a) S {}4 {}{}", "0 ".repeat(5), "0 ".repeat(42), 3 << 8);
        assert_eq!(zombie_code(&of_namespace), Some(3), "it waits for others to be reaped");
        for text in [&stat("S", 0), "", "7 (a) Z", "7 (a"] {
            assert_eq!(zombie_code(text), None, "{text}");
        }
    }
}
