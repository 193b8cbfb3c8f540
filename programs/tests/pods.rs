//! What a person reads of a pod that does not do its work, with the real agent and real processes: `describe`, `logs`,
//! the journal and `restart`.

#![allow(clippy::expect_used, clippy::panic, reason = "clippy does not see that helpers are tests")]

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::{Bed, LIMIT, manifest};

/// A container that says why it exits.
const EXITS: &str = "command: [sh, -c, 'echo starting; echo no such database >&2; exit 3']";

/// The output of a command on both streams.
fn said(bed: &Bed, arguments: &[&str]) -> String {
    let output = bed.ask(arguments).output().expect("the program runs");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Waits until the command's output has this in it, and returns the output.
fn until(bed: &Bed, arguments: &[&str], part: &str) -> String {
    let begun = Instant::now();
    loop {
        let text = said(bed, arguments);
        if text.contains(part) {
            return text;
        }
        assert!(begun.elapsed() < LIMIT, "never {part:?}: {text}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

#[test]
fn what_happened_to_a_pod_is_in_describe_and_logs_and_the_journal_and_a_restart_starts_it_again() {
    let bed = Bed::start(
        "",
        &[
            ("exits", manifest("exits", "", EXITS)),
            ("web", manifest("web", "", "command: [sh, -c, 'echo hello; exec sleep 1000']")),
            ("once", manifest("once", "restartPolicy: Never", "command: ['true']")),
        ],
    );
    until(&bed, &["status"], "no such database");
    // The first exit is followed by a start at once, so the container may run for a moment.
    let waits = "    State:          Waiting\n      Reason:       CrashLoopBackOff\n";
    let text = until(&bed, &["describe", "exits-n1"], waits);
    for part in [
        "Name:               exits-n1\n",
        "    Last State:     Terminated\n      Reason:       Error\n      Exit Code:    3\n",
        "    Last Line:      \"no such database\"\n",
        "  Grace:            30s\n",
        "container main exited with code 3 (Error)",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert_eq!(said(&bed, &["logs", "exits-n1"]), "starting\nno such database\n");
    assert_eq!(said(&bed, &["logs", "--tail", "1", "-p", "exits-n1"]), "no such database\n");
    let journal = "default/exits-n1 container main exited with code 3 (Error), restarting ";
    assert!(bed.log().contains(journal), "{}", bed.log());
    until(&bed, &["logs", "web-n1"], "hello\n");
    let restarted = said(&bed, &["restart", "web-n1", "--grace", "1s"]);
    assert!(restarted.contains("its source starts it again"), "{restarted}");
    until(&bed, &["describe", "web-n1"], "Restart Count:  1");
    until(&bed, &["describe", "once-n1"], "Completed");
    let stays = said(&bed, &["restart", "once-n1"]);
    assert!(stays.contains("it has completed, so it does not start again"), "{stays}");
    assert!(!bed.log().contains("default/once-n1 re-created"), "{}", bed.log());
    assert!(said(&bed, &["status", "web-n1"]).contains("web-n1"));
    assert!(!said(&bed, &["status", "web-n1"]).contains("exits-n1"));
    assert!(said(&bed, &["describe", "web"]).contains("web-n1\n"));
    assert!(said(&bed, &["logs", "web-n1", "-c", "proxy"]).contains("\"proxy\" not found"));
    said(&bed, &["drain", "--timeout", "2s"]);
    let refused = said(&bed, &["restart", "web-n1"]);
    assert!(refused.contains("admits no pods"), "{refused}");
}

#[test]
fn who_follows_the_log_of_a_container_that_has_not_started_yet_gets_its_first_line() {
    let gate = tempfile::tempdir().expect("a directory");
    let gate = gate.path().join("open");
    let waits = format!(
        "initContainers:\n- name: wait\n  image: host\n  command: [sh, -c, 'until [ -e {} ]; do sleep 0.05; done']",
        gate.display()
    );
    std::fs::create_dir_all(gate.parent().expect("a directory")).expect("made");
    let pod = manifest("late", &waits, "command: [sh, -c, 'echo at last; exec sleep 1000']");
    let bed = Bed::start("", &[("late", pod)]);
    until(&bed, &["status"], "late-n1");
    let mut follower = bed.ask(&["logs", "-f", "late-n1"]);
    let mut follower =
        follower.stdout(std::process::Stdio::piped()).spawn().expect("the program runs");
    // While it waits it says nothing, and does not exit.
    let mut lines = std::io::BufReader::new(follower.stdout.take().expect("piped"));
    std::fs::write(&gate, "").expect("written");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut lines, &mut line).expect("a line");
    assert_eq!(line, "at last\n");
    // As `head` does. The container has no more to say.
    drop(lines);
    assert_eq!(follower.wait().expect("gone").code(), Some(0));
}

/// Otherwise the pods would run on without an agent, and a second time in the other runtime.
#[test]
fn a_changed_runtime_takes_effect_only_once_no_pod_of_the_one_before_runs() {
    let home = tempfile::tempdir().expect("a directory");
    let mut bed = Bed::start("", &[("web", counted(home.path()))]);
    until(&bed, &["status"], "Running");
    bed.without_agent(|bed| bed.configure("runtime: process", "runtime: cri"));
    let status = until(&bed, &["status"], "runtime was changed");
    let drained = "takes effect after `winddown drain`, `winddown install --runtime cri`";
    assert!(status.contains(drained), "{status}");
    until(&bed, &["status"], "Running");
    assert!(said(&bed, &["config", "show", "--running"]).contains("runtime: process"));
    assert_eq!(starts(home.path()), 1);

    said(&bed, &["drain", "--timeout", "2s"]);
    bed.restart();
    until(&bed, &["config", "show", "--running"], "runtime: cri");
    assert!(!said(&bed, &["status"]).contains("runtime was changed"));
}

/// A hung bus says nothing of the services that an earlier agent left.
#[test]
fn pods_run_on_with_their_runtime_on_a_machine_that_had_another_and_has_no_bus() {
    let home = tempfile::tempdir().expect("a directory");
    let mut bed = Bed::start("", &[("web", counted(home.path()))]);
    until(&bed, &["status"], "Running");
    bed.without_agent(|bed| {
        let former = bed.root().join("var/lib/winddown/systemd/pods/0a1b");
        std::fs::create_dir_all(former).expect("made");
    });
    until(&bed, &["status"], "Running");
    assert!(said(&bed, &["config", "show", "--running"]).contains("runtime: process"));
    assert_eq!(starts(home.path()), 1);

    said(&bed, &["drain", "--timeout", "2s"]);
    bed.restart();
    until(&bed, &["config", "show", "--running"], "runtime: process");
}

/// A pod that notes each of its starts here.
fn counted(home: &Path) -> String {
    let container = "command: [sh, -c, 'echo started >>$HOME/starts; exec sleep 1000']";
    let pod = manifest("web", "", container);
    format!("{pod}    env: [{{name: HOME, value: {}}}]\n", home.display())
}

fn starts(home: &Path) -> usize {
    std::fs::read_to_string(home.join("starts")).expect("the pod wrote it").lines().count()
}

/// Whether a machine enforces them is known to the agent only; a file that is planned is one that its agent admits.
#[test]
fn a_plan_of_a_manifest_refuses_the_limits_that_the_agent_refuses() {
    let limited = manifest(
        "limited",
        "",
        "command: [sleep, '1000']\nresources: {limits: {memory: 512Mi, cpu: '1'}}",
    );
    let bed = Bed::start("", &[("limited", limited)]);
    until(&bed, &["status"], "limited-n1");
    let admitted = said(&bed, &["status"]);
    let file = bed.root().join("etc/winddown/pods/limited.yaml");
    let file = file.to_str().expect("a path");
    let refused = "spec.containers[0].resources.limits.cpu: cannot be enforced";
    for plan in ["shutdown", "start"] {
        let planned = said(&bed, &["plan", plan, "-f", file]);
        assert_eq!(planned.contains(refused), admitted.contains(refused), "{planned}{admitted}");
    }
}
