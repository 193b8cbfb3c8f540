use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;
use tokio::time::Instant;
use winddown_shared::WallTime;

use super::{manifest, put};
use crate::DesiredManifests;
use crate::scan::{SETTLE_TIME, Scanner};

/// A directory, its scanner, and a clock that the test moves.
struct Bench {
    root: TempDir,
    scanner: Scanner,
    now: Instant,
    wall: WallTime,
}

impl Bench {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("pods")).unwrap();
        let scanner = scanner(&root);
        // Far behind the files' times, so that each of them has to settle.
        Self { root, scanner, now: Instant::now(), wall: Timestamp::UNIX_EPOCH }
    }

    fn pods(&self) -> PathBuf {
        self.root.path().join("pods")
    }

    fn put(&self, name: &str, text: &str) {
        put(&self.pods(), name, text);
    }

    /// Scans, with a hint that these files were closed.
    fn look(&mut self, closed: &[&str]) -> DesiredManifests {
        let closed: HashSet<OsString> = closed.iter().map(OsString::from).collect();
        self.scanner.scan(&closed, self.now, self.wall);
        self.scanner.desired(self.wall)
    }

    /// Scans twice, so that everything has settled.
    fn settle(&mut self) -> DesiredManifests {
        self.look(&[]);
        self.wait(SETTLE_TIME);
        self.look(&[])
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.wall += SignedDuration::try_from(time).unwrap();
    }
}

fn scanner(root: &TempDir) -> Scanner {
    let mut scanner = Scanner::new(root.path().join("pods"), "node1".to_owned());
    scanner.keep_in(root.path().join("kept"));
    scanner
}

fn names(desired: &DesiredManifests) -> Vec<String> {
    desired.pods.iter().map(|pod| pod.name().to_string()).collect()
}

fn errors(bench: &Bench, desired: &DesiredManifests) -> Vec<String> {
    let root = format!("{}/", bench.root.path().display());
    desired.errors.iter().map(|error| error.to_string().replace(&root, "")).collect()
}

#[test]
fn pods_come_in_the_order_of_their_files() {
    let mut bench = Bench::new();
    bench.put("b.yaml", &manifest("one", "ls"));
    bench.put("a.json", &manifest("two", "ls"));
    bench.put("c.yml", &manifest("three", "ls"));
    let desired = bench.settle();
    assert_eq!(names(&desired), ["two-node1", "one-node1", "three-node1"]);
    assert!(desired.complete);
}

#[test]
fn a_file_is_read_when_it_has_settled_and_not_before() {
    let mut bench = Bench::new();
    bench.put("a.yaml", &manifest("web", "ls"));
    let desired = bench.look(&[]);
    assert_eq!((names(&desired).len(), desired.complete), (0, false));
    bench.wait(SETTLE_TIME / 2);
    bench.put("a.yaml", &manifest("web", "ls, -l"));
    bench.look(&[]);
    bench.wait(SETTLE_TIME / 2);
    assert_eq!(names(&bench.look(&[])), [""; 0]);
    bench.wait(SETTLE_TIME / 2);
    let desired = bench.look(&[]);
    assert_eq!((names(&desired), desired.complete), (vec!["web-node1".to_owned()], true));
}

#[test]
fn a_file_that_its_writer_closed_is_read_at_once() {
    let mut bench = Bench::new();
    bench.put("a.yaml", &manifest("web", "ls"));
    assert_eq!(names(&bench.look(&["a.yaml"])), ["web-node1"]);
}

#[test]
fn a_file_that_was_untouched_for_a_while_is_read_at_once() {
    let mut bench = Bench::new();
    bench.put("a.yaml", &manifest("web", "ls"));
    bench.wall = Timestamp::MAX;
    assert_eq!(names(&bench.look(&[])), ["web-node1"]);
}

