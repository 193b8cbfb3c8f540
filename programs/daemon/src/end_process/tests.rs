//! Every long-lived task is either started as a critical task or is listed here with the reason why not.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use winddown_shared::critical;

use super::{EndProcess, TASK_LOST};
use crate::logging::Log;

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
const ALLOWED: [(&str, usize, &str); 39] = [
    ("programs/src/drill.rs", 2, COMMAND),
    ("programs/src/output.rs", 1, COMMAND),
    ("programs/src/watch/feed.rs", 1, COMMAND),
    ("cluster/src/after_boot.rs", 1, ONCE),
    ("cluster/references/src/singleflight.rs", 1, ANSWER),
    ("cluster/references/src/waiting.rs", 1, "a pod that waits is tried again without it"),
    ("cluster/src/status/spool.rs", 2, ANSWER),
    ("shared/host/src/host_names.rs", 1, ANSWER),
    ("node/control/src/client.rs", 1, COMMAND),
    ("runtimes/cri/src/client.rs", 1, ANSWER),
    ("runtimes/cri/src/first_processes.rs", 2, "looks tell an end as well"),
    ("runtimes/cri/src/foreign_containers/stop.rs", 1, ONCE),
    ("runtimes/cri/src/garbage.rs", 2, ONCE),
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
    ("runtimes/shim/src/procfs.rs", 1, ANSWER),
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
    ("shutdown/src/controller/finalize.rs", 1, ANSWER),
    ("shutdown/src/journal/writer.rs", 1, "a copy on disk that is missing costs no pod its end"),
    ("shutdown/src/report/unstored.rs", 2, "tries to keep a report for as long as it can"),
    ("systemd/src/logind/bus.rs", 1, "the connection ends with its reader, and another is made"),
    ("systemd/src/logind/bus/signal_verification.rs", 1, ONCE),
    ("systemd/src/units/client.rs", 2, "the connection ends with its reader, and another is made"),
];

/// The tasks without which an agent would stay alive and do nothing, each with the file that starts it. Without quotes in
/// the source, it is a variable: `name` of each plug-in and of each task of the pod workers.
const TASKS: [(&str, &str); 50] = [
    ("Node object", "node/src/cluster/start.rs"),
    ("a shutdown's progress", "programs/daemon/src/service.rs"),
    ("changes of services", "runtimes/process/src/systemd/listen.rs"),
    ("changes of the runtime", "node/src/lib.rs"),
    ("connection to the API server", "node/src/cluster/start.rs"),
    ("container runtime", "runtimes/cri/src/open.rs"),
    ("control server", "node/src/lib.rs"),
    ("control server", "programs/daemon/src/service.rs"),
    ("drain", "node/src/shutdown/drain.rs"),
    ("events", "node/src/cluster/start.rs"),
    ("eviction", "node/src/pressure.rs"),
    ("exit of a container", "runtimes/cri/src/exits.rs"),
    ("intake", "node/src/core.rs"),
    ("login manager", "systemd/src/logind.rs"),
    ("machine lock", "runtimes/engine/src/machine_lock.rs"),
    ("manifests", "node/src/core.rs"),
    ("manifests", "programs/daemon/src/service.rs"),
    ("mirror pods", "node/src/cluster/start.rs"),
    ("name", "node/src/lib.rs"),
    ("name", "shared/src/workers.rs"),
    ("name.as_str()", "node/src/plugin.rs"),
    ("nodes that go down first", "node/src/cluster/after_nodes.rs"),
    ("notices", "node/src/shutdown.rs"),
    ("ordered start", "node/src/ordered_start.rs"),
    ("outbox", "node/src/cluster/start.rs"),
    ("pods of the API", "node/src/cluster/start.rs"),
    ("pods of the kubelet", "programs/daemon/src/service/companion.rs"),
    ("prober of a container", "runtimes/engine/src/probing.rs"),
    ("reader of the Node object", "node/src/cluster/node_object.rs"),
    ("readiness of the API's pods", "node/src/cluster/start.rs"),
    ("report of a drain", "node/src/shutdown/drain.rs"),
    ("serving certificate", "programs/daemon/src/service/node_api.rs"),
    ("settings", "node/src/lib.rs"),
    ("shutdown block", "systemd/src/logind/block.rs"),
    ("shutdown guard", "node/src/guard.rs"),
    ("source of notices", "programs/daemon/src/service/notices.rs"),
    ("state of admission", "node/src/fit.rs"),
    ("state of the API server", "node/src/cluster/start.rs"),
    ("statuses after a boot", "node/src/cluster/start.rs"),
    ("statuses for the outbox", "node/src/cluster/start.rs"),
    ("teller of the cluster", "node/src/cluster/node_object.rs"),
    ("units of systemd", "systemd/src/units/client.rs"),
    ("unwanted pods", "node/src/lib.rs"),
    ("verdict on the node", "node/src/shutdown.rs"),
    ("volumes from the API", "node/src/cluster/start.rs"),
    ("wanted pods", "node/src/lib.rs"),
    ("watcher of a container", "runtimes/cri/src/exits.rs"),
    ("watcher of a container", "runtimes/process/src/process/watcher.rs"),
    ("watcher of a container", "runtimes/process/src/systemd/end.rs"),
    ("writer of termination notices", "runtimes/engine/src/termination_notices.rs"),
];

#[test]
fn each_task_that_the_agent_depends_on_is_started_as_such() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut found = Vec::new();
    for sources in sources(root) {
        look(&sources, &mut |path, text| {
            let file = path.strip_prefix(root).unwrap().display().to_string();
            for call in ["critical::spawn(", "critical::spawn_until(", "critical::spawn_stopping("]
            {
                let names = text.split(call).skip(1).map(|rest| rest.split(',').next().unwrap());
                found.extend(
                    names.map(|name| (name.trim().trim_matches('"').to_owned(), file.clone())),
                );
            }
        });
    }
    found.sort();
    let listed = TASKS.map(|(task, file)| (task.to_owned(), file.to_owned()));
    assert_eq!(found, listed);
}

#[tokio::test]
async fn the_panic_of_a_task_that_the_agent_depends_on_ends_its_process_with_a_code_of_its_own() {
    const ITSELF: &str = "WINDDOWN_TEST_LOSES_A_TASK";
    if std::env::var_os(ITSELF).is_some() {
        assert!(critical::on_failure(EndProcess(Log::to(|line| eprintln!("{line}")))));
        let _ = critical::spawn("intake", async { std::panic::panic_any("broken") }).await;
        return;
    }
    let name =
        "the_panic_of_a_task_that_the_agent_depends_on_ends_its_process_with_a_code_of_its_own";
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", &format!("end_process::tests::{name}"), "--nocapture"]);
    let ended = again.env(ITSELF, "1").output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(TASK_LOST.into()), "{said}");
}

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
