//! Every long-lived task is either started as a critical task or is listed here with the reason why not.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Calls that start a task or a thread whose panic would go unnoticed.
const BARE: [&str; 4] = ["tokio::spawn(", "thread::spawn(", "thread::Builder", "runtime.spawn("];

/// Folders whose code is not part of the agent.
const NOT_OF_THE_AGENT: [&str; 3] = [".git", "target", "tests"];

const ANSWER: &str = "its caller waits for the answer and hears of its end";
const ONCE: &str = "does one thing and ends; what is left undone is done by the next look";
const ONE_POD: &str = "of one pod or container, which is looked at again without it";
const SHOWN: &str = "only fills in what is shown: the node is protected without it";
const COMMAND: &str = "of a command, not of the agent";

/// Each file with the number of its bare calls and the reason why they are allowed.
const ALLOWED: [(&str, usize, &str); 36] = [
    ("programs/src/drill.rs", 2, COMMAND),
    ("programs/src/watch.rs", 1, COMMAND),
    ("programs/src/watch/feed.rs", 1, COMMAND),
    ("cluster/src/after_boot.rs", 1, ONCE),
    ("cluster/references/src/singleflight.rs", 1, ANSWER),
    ("cluster/references/src/waiting.rs", 1, "a pod that waits is tried again without it"),
    ("cluster/src/status/spool.rs", 1, ANSWER),
    ("node/control/src/client.rs", 1, COMMAND),
    ("runtimes/cri/src/client.rs", 1, ANSWER),
    ("runtimes/cri/src/first_processes.rs", 1, "looks tell an end as well"),
    ("runtimes/cri/src/foreign_containers.rs", 1, ONCE),
    ("runtimes/cri/src/garbage.rs", 1, ONCE),
    ("runtimes/cri/src/sync.rs", 1, ANSWER),
    ("programs/daemon/src/service.rs", 1, "metrics over TCP"),
    ("programs/daemon/src/service/cluster.rs", 1, SHOWN),
    ("runtimes/engine/src/disk_notes.rs", 1, "a note that is missing costs no pod its end"),
    (
        "runtimes/engine/src/exit_report.rs",
        1,
        "an exit that is not reported costs no pod its restart",
    ),
    ("runtimes/engine/src/sync.rs", 2, ONE_POD),
    ("node/src/cluster/start.rs", 1, SHOWN),
    ("node/src/core.rs", 1, SHOWN),
    ("node/src/shutdown.rs", 1, SHOWN),
    ("node/src/shutdown/drain.rs", 1, SHOWN),
    ("node/src/lib.rs", 1, SHOWN),
    ("node/src/shutdown/notice.rs", 1, SHOWN),
    ("node/src/ordered_start.rs", 1, SHOWN),
    ("node/src/pressure/measure.rs", 1, ONCE),
    ("cluster/node-api/src/streams/server.rs", 1, "the connection ends with its stream"),
    ("shutdown/notices/src/kept.rs", 1, ANSWER),
    ("runtimes/process/src/process/hook.rs", 1, ANSWER),
    ("runtimes/process/src/systemd/hook.rs", 1, ANSWER),
    ("shared/src/base/critical.rs", 1, "the seam itself"),
    ("shutdown/src/controller/finalize.rs", 1, "tries to keep a report for as long as it can"),
    ("shutdown/src/journal/writer.rs", 1, "a copy on disk that is missing costs no pod its end"),
    ("systemd/src/logind/bus.rs", 1, "the connection ends with its reader, and another is made"),
    ("systemd/src/logind/bus/signal_verification.rs", 1, ONCE),
    ("systemd/src/units/client.rs", 2, "the connection ends with its reader, and another is made"),
];

#[test]
fn no_long_lived_task_is_started_bare() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut found = BTreeMap::new();
    for sources in sources(root) {
        look(&sources, &mut |path, text| {
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let bare = code.filter(|line| BARE.iter().any(|word| line.contains(word))).count();
            if bare > 0 {
                found.insert(path.strip_prefix(root).unwrap().display().to_string(), bare);
            }
        });
    }
    let allowed: BTreeMap<String, usize> =
        ALLOWED.iter().map(|(file, count, _)| ((*file).to_owned(), *count)).collect();
    let wrong: Vec<String> = found
        .iter()
        .filter(|(file, count)| allowed.get(*file) < Some(count))
        .map(|(file, count)| format!("{file}: {count}"))
        .collect();
    assert!(
        wrong.is_empty(),
        "start tasks that live as long as the agent with winddown_shared::critical, or add the \
         others to the list with the reason: {wrong:#?}"
    );
    let gone: Vec<_> = allowed.keys().filter(|file| !found.contains_key(*file)).collect();
    assert!(gone.is_empty(), "nothing is started there any more: {gone:?}");
}

/// The sources of each crate of the agent. A crate may be in the folder of another.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let (path, name) = (entry.path(), entry.file_name());
        if name == "src" {
            found.push(path);
        } else if path.is_dir() && !NOT_OF_THE_AGENT.iter().any(|other| name == *other) {
            found.extend(sources(&path));
        }
    }
    found
}

/// Calls `each` for every source file that is not a test or a fake.
fn look(directory: &Path, each: &mut impl FnMut(&Path, &str)) {
    const OTHERS: [&str; 4] = ["test", "fake", "stand_in", "fuzzing"];
    let mut entries: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_str().unwrap();
        if OTHERS.iter().any(|other| name.contains(other)) {
            continue;
        }
        if path.is_dir() {
            look(&path, each);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            // Unit tests come last in a file.
            let code = text.split("\nmod tests {").next().unwrap_or_default();
            each(&path, code);
        }
    }
}