#[test]
fn an_unchanged_file_stays_the_same_object() {
    let mut bench = Bench::new();
    bench.put("a.yaml", &manifest("web", "ls"));
    let before = bench.settle().pods[0].clone();
    assert!(before.is_same_object(&bench.look(&["a.yaml"]).pods[0]));
    bench.put("a.yaml", &format!("# why\n{}", manifest("web", "ls")));
    assert!(before.is_same_object(&bench.settle().pods[0]));
}

#[test]
fn a_change_gives_a_new_uid_under_the_same_name() {
    let mut bench = Bench::new();
    bench.put("a.yaml", &manifest("web", "ls"));
    let before = bench.settle().pods[0].clone();
    bench.put("a.yaml", &manifest("web", "ps"));
    let after = bench.settle().pods[0].clone();
    assert_ne!(before.uid(), after.uid());
    assert_eq!(before.full_name(), after.full_name());
}

#[test]
fn a_change_within_the_clocks_resolution_is_seen_when_its_writer_closes_it() {
    let mut bench = Bench::new();
    let path = bench.pods().join("a.yaml");
    std::fs::write(&path, manifest("web", "ls")).unwrap();
    let before = bench.look(&["a.yaml"]).pods[0].clone();
    std::fs::write(&path, manifest("web", "ps")).unwrap();
    assert_ne!(before.uid(), bench.look(&["a.yaml"]).pods[0].uid());
}

#[test]
fn a_broken_edit_keeps_the_running_pod_and_touches_no_other() {
    let mut bench = Bench::new();
    bench.put("a.yaml", &manifest("web", "ls"));
    bench.put("b.yaml", &manifest("db", "ls"));
    let before = bench.settle();
    bench.put("a.yaml", &manifest("web", "ls").replace("command", "comand"));
    let after = bench.settle();
    assert!(after.pods.iter().zip(&before.pods).all(|(a, b)| a.is_same_object(b)));
    assert!(after.complete);
    assert_eq!(
        errors(&bench, &after),
        [
            "pods/a.yaml:7:7: spec.containers[0]: has neither `image` nor `command`: write what \
             it runs",
            "pods/a.yaml:8:7: spec.containers[0].comand: unknown field: did you mean `command`?",
        ]
    );
    let since = after.errors[0].since;
    assert!(after.errors[0].kept);
    bench.wait(Duration::from_secs(60));
    assert_eq!(bench.look(&[]).errors[0].since, since);
    bench.put("a.yaml", &manifest("web", "ps"));
    let fixed = bench.settle();
    assert_eq!(errors(&bench, &fixed), [""; 0]);
    assert_ne!(fixed.pods[0].uid(), before.pods[0].uid());
}

#[test]
fn a_manifest_that_was_broken_from_the_start_makes_the_set_incomplete() {
    let mut bench = Bench::new();
    bench.put("a.yaml", "kind: Pod\n");
    bench.put("b.yaml", &manifest("db", "ls"));
    let desired = bench.settle();
    assert_eq!((names(&desired), desired.complete), (vec!["db-node1".to_owned()], false));
    assert!(!desired.errors[0].kept);
}

#[test]
fn an_empty_file_in_place_of_a_manifest_is_a_broken_edit() {
    let mut bench = Bench::new();
    bench.put("a.yaml", &manifest("web", "ls"));
    bench.settle();
    bench.put("a.yaml", "");
    let desired = bench.settle();
    assert_eq!(names(&desired), ["web-node1"]);
    assert_eq!(
        errors(&bench, &desired),
        ["pods/a.yaml: the file is empty: nothing but comments and blanks"]
    );
}

