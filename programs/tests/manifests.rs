//! What becomes of a pod whose manifest is changed, removed and put back, with the real agent and real processes.

#![allow(clippy::expect_used, clippy::panic, reason = "clippy does not see that helpers are tests")]

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use crate::agent::{Bed, LIMIT, manifest};

/// Waits until the condition holds.
fn until(bed: &Bed, what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "never {what}: {}", bed.log());
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// How often a pod has written this line.
fn count(file: &Path, line: &str) -> usize {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().filter(|one| *one == line).count()
}

/// Whether the shim of a container has written that it exited.
fn has_exited(below: &Path, record: &str) -> bool {
    let entries = std::fs::read_dir(below).into_iter().flatten().flatten();
    let mut paths = entries.map(|entry| entry.path()).filter(|path| !path.is_symlink());
    paths.any(|path| path.ends_with(record) || (path.is_dir() && has_exited(&path, record)))
}

/// A container that writes when it starts and when it is asked to exit, which it does once the gate is open.
fn gated(file: &Path, gate: &Path) -> String {
    let (file, gate) = (file.display(), gate.display());
    format!(
        "command: [sh, -c, 'trap \"echo asked >> {file}; until [ -e {gate} ]; do sleep 0.02; done; exit 0\" TERM; \
         echo ran >> {file}; while :; do sleep 0.02; done']"
    )
}

/// The outcome must not depend on when the manifest comes back.
#[test]
fn a_pod_that_never_restarts_runs_again_when_its_manifest_is_put_back_while_it_terminates() {
    let place = tempfile::tempdir().expect("a directory");
    let at = |name: &str| place.path().join(name);
    for way in ["moved", "edited", "without-agent", "over-without-agent"] {
        let (file, gate) = (at(&format!("{way}.log")), at(&format!("{way}.gate")));
        let job = manifest("job", "restartPolicy: Never", &gated(&file, &gate));
        let mut bed = Bed::start("", &[("job", job.clone())]);
        let is = |line: &str, times: usize| count(&file, line) == times;
        until(&bed, "run", || is("ran", 1));
        match way {
            "edited" => bed.put("job", &job.replace("- name: main", "- name: other")),
            _ => bed.remove("job"),
        }
        until(&bed, "asked", || is("asked", 1));
        match way {
            "without-agent" => bed.without_agent(|bed| bed.put("job", &job)),
            "over-without-agent" => bed.without_agent(|bed| {
                std::fs::write(&gate, "").expect("written");
                until(bed, "exited", || has_exited(bed.root(), "exit.json"));
                bed.put("job", &job);
            }),
            _ => bed.put("job", &job),
        }
        // What was written later is seen no earlier.
        let (mark, seen) = (at(&format!("{way}.mark")), "restartPolicy: Never");
        let says = format!("command: [sh, -c, 'echo seen >> {}']", mark.display());
        bed.put("mark", &manifest("mark", seen, &says));
        until(&bed, "seen", || count(&mark, "seen") == 1);
        std::fs::write(&gate, "").expect("written");
        until(&bed, way, || is("ran", 2));
    }
}

/// As kubeadm's manifests do not, and those of other programs do.
#[test]
fn a_pod_whose_manifest_changes_under_its_own_uid_runs_as_the_new_one_whatever_it_had_come_to() {
    let place = tempfile::tempdir().expect("a directory");
    let file = |name: &str| place.path().join(format!("{name}.log"));
    let kinds = [
        ("never", "Never", "exec sleep 1000"),
        ("done", "Never", "exit 0"),
        ("failed", "Never", "exit 3"),
        ("succeeded", "OnFailure", "exit 0"),
    ];
    let pod = |(name, policy, after): (&str, &str, &str), says: &str| {
        let says = format!("command: [sh, -c, 'echo {says} >> {}; {after}']", file(name).display());
        let text = manifest(name, &format!("restartPolicy: {policy}"), &says);
        text.replace("namespace: default", &format!("namespace: default, uid: uid-{name}"))
    };
    let all = |says: &str| kinds.map(|kind| (kind.0, pod(kind, says)));
    let mut bed = Bed::start("", &all("first"));
    let ran = |bed: &Bed, says: &str| {
        for (name, _, _) in kinds {
            until(bed, &format!("{says}: {name}"), || count(&file(name), says) == 1);
        }
        for (name, ..) in kinds.iter().filter(|kind| kind.2.starts_with("exit")) {
            let said = || bed.ask(&["describe", &format!("{name}-n1")]).output().expect("runs");
            let is_over = |text: &[u8]| String::from_utf8_lossy(text).contains("Terminated");
            until(bed, &format!("{says}, then over: {name}"), || is_over(&said().stdout));
        }
    };
    ran(&bed, "first");
    let put = |bed: &Bed, says: &str| all(says).iter().for_each(|(name, text)| bed.put(name, text));
    put(&bed, "second");
    ran(&bed, "second");
    bed.without_agent(|bed| put(bed, "third"));
    ran(&bed, "third");
    // An agent that starts finds them as they are.
    bed.restart();
    put(&bed, "third");
    put(&bed, "fourth");
    ran(&bed, "fourth");
    for says in ["first", "second", "third", "fourth"] {
        ran(&bed, says);
    }
}
