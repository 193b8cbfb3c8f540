//! The processes that hold containers: while one of these runs, a container may, whatever its runtime says.

use std::io;
use std::path::Path;

use winddown_host::regular::read_first;
use winddown_host::{holds_containers, outsider};

/// How it shows the first process of a machine with logind. Any other means that this is not the machine's `/proc`.
const INIT: &str = "systemd";
const MAX_NAME_BYTES: u64 = 64;

/// Whether a container may run on the machine with this `/proc`. Blocks.
///
/// # Errors
/// That is not known: `/proc` cannot be read, or shows only some processes.
pub(super) fn may_run_containers(proc: &Path) -> io::Result<bool> {
    shows_machine(proc)?;
    for entry in std::fs::read_dir(proc)? {
        let process = entry?.file_name();
        let Some(pid) = process.to_str().and_then(|name| name.parse().ok()) else { continue };
        // Any user can start one by such a name.
        let is_holder =
            |name: Vec<u8>| Ok(holds_containers(&name) && outsider(proc, pid)?.is_none());
        match name_of(&proc.join(&process)).and_then(is_holder) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            // It has exited since.
            Err(_) if !proc.join(&process).exists() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Checks that this `/proc` shows all processes of the machine. Blocks.
///
/// # Errors
/// It shows only some, or cannot be read.
pub(super) fn shows_machine(proc: &Path) -> io::Result<()> {
    match name_of(&proc.join("1"))?.trim_ascii_end() == INIT.as_bytes() {
        true => Ok(()),
        false => Err(io::Error::other("process 1 is not systemd")),
    }
}

fn name_of(process: &Path) -> io::Result<Vec<u8>> {
    read_first(&process.join("comm"), MAX_NAME_BYTES)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn containers_run_where_one_is_held_and_it_is_unknown_where_not_all_processes_are_seen() {
        for (processes, wanted) in [
            (&["systemd", "sshd"][..], Some(false)),
            (&["systemd", "containerd"], Some(false)),
            (&["systemd", "sshd", "containerd-shim"], Some(true)),
            (&["systemd", "conmonrs"], Some(true)),
            (&["winddownd", "containerd-shim"], None),
            (&["systemd", "cannot be read"], None),
            (&[], None),
        ] {
            let proc = tempfile::tempdir().unwrap();
            fs::write(proc.path().join("uptime"), "1 1").unwrap();
            for (pid, name) in (1..).zip(processes) {
                let process = proc.path().join(pid.to_string());
                fs::create_dir(&process).unwrap();
                match *name {
                    "cannot be read" => fs::create_dir(process.join("comm")).unwrap(),
                    name => fs::write(process.join("comm"), format!("{name}\n")).unwrap(),
                }
                fs::write(process.join("status"), "Uid:\t0\t0\t0\t0\n").unwrap();
            }
            assert_eq!(may_run_containers(proc.path()).ok(), wanted, "{processes:?}");
        }
    }

    #[test]
    fn a_users_process_by_the_name_of_one_that_holds_containers_holds_none() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, name, user) in [(1, "systemd", 0), (7, "conmon", 65534)] {
            let process = proc.path().join(pid.to_string());
            fs::create_dir(&process).unwrap();
            fs::write(process.join("comm"), format!("{name}\n")).unwrap();
            let users = format!("Uid:{}\n", format!("\t{user}").repeat(4));
            fs::write(process.join("status"), users).unwrap();
        }
        assert!(!may_run_containers(proc.path()).unwrap());
    }
}