#[test]
fn an_empty_file_holds_no_pod_once_nobody_can_be_writing_it() {
    let mut bench = Bench::new();
    bench.put("keepalived.yaml", "# nothing yet\n");
    let written = std::fs::metadata(bench.pods().join("keepalived.yaml")).unwrap().modified();
    bench.wall = Timestamp::try_from(written.unwrap()).unwrap();
    let desired = bench.settle();
    assert_eq!((desired.complete, desired.errors[0].may_run), (false, true));
    bench.wait(bench.scanner.until_empty(bench.wall).unwrap());
    let desired = bench.look(&[]);
    assert_eq!((desired.complete, desired.errors[0].may_run), (true, false));
    let said = "pods/keepalived.yaml: the file is empty: nothing but comments and blanks";
    assert_eq!(errors(&bench, &desired), [said], "it is still named");
    assert_eq!(bench.scanner.until_empty(bench.wall), None);
    // Somebody writes it after all.
    std::fs::write(bench.pods().join("keepalived.yaml"), "kind: P").unwrap();
    assert!(!bench.look(&[]).complete);
    bench.wait(Duration::from_secs(3600));
    let invalid = bench.look(&[]);
    assert!(!invalid.complete, "what cannot be read may be any pod's manifest");
    assert!(!invalid.awaited, "it may stay as it is");
}

#[test]
fn what_is_no_file_holds_no_pod_and_a_link_that_leads_nowhere_yet_does() {
    let mut bench = Bench::new();
    std::fs::create_dir(bench.pods().join("lost+found")).unwrap();
    symlink("/dev/null", bench.pods().join("masked.yaml")).unwrap();
    let desired = bench.settle();
    assert_eq!((desired.complete, desired.errors.len()), (true, 2));
    symlink("/mnt/not-mounted-yet", bench.pods().join("web.yaml")).unwrap();
    assert!(!bench.settle().complete);
}

#[test]
fn a_removed_file_takes_its_pod_along_once_it_stays_away() {
    let mut bench = Bench::new();
    bench.put("a.yaml", &manifest("web", "ls"));
    bench.settle();
    std::fs::remove_file(bench.pods().join("a.yaml")).unwrap();
    assert_eq!(names(&bench.look(&[])), ["web-node1"]);
    bench.wait(SETTLE_TIME);
    let desired = bench.look(&[]);
    assert_eq!((names(&desired).len(), desired.complete), (0, true));
}

#[test]
fn a_file_that_an_editor_removes_and_writes_anew_keeps_its_pod() {
    let mut bench = Bench::new();
    bench.put("a.yaml", &manifest("web", "ls"));
    let before = bench.settle().pods[0].clone();
    std::fs::rename(bench.pods().join("a.yaml"), bench.pods().join("a.yaml~")).unwrap();
    bench.look(&[]);
    bench.wait(SETTLE_TIME / 2);
    bench.put("a.yaml", &manifest("web", "ls"));
    let desired = bench.settle();
    assert!(desired.pods[0].is_same_object(&before));
    assert_eq!(errors(&bench, &desired), [of_copy("a.yaml~", "an editor's backup")]);
    assert!(desired.complete);
}

#[test]
fn two_files_with_the_same_pod_are_an_error_that_names_both() {
    let mut bench = Bench::new();
    bench.put("b.yaml", &manifest("web", "ps"));
    let first = bench.settle().pods[0].clone();
    bench.put("c.yaml", &manifest("web", "ls"));
    let desired = bench.settle();
    assert!(desired.pods[0].is_same_object(&first));
    let message = "pods/c.yaml: metadata.name: the pod default/web-node1 is in pods/b.yaml \
                   already: remove one of the two files, or rename its pod";
    assert_eq!(errors(&bench, &desired), [message]);
    let since = desired.errors[0].since;
    bench.wait(SETTLE_TIME);
    assert_eq!(bench.look(&[]).errors[0].since, since);

    std::fs::remove_file(bench.pods().join("b.yaml")).unwrap();
    let desired = bench.settle();
    assert_eq!((desired.pods.len(), desired.errors.len()), (1, 0));
    assert_ne!(desired.pods[0].uid(), first.uid());
}

