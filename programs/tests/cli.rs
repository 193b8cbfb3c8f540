//! Tests of the built program that need a process. Everything else about the command line is tested
//! in `src/tests.rs`.

#![allow(clippy::expect_used, reason = "clippy does not see that helpers here are tests, too")]

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::found_by_name::search_path;

fn winddown(arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("winddown"));
    command.args(arguments).env_remove("WINDDOWN_SOCKET").env_remove("WINDDOWN_CONFIG");
    // Never the login manager of the machine that runs the tests.
    command.env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus").env("PATH", search_path());
    command
}

fn run(arguments: &[&str]) -> Output {
    winddown(arguments).stdin(Stdio::null()).output().expect("the program runs")
}

#[test]
fn exit_codes_are_the_documented_ones() {
    let nobody = "--socket=/nonexistent/s";
    for (arguments, code) in [
        (["--help", nobody].as_slice(), 0),
        (&["version"], 0),
        (&["config", "default"], 0),
        (&["report", "--boot", "-1", "--id", "x"], 2),
        (&["frobnicate"], 2),
        (&[], 2),
        (&["config", "check", "/dev/null"], 3),
        (&[nobody, "status"], 4),
        (&[nobody, "kill", "web"], 4),
    ] {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    }
}

#[test]
fn doctor_finds_a_problem_where_there_is_no_bus_and_where_there_are_no_files() {
    let nobody = "--socket=/nonexistent/s";
    let image = tempfile::tempdir().expect("a directory");
    for root in ["/", image.path().to_str().expect("a path")] {
        let output = run(&[nobody, "doctor", "--root", root, "-o", "json"]);
        assert_eq!(output.status.code(), Some(8), "{root}");
        let got: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(got["severity"], "problem", "{root}");
        let unit = got["findings"].as_array().expect("a list").iter().find(|f| f["id"] == "unit");
        assert_eq!(unit.expect("the unit is looked at")["severity"], "problem", "{root}: {got:#}");
    }
}

#[test]
fn a_pod_of_the_agents_own_gives_its_nodes_name_to_the_plan_and_to_doctor() {
    let pods = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples/node/dns.yaml");
    let named = |arguments: &[&str]| {
        let output = winddown(arguments).env("NODE_NAME", "Worker-7").output().expect("it runs");
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        said
    };
    let plan = named(&["plan", "shutdown", "-f", pods, "-o", "json"]);
    assert!(plan.to_string().contains("\"dns-worker-7\""), "{plan:#}");
    let found = named(&["--socket=/nonexistent/s", "doctor", "-o", "json"]);
    assert_eq!(found["node"], "worker-7", "{found:#}");
}

#[test]
fn what_is_piped_has_no_colour_unless_it_is_asked_for() {
    let plain = run(&["--socket=/nonexistent/s", "status"]);
    assert!(!plain.stderr.contains(&0x1b), "{:?}", String::from_utf8_lossy(&plain.stderr));
    let coloured = run(&["--socket=/nonexistent/s", "--color=always", "status"]);
    assert!(coloured.stderr.contains(&0x1b));
}

#[test]
fn a_reader_that_closes_the_pipe_early_is_no_failure() {
    let mut child = winddown(&["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut first = String::new();
    let mut reader = BufReader::with_capacity(1, child.stdout.take().expect("piped"));
    reader.read_line(&mut first).expect("a line");
    drop(reader);
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert!(child.wait().expect("it ends").success(), "{said}");
    assert_eq!(said, "");
}

/// A directory with a pod, which is ready if the program `probe` succeeds.
fn pods(probe: &str) -> tempfile::TempDir {
    let pods = tempfile::tempdir().expect("a directory");
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  hostNetwork: true\n  \
         containers:\n  - name: a\n    command: [sleep, '1000']\n    \
         readinessProbe: {{exec: {{command: ['{probe}']}}}}\n"
    );
    std::fs::write(pods.path().join("a.yaml"), pod).expect("written");
    pods
}

/// Starts a rehearsal by `env`, whose `option` says what is done with SIGHUP.
fn rehearsal(option: &str, pods: &Path) -> Child {
    Command::new("env")
        .arg(option)
        .arg(assert_cmd::cargo::cargo_bin!("winddown"))
        .arg("drill")
        .arg(pods)
        .env_remove("WINDDOWN_CONFIG")
        .env("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("env of GNU coreutils")
}

/// Like [`rehearsal`], and sends it SIGHUP when it has begun.
fn hung_up(option: &str, pods: &Path) -> Output {
    let mut drill = rehearsal(option, pods);
    let mut said = BufReader::new(drill.stdout.take().expect("piped"));
    said.read_line(&mut String::new()).expect("a line");
    kill_process(Pid::from_child(&drill), Signal::HUP).expect("sent");
    drill.wait_with_output().expect("it ends")
}

#[test]
fn a_rehearsal_whose_terminal_is_closed_ends_its_pods() {
    // It is never ready, so that the rehearsal still waits for it. The tests may run under `nohup`.
    let output = hung_up("--default-signal=HUP", pods("false").path());
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("the rehearsal's pods were terminated"), "{error}");
}

#[test]
fn an_interrupted_rehearsal_leaves_no_pod_that_exited_before_the_slowest() {
    let pods = pods("false");
    let unique = format!("1000.{}", std::process::id());
    for (name, command) in [
        ("quick", format!("[sleep, '{unique}']")),
        // The grace period of its end is a second: time enough for the other to start again.
        ("slow", "[sh, -c, 'trap \"\" TERM; while :; do sleep 1; done']".to_owned()),
    ] {
        let pod = std::fs::read_to_string(pods.path().join("a.yaml")).expect("written");
        let pod = pod.replace("name: a", &format!("name: {name}"));
        let pod = pod.replace("[sleep, '1000']", &command);
        std::fs::write(pods.path().join(format!("{name}.yaml")), pod).expect("written");
    }
    let drill = rehearsal("--default-signal=HUP", pods.path());
    let runs = || {
        std::thread::park_timeout(Duration::from_millis(50));
        !processes_with(&unique).is_empty()
    };
    assert!((0..600).any(|_| runs()), "it does not start");
    kill_process(Pid::from_child(&drill), Signal::HUP).expect("sent");
    let output = drill.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    let left = processes_with(&unique);
    for pid in &left {
        let _ = kill_process(*pid, Signal::KILL);
    }
    assert_eq!(left, []);
}

/// The processes with this argument.
fn processes_with(argument: &str) -> Vec<Pid> {
    let has = |pid: &Pid| {
        let line = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()));
        line.is_ok_and(|line| line.split(|byte| *byte == 0).any(|a| a == argument.as_bytes()))
    };
    let processes = std::fs::read_dir("/proc").expect("proc").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Pid::from_raw).filter(has).collect()
}

