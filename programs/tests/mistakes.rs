//! The likeliest mistakes of a new user, with the exact output for each.
//!
//! The tables are `tests/mistakes/*.txt`: `=== name`, commands for a shell, `>>> exit code`, what they
//! print. What is wrong inside a configuration or a manifest is in `tests/data/bad` instead. After a
//! deliberate change of a text, `WINDDOWN_BLESS=1 cargo test -p winddown --test all mistakes` writes the
//! new ones; read the difference before it is committed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::found_by_name::search_path;

struct Case {
    name: String,
    script: String,
    wanted: String,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes")
}

fn cases(table: &str) -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join(table)).unwrap();
    let case = |text: &str| {
        let (name, rest) = text.split_once('\n').expect("a name");
        let (script, wanted) = rest.split_once(">>>").unwrap_or((rest, ""));
        Case {
            name: name.to_owned(),
            script: script.trim_end().to_owned(),
            wanted: wanted.trim().to_owned(),
        }
    };
    text.split("=== ").skip(1).map(case).collect()
}

/// Returns the exit code and the output, without the directory's name.
fn run(script: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    open_to_others(folder.path());
    let prelude = include_str!("mistakes/prelude.sh");
    let output = Command::new("/bin/sh")
        .arg("-c")
        .arg(format!("exec 2>&1\n{prelude}\n{script}"))
        .current_dir(folder.path())
        .env("DIR", folder.path())
        .env("WINDDOWN", assert_cmd::cargo::cargo_bin!("winddown"))
        .env("PATH", search_path())
        // Never the login manager of the machine that runs the tests.
        .env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")
        .env("NO_COLOR", "1")
        .env_remove("WINDDOWN_SOCKET")
        .env_remove("WINDDOWN_CONFIG")
        .env_remove("WINDDOWN_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let said = said.replace(folder.path().to_str().unwrap(), "$DIR");
    assert!(!said.contains("panicked"), "{said}");
    format!("{}\n{}", output.status.code().unwrap_or(-1), said.trim_end())
}

/// Makes the folder accessible to other users, for cases that run commands as them.
fn open_to_others(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns `said` without the lines about waiting, unless `wanted` has some: on a slow machine a command may wait for
/// more than a second.
fn without_waiting(said: &str, wanted: &str) -> String {
    let is_waiting = |line: &str| {
        line.starts_with("waiting for the agent's answer, ")
            || line.contains(": waiting for it to terminate, ")
    };
    let keeps = wanted.lines().any(is_waiting);
    let lines: Vec<&str> = said.lines().filter(|line| keeps || !is_waiting(line)).collect();
    lines.join("\n")
}

/// Compares every case of the table with the actual output.
fn check(table: &str) {
    let cases = cases(table);
    let said = Mutex::new(vec![String::new(); cases.len()]);
    let next = std::sync::atomic::AtomicUsize::new(0);
    // Most cases wait for a process.
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                loop {
                    let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(case) = cases.get(n) else { return };
                    let result = without_waiting(&run(&case.script), &case.wanted);
                    said.lock().unwrap()[n] = result;
                }
            });
        }
    });
    let (mut blessed, mut wrong) = (String::new(), String::new());
    for (Case { name, script, wanted }, said) in cases.iter().zip(said.into_inner().unwrap()) {
        let _ = write!(blessed, "=== {name}\n{script}\n>>> {said}\n\n");
        if said.trim() != wanted {
            let _ = write!(wrong, "{name}:\n--- wanted\n{wanted}\n--- got\n{said}\n\n");
        }
    }
    if std::env::var_os("WINDDOWN_BLESS").is_some() {
        std::fs::write(folder().join(table), blessed).unwrap();
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn what_a_slow_machine_adds_is_no_difference() {
    let said = "4\nwaiting for the agent's answer, 2s\nerror: no";
    assert_eq!(without_waiting(said, "4\nerror: no"), "4\nerror: no");
    assert_eq!(without_waiting(said, said), said, "a case that is about it");
}

/// What clap says has its own form, and what is wrong in a file is said with its line and field.
#[test]
fn every_error_says_what_to_do_next() {
    let tables = ["commands.txt", "agent.txt", "starting.txt", "root.txt"];
    let has_place = |line: &str| {
        let mut parts = line.split(':').map(|part| part.parse::<u32>().is_ok());
        parts.any(|is_number| is_number)
    };
    let silent = tables.into_iter().flat_map(cases).filter(|case| {
        let is_error = case.wanted.lines().any(|line| line.starts_with("error: "));
        let is_said = case.wanted.contains("\n  next: ")
            || case.wanted.contains("try '--help'")
            || case.wanted.lines().any(has_place);
        is_error && !is_said
    });
    let silent: Vec<String> = silent.map(|case| case.name).collect();
    assert_eq!(silent, [""; 0]);
}

#[test]
fn mistakes_on_the_command_line() {
    check("commands.txt");
}

#[test]
fn mistakes_that_a_running_agent_answers() {
    check("agent.txt");
}

#[test]
fn mistakes_that_keep_an_agent_from_starting() {
    check("starting.txt");
}

#[test]
fn mistakes_of_other_users_and_on_full_or_read_only_disks() {
    let test = "mistakes_of_other_users_and_on_full_or_read_only_disks";
    let is_root = rustix::process::geteuid().is_root();
    let mounts = Command::new("unshare").args(["-m", "true"]).output();
    if !is_root || !mounts.is_ok_and(|output| output.status.success()) {
        let why = "needs root and mount namespaces";
        assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{why}");
        println!("SKIPPED: {test}: {why}");
        return;
    }
    check("root.txt");
}

#[test]
fn there_are_over_a_hundred_mistakes_and_each_has_an_exit_code_of_the_page() {
    let tables = ["commands.txt", "agent.txt", "starting.txt", "root.txt"];
    let all: Vec<Case> = tables.into_iter().flat_map(cases).collect();
    assert!(all.len() > 100, "{}", all.len());
    let page =
        std::fs::read_to_string(folder().join("../../../docs/reference/commands.md")).unwrap();
    // The page, every --help and the cases must agree about exit codes.
    let help = Command::new(assert_cmd::cargo::cargo_bin!("winddown")).arg("--help").output();
    let help = String::from_utf8(help.unwrap().stdout).unwrap();
    let of_page: Vec<(&str, &str)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" | "))
        .filter(|(code, _)| code.parse::<u8>().is_ok())
        .map(|(code, rest)| (code, rest.split(" | ").next().unwrap_or_default()))
        .collect();
    assert_eq!(of_page.len(), 10);
    for (code, meaning) in of_page {
        let line = format!("  {code}  {}", meaning.replace('`', ""));
        assert!(help.lines().any(|of_help| of_help == line), "{line:?} is not in --help");
    }
    for case in &all {
        let (code, said) = case.wanted.split_once('\n').unwrap_or((&case.wanted, ""));
        assert!(!said.is_empty(), "{}: nothing is said", case.name);
        let of_agent = format!("after {code} (");
        assert!(
            page.contains(&format!("| {code} |")) || page.contains(&of_agent),
            "exit code {code} is not in docs/reference/commands.md"
        );
    }
}