#[test]
fn the_next_agent_keeps_the_pod_that_runs_and_names_the_other_file_that_has_its_name() {
    let mut bench = Bench::new();
    bench.put("web-1.yaml", &manifest("web", "ls"));
    let runs = bench.settle().pods[0].clone();
    bench.put("web.yaml", &manifest("web", "ps"));
    let before = bench.settle();
    for _ in 0..2 {
        bench.scanner = scanner(&bench.root);
        bench.wait(Duration::from_secs(60));
        let desired = bench.settle();
        let uids: Vec<_> = desired.pods.iter().map(|pod| pod.uid()).collect();
        assert_eq!(uids, [runs.uid()]);
        assert_eq!(desired.errors, before.errors, "since then");
    }
    std::fs::remove_file(bench.pods().join("web-1.yaml")).unwrap();
    bench.scanner = scanner(&bench.root);
    let desired = bench.settle();
    assert_eq!((names(&desired), desired.errors), (vec!["web-node1".to_owned()], vec![]));
}

#[test]
fn a_file_that_moves_is_no_second_file_with_the_same_pod() {
    let mut bench = Bench::new();
    bench.put("a.yaml", &manifest("web", "ls"));
    let before = bench.settle().pods[0].clone();
    std::fs::rename(bench.pods().join("a.yaml"), bench.pods().join("b.yaml")).unwrap();
    let desired = bench.look(&["b.yaml"]);
    assert!(desired.pods[0].is_same_object(&before) && desired.awaited);
    assert_eq!(desired.errors, []);
    bench.wait(SETTLE_TIME);
    let desired = bench.look(&[]);
    assert_eq!((names(&desired), desired.errors), (vec!["web-node1".to_owned()], vec![]));
}

#[test]
fn a_copy_of_a_manifest_ends_no_pod_whatever_its_name_is() {
    let mut bench = Bench::new();
    bench.put("web.yaml", &manifest("web", "ls"));
    let before = bench.settle().pods[0].clone();
    // As `cp web.yaml web-old.yaml` before a change does: the copy is the first by its name.
    bench.put("web-old.yaml", &manifest("web", "ls"));
    let desired = bench.settle();
    assert_eq!(desired.pods.len(), 1);
    assert!(desired.pods[0].is_same_object(&before));
    assert_eq!(desired.errors[0].file, bench.pods().join("web-old.yaml"));

    bench.put("web.yaml", &manifest("web", "ps"));
    let desired = bench.settle();
    assert_ne!(desired.pods[0].uid(), before.uid());
    assert_eq!(desired.errors[0].file, bench.pods().join("web-old.yaml"));

    std::fs::remove_file(bench.pods().join("web.yaml")).unwrap();
    let desired = bench.settle();
    assert_eq!((desired.pods.len(), desired.errors.len()), (1, 0));
}