#[test]
fn a_rehearsal_that_nohup_started_goes_on_when_its_terminal_is_closed() {
    let output = hung_up("--ignore-signal=HUP", pods("true").path());
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
}

#[test]
fn a_rehearsal_as_root_warns_of_manifests_that_others_may_write() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let pods = pods("true");
    let said = |named: &Path| {
        let output = run(&["drill", named.to_str().expect("a path")]);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let file = pods.path().join("a.yaml");
    assert!(!said(pods.path()).contains("warning"));
    for (path, mode, named) in [(pods.path(), 0o777, pods.path()), (&file, 0o666, &file)] {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("changed");
        let warned = said(named);
        let who = "every user may write to it, and the pods run as root";
        assert!(warned.starts_with("warning: ") && warned.contains(who), "{warned}");
        std::fs::set_permissions(path, Permissions::from_mode(0o700)).expect("changed");
    }
}

#[test]
fn a_rehearsal_in_json_prints_nothing_but_its_report() {
    let pods = pods("true");
    std::fs::write(pods.path().join("b.yaml"), "kind: Deployment\n").expect("written");
    let named = pods.path().to_str().expect("a path");
    let output = run(&["drill", named, "--keep", "-o", "json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let kept = said.lines().find_map(|line| line.strip_prefix("state and logs are kept in "));
    let kept = Path::new(kept.expect("it says where"));
    assert!(kept.join("state").is_dir(), "{said}");
    std::fs::remove_dir_all(kept).expect("removed");
    assert!(said.contains("left out: ") && said.contains("b.yaml"), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["kind"], "ShutdownReport", "{report:#}");
}

#[test]
fn what_is_wrong_in_a_file_has_code_3_also_for_a_rehearsal_and_an_installation() {
    let folder = tempfile::tempdir().expect("a directory");
    let manifest = folder.path().join("bad.yaml");
    std::fs::write(&manifest, "kind: [\n").expect("written");
    let output = run(&["drill", manifest.to_str().expect("a path")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains(&format!("  {}:1:7: ", manifest.display())), "{said}");

    let config = folder.path().join("etc/winddown/config.yaml");
    std::fs::create_dir_all(config.parent().expect("a directory")).expect("made");
    std::fs::write(&config, "nonsense: true\n").expect("written");
    let root = folder.path().to_str().expect("a path");
    for more in [&["--dry-run"][..], &[]] {
        let output = run(&[&["install", "--root", root, "--runtime", "process"], more].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("config.yaml is not usable"), "{said}");
    }
}

#[test]
fn cases_on_standard_input_are_planned_as_they_come() {
    use std::io::Write;
    let mut child = winddown(&["plan", "shutdown", "-f", "-", "-o", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut cases = child.stdin.take().expect("piped");
    let mut plans = BufReader::new(child.stdout.take().expect("piped"));
    for id in ["one", "two"] {
        let case = serde_json::json!({
            "id": id,
            "config": { "shutdownGracePeriodByPodPriority":
                [{ "priority": 1000, "shutdownGracePeriodSeconds": 79 }] },
            "pods": [{
                "metadata": { "name": "p", "namespace": "default", "uid": "u" },
                "spec": { "containers": [], "terminationGracePeriodSeconds": 33, "priority": 7 },
            }],
        });
        writeln!(cases, "{case}").expect("it reads");
        cases.flush().expect("it reads");
        // The answer arrives before the next case is sent: nothing waits for the end of the input.
        let mut line = String::new();
        plans.read_line(&mut line).expect("a plan");
        let plan: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(plan["id"], id);
        assert_eq!(
            plan["groups"],
            serde_json::json!([{
                "priority": 1000,
                "shutdownGracePeriodSeconds": 79,
                "pods": [{ "name": "p", "graceSeconds": 33 }],
            }])
        );
    }
    drop(cases);
    assert!(child.wait().expect("it ends").success());
}