/// One step of a program that changes a manifest.
#[derive(Clone, Copy)]
enum Step {
    Write(&'static str, &'static str),
    Move(&'static str, &'static str),
    Copy(&'static str, &'static str),
    Remove(&'static str),
    /// What is there now is seen, and has settled.
    Look,
}

#[test]
fn whatever_changes_a_manifest_starts_its_pod_once_and_never_what_it_leaves_behind() {
    use Step::{Copy, Look, Move, Remove, Write};
    let web = "web.yaml";
    let ways: [(&str, &[Step]); 10] = [
        (
            "vim",
            &[
                Write(".web.yaml.swp", "b0VIM"),
                Write("4913", ""),
                Remove("4913"),
                Move(web, "web.yaml~"),
                Write(web, "new"),
                Remove("web.yaml~"),
                Look,
                Remove(".web.yaml.swp"),
            ],
        ),
        ("vim, set backup", &[Move(web, "web.yaml~"), Write(web, "new"), Look]),
        ("nano --backup", &[Copy(web, "web.yaml~"), Look, Write(web, "new")]),
        (
            "emacs",
            &[
                Write(".#web.yaml", "root@n1.1"),
                Write("#web.yaml#", "half"),
                Look,
                Move(web, "web.yaml~"),
                Write(web, "new"),
                Remove("#web.yaml#"),
                Remove(".#web.yaml"),
            ],
        ),
        ("emacs, killed", &[Write("#web.yaml#", "new"), Look, Write(web, "new")]),
        (
            "kate",
            &[Write(".web.yaml.kate-swp", "x"), Copy(web, "web.yaml~"), Look, Write(web, "new")],
        ),
        ("cp web.yaml web.yaml.bak", &[Copy(web, "web.yaml.bak"), Look, Write(web, "new")]),
        (
            "ansible, backup: true",
            &[
                Copy(web, "web.yaml.712.2026-11-25@12:00:00~"),
                Write(".ansible_tmp1web.yaml", "new"),
                Look,
                Move(".ansible_tmp1web.yaml", web),
            ],
        ),
        ("rpm", &[Write("web.yaml.rpmnew", "other"), Look, Write(web, "new")]),
        (
            "dpkg",
            &[
                Write("web.yaml.dpkg-new", "new"),
                Look,
                Copy(web, "web.yaml.dpkg-old"),
                Move("web.yaml.dpkg-new", web),
            ],
        ),
    ];
    for (program, steps) in ways {
        let mut bench = Bench::new();
        bench.put(web, &manifest("web", "old"));
        let old = bench.settle().pods[0].uid().clone();
        let mut seen = vec![old.clone()];
        for step in steps.iter().chain([&Look]) {
            let at = |name: &str| bench.pods().join(name);
            match *step {
                Write(name, command) => {
                    let text = match command {
                        "old" | "new" | "other" => manifest("web", command),
                        text => text.to_owned(),
                    };
                    std::fs::write(at(name), text).unwrap();
                }
                Move(from, to) => std::fs::rename(at(from), at(to)).unwrap(),
                Copy(from, to) => drop(std::fs::copy(at(from), at(to)).unwrap()),
                Remove(name) => std::fs::remove_file(at(name)).unwrap(),
                Look => {
                    let desired = bench.settle();
                    assert_eq!(desired.pods.len(), 1, "{program}");
                    assert!(desired.complete, "{program}");
                    seen.push(desired.pods[0].uid().clone());
                }
            }
        }
        seen.dedup();
        assert_eq!(seen.len(), 2, "{program}: the old pod, then the new one");

        // The next agent finds the same.
        let mut next = Scanner::new(bench.pods(), "node1".to_owned());
        next.scan(&HashSet::new(), bench.now, Timestamp::MAX);
        let desired = next.desired(Timestamp::MAX);
        let uids: Vec<_> = desired.pods.iter().map(|pod| pod.uid().clone()).collect();
        assert_eq!(uids, seen[1..], "{program}: after a restart of the agent");

        // The pod ends with its manifest, unless its copy has a name that people give.
        std::fs::remove_file(bench.pods().join(web)).unwrap();
        let left = bench.settle().pods.len();
        assert_eq!(left, usize::from(program.ends_with(".bak")), "{program}");
    }
}

#[test]
fn of_two_files_that_a_new_agent_finds_the_one_with_the_shorter_name_is_the_original() {
    for copy in ["web-old.yaml", "copy-of-web.yaml", "web.yaml.backup", "0-web.yaml", "xeb.yaml"] {
        let mut bench = Bench::new();
        bench.put("web.yaml", &manifest("web", "ls"));
        let before = bench.settle().pods[0].uid().clone();
        bench.put(copy, &manifest("web", "ls"));
        bench.scanner = Scanner::new(bench.pods(), "node1".to_owned());
        let desired = bench.settle();
        assert_eq!((desired.pods.len(), desired.pods[0].uid()), (1, &before), "{copy}");
        assert_eq!(desired.errors[0].file, bench.pods().join(copy));
    }
}

#[test]
fn a_file_name_that_would_write_to_a_terminal_is_shown_as_it_is_written() {
    let mut bench = Bench::new();
    bench.put("a\x1b[2J\n\u{202e}.yaml", &manifest("web", "ls"));
    bench.put("b-with-a-longer-name.yaml", &manifest("web", "ls"));
    bench.put("c\x1b[2J\n\u{202e}.yaml", "kind: Pod\n");
    let errors = bench.settle().errors;
    let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let shows = |text: &str| shown.iter().any(|line| line.contains(text));
    assert!(shows("pods/a\\x1b[2J\\n\\u{202e}.yaml already"), "{shown:?}");
    assert!(shows("c\\x1b[2J\\n\\u{202e}.yaml:"), "{shown:?}");
}

#[test]
fn two_pods_of_the_same_uid_are_an_error_too() {
    let mut bench = Bench::new();
    let with_uid = |name: &str| manifest(name, "ls").replace("spec:", "  uid: same\nspec:");
    bench.put("a.yaml", &with_uid("one"));
    bench.put("b.yaml", &with_uid("two"));
    let desired = bench.settle();
    assert_eq!(names(&desired), ["one-node1"]);
    assert_eq!(desired.errors[0].field, "metadata.uid");
}

/// What is said of a program's own copy.
fn of_copy(name: &str, kind: &str) -> String {
    format!(
        "pods/{name}: is not run, its name is that of {kind}: rename it to have it run, or move it out of the directory"
    )
}

#[test]
fn each_file_starts_a_pod_or_is_named_unless_its_name_begins_with_a_dot() {
    // Of the kubelet's manifests, as kubeadm, GCE's and kops' scripts and Bottlerocket name them.
    let run = [
        "10-a",
        "A.YAML",
        "a.backup",
        "a.bak",
        "a.json",
        "a.manifest",
        "a.orig",
        "a.txt",
        "a.yaml",
        "a.yaml-bak",
        "a.yml",
        "etcd",
        "kube-apiserver",
        "sedAbC123",
        "~a.yaml",
    ];
    let copies = [
        ("#a.yaml#", "an editor's unsaved text"),
        ("4913", "a temporary file"),
        ("a.yaml.dpkg-dist", "a copy of a package manager"),
        ("a.yaml.dpkg-new", "a temporary file"),
        ("a.yaml.rpmsave", "a copy of a package manager"),
        ("a.yaml.save", "an editor's backup"),
        ("a.yaml.swp", "an editor's swap file"),
        ("a.yaml.tmp", "a temporary file"),
        ("a.yaml~", "an editor's backup"),
    ];
    let hidden = [".a.yaml", ".a.yaml.swp", ".#a.yaml", ".a.yaml.kate-swp", ".ansible_tmp1a.yaml"];
    let mut bench = Bench::new();
    for (number, name) in run.iter().enumerate() {
        bench.put(name, &manifest(&format!("p{number}"), "ls"));
    }
    for name in copies.iter().map(|(name, _)| name).chain(&hidden) {
        bench.put(name, &manifest("copy", "ls"));
    }
    std::fs::create_dir(bench.pods().join("more")).unwrap();
    let desired = bench.settle();
    let wanted: Vec<String> = (0..run.len()).map(|number| format!("p{number}-node1")).collect();
    assert_eq!(names(&desired), wanted);
    let mut said: Vec<String> = copies.iter().map(|(name, kind)| of_copy(name, kind)).collect();
    said.push(
        "pods/more: is a directory: only regular files and links to them are manifests".to_owned(),
    );
    assert_eq!(errors(&bench, &desired), said);
    assert!(desired.complete && desired.errors.iter().all(|one| !one.may_run), "none is a pod's");
}

#[test]
fn pipes_directories_and_dead_links_are_errors_and_never_waited_for() {
    let mut bench = Bench::new();
    let at = |name: &str| bench.pods().join(name);
    nix::unistd::mkfifo(&at("a.yaml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::create_dir(at("b.yaml")).unwrap();
    symlink("nowhere", at("c.yaml")).unwrap();
    symlink("d.yaml", at("d.yaml")).unwrap();
    symlink("/dev/null", at("e.yaml")).unwrap();
    let desired = bench.settle();
    let said = errors(&bench, &desired);
    let special = |name: &str, kind: &str| {
        format!("pods/{name}.yaml: is {kind}: only regular files and links to them are manifests")
    };
    assert_eq!(said[0], special("a", "a named pipe"));
    assert_eq!(said[1], special("b", "a directory"));
    assert_eq!(said[2], special("c", "a link that leads nowhere"));
    assert!(said[3].starts_with("pods/d.yaml: cannot be read: "), "{}", said[3]);
    assert_eq!(said[4], special("e", "a device"));
}

#[test]
fn links_that_are_swapped_together_are_followed() {
    // As Kubernetes' tools lay out a mounted ConfigMap.
    let mut bench = Bench::new();
    let pods = bench.pods();
    let version = |name: &str, command: &str| {
        std::fs::create_dir(pods.join(name)).unwrap();
        std::fs::write(pods.join(name).join("web.yaml"), manifest("web", command)).unwrap();
        symlink(name, pods.join("..data_tmp")).unwrap();
        std::fs::rename(pods.join("..data_tmp"), pods.join("..data")).unwrap();
    };
    version("..1", "ls");
    symlink("..data/web.yaml", pods.join("web.yaml")).unwrap();
    let before = bench.settle().pods[0].clone();
    version("..2", "ps");
    let desired = bench.settle();
    assert_ne!(desired.pods[0].uid(), before.uid());
    assert_eq!(desired.errors, []);
}

#[test]
fn a_directory_that_goes_away_keeps_its_pods() {
    let mut bench = Bench::new();
    bench.put("a.yaml", &manifest("web", "ls"));
    let before = bench.settle().pods[0].clone();
    let moved = bench.root.path().join("moved");
    std::fs::rename(bench.pods(), &moved).unwrap();
    let desired = bench.settle();
    assert!(desired.pods[0].is_same_object(&before));
    assert!(!desired.complete);
    assert_eq!(
        errors(&bench, &desired),
        ["pods: does not exist: create it; pods that came from it are kept until it is there"]
    );
    std::fs::rename(&moved, bench.pods()).unwrap();
    let desired = bench.settle();
    assert!(desired.pods[0].is_same_object(&before));
    assert!(desired.complete && desired.errors.is_empty());
}

#[test]
fn a_directory_that_was_never_there_is_no_reason_to_end_a_pod() {
    let mut bench = Bench::new();
    std::fs::remove_dir(bench.pods()).unwrap();
    assert!(!bench.settle().complete);
    std::fs::write(bench.pods(), "").unwrap();
    let desired = bench.settle();
    assert_eq!(
        errors(&bench, &desired),
        ["pods: is not a directory: pods that came from it are kept until it is one"]
    );
}

#[test]
fn a_file_that_is_too_large_is_an_error() {
    let mut bench = Bench::new();
    std::fs::write(bench.pods().join("a.yaml"), vec![b' '; 3 << 20]).unwrap();
    let desired = bench.settle();
    let message = "pods/a.yaml: the file is larger than 1048576 bytes";
    assert_eq!(errors(&bench, &desired), [message]);
}

#[test]
fn a_gigabyte_of_nothing_is_read_only_as_far_as_it_takes_to_refuse_it() {
    let mut bench = Bench::new();
    let file = std::fs::File::create(bench.pods().join("a.yaml")).unwrap();
    file.set_len(1 << 30).unwrap();
    bench.put("b.yaml", &manifest("web", "ls"));
    let begun = Instant::now();
    let desired = bench.settle();
    let took = begun.elapsed();
    let message = "pods/a.yaml: the file is larger than 1048576 bytes";
    assert_eq!(errors(&bench, &desired), [message]);
    assert_eq!(names(&desired), ["web-node1"]);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn twenty_thousand_empty_files_hide_no_pod() {
    let mut bench = Bench::new();
    bench.put("b.yaml", &manifest("web", "ls"));
    // Hard links to one file, so that the disk only has to create names.
    for turn in 0..2 {
        let source = bench.root.path().join(format!("empty{turn}"));
        std::fs::write(&source, "").unwrap();
        for number in 0..10_000 {
            std::fs::hard_link(&source, bench.pods().join(format!("{turn}-{number}.txt"))).unwrap();
        }
    }
    let desired = bench.settle();
    assert_eq!(names(&desired), ["web-node1"]);
    assert_eq!(desired.errors.len(), 20_000, "each is named");
}
