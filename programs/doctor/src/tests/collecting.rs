//! Tests of the observations, with a directory as root and a stand-in for logind.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use winddown_shared::WallClock;
use winddown_systemd::stand_in::{Behaviour, StandIn};
use winddown_systemd::{Bus, InhibitorConfig, LogindInhibitor};

use super::*;

/// A root with the files of an installation.
struct Root(TempDir);

impl Root {
    fn new() -> Self {
        let root = Self(TempDir::new().unwrap());
        root.put("etc/systemd/system/winddown.service", "[Unit]\n");
        root.put("etc/systemd/system/cri-containerd-.scope.d/50-winddown.conf", "[Unit]\n");
        root.put("etc/systemd/logind.conf.d/zz-winddown.conf", "[Login]\nInhibitDelayMaxSec=37\n");
        root.put("etc/winddown/config.yaml", CONFIG);
        root.put("proc/1/comm", "systemd\n");
        fs::create_dir_all(root.path().join("var/lib/winddown")).unwrap();
        root
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn put(&self, file: &str, text: &str) {
        let path = self.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn place(&self, bus: Bus) -> ObservedNode {
        ObservedNode {
            root: self.path().to_owned(),
            live: true,
            config: None,
            socket: winddown_control::DEFAULT_SOCKET.into(),
            bus,
            patience: secs(20),
            wall: WallClock::fixed(now()),
        }
    }
}

/// What makes an agent a companion.
const COMPANION: &str = "mode: companion\nruntime: cri\nkubeconfig: /etc/kubernetes/kubelet.conf\n";
const CONFIG: &str = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\n\
                      shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n";

#[tokio::test]
async fn a_root_and_a_logind_are_seen_as_they_are() {
    let root = Root::new();
    root.put("usr/local/lib/systemd/system/crio-.scope.d/50-winddown.conf", "[Unit]\n");
    let logind = StandIn::new(secs(37));
    let mut holder = InhibitorConfig::new(secs(30));
    holder.bus = logind.peer();
    let _holder = LogindInhibitor::start(holder);
    logind.until_locks(|locks| !locks.is_empty()).await;
    let facts = collect(&root.place(logind.peer())).await;
    assert_eq!(facts.config.read, ConfigRead::Valid(Vec::new()));
    assert_eq!(facts.budget, secs(30));
    let login = facts.bus.login.known().expect("logind answers");
    assert_eq!(login.delay, secs(37));
    assert!(login.locks.iter().any(|lock| lock.who == "winddown"));
    let setting = facts.files.setting.known().unwrap().as_ref().unwrap();
    assert_eq!(setting.file, path("/etc/systemd/logind.conf.d/zz-winddown.conf"));
    let installed = facts.files.installed.known().unwrap();
    assert!(installed.unit && !installed.enabled, "{installed:?}");
    assert_eq!(installed.ordered_scopes, ["cri-containerd-", "crio-"]);
    let state = facts.files.state.known().expect("it can be written");
    assert_eq!(state.unwritable, None);
    let left: Vec<_> = fs::read_dir(&state.path).unwrap().collect();
    assert!(left.is_empty(), "what was written is gone again: {left:?}");
    assert_eq!(facts.files.reports, Fact::Known(ReportList::default()));
    assert_eq!(
        facts.agent.not_observed(),
        Some(NotObserved::Absent),
        "no agent listens below the root"
    );
    let lock = finding(&facts, "lock").unwrap();
    assert_eq!(lock.severity, Severity::Warning, "a lock without an agent: {lock:?}");
}

#[tokio::test]
async fn an_answer_that_is_refused_is_another_finding_than_none() {
    let root = Root::new();
    let logind = StandIn::new(secs(5));
    logind.set_behaviour("ListInhibitors", Behaviour::Refuse);
    let facts = collect(&root.place(logind.peer())).await;
    assert_eq!(facts.bus.login.not_observed(), Some(NotObserved::Failed));
    assert_eq!(finding(&facts, "logind").unwrap().severity, Severity::Warning);
}

#[tokio::test(start_paused = true)]
async fn a_bus_and_an_agent_that_hang_become_findings() {
    let root = Root::new();
    // A socket whose connections are never accepted.
    let socket = root.path().join("run/winddown/winddown.sock");
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let _listens = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let facts = collect(&root.place(hung_bus())).await;
    assert_eq!(facts.bus.login.not_observed(), Some(NotObserved::Silent));
    assert_eq!(facts.bus.service.not_observed(), Some(NotObserved::Silent));
    assert_eq!(facts.agent.not_observed(), Some(NotObserved::Silent));
    for id in ["agent", "logind", "unit"] {
        assert_eq!(finding(&facts, id).unwrap().severity, Severity::Problem, "{id}");
    }
}

#[tokio::test]
async fn an_image_is_looked_at_by_its_files_alone() {
    let root = Root::new();
    let wants = root.path().join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants).unwrap();
    std::os::unix::fs::symlink(
        "/etc/systemd/system/winddown.service",
        wants.join("winddown.service"),
    )
    .unwrap();
    root.put(
        "var/lib/kubelet/config.yaml",
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nshutdownGracePeriod: 1m\n",
    );
    let place = ObservedNode { live: false, ..root.place(hung_bus()) };
    let facts = collect(&place).await;
    let found = findings(&facts);
    let ids: Vec<_> = found.iter().map(|finding| finding.id).collect();
    assert_eq!(
        ids,
        ["periods", "delay", "unit", "boot", "scopes", "kubelet", "config", "last-shutdown"]
    );
    let warned: Vec<_> = found.iter().filter(|f| f.severity > Severity::Ok).collect();
    assert_eq!(warned.len(), 1, "{warned:#?}");
    assert_eq!(warned[0].id, "kubelet");
    let below = |file: &str| root.path().join(file).display().to_string();
    let of_kubelet = below("var/lib/kubelet/config.yaml:3: shutdownGracePeriod: 1m");
    assert_eq!(warned[0].evidence, [of_kubelet]);
    let config = below("etc/winddown/config.yaml");
    fs::remove_file(&config).unwrap();
    let found = finding(&collect(&place).await, "config").unwrap();
    assert_eq!(found.evidence, [format!("{config} is not there")]);
    let advice = format!("`winddown config default > {config}` writes the defaults, to be changed");
    assert_eq!(found.advice, [advice], "never the host's file");
}

#[tokio::test]
async fn a_package_whose_unit_is_masked_is_not_taken_for_installed() {
    let root = Root::new();
    let mask = root.path().join("etc/systemd/system/winddown.service");
    fs::remove_file(&mask).unwrap();
    std::os::unix::fs::symlink("/dev/null", &mask).unwrap();
    root.put("usr/lib/systemd/system/winddown.service", "[Unit]\n");
    let facts = collect(&ObservedNode { live: false, ..root.place(no_bus()) }).await;
    assert_eq!(finding(&facts, "unit").unwrap().severity, Severity::Problem);
}

#[tokio::test]
async fn what_is_wrong_with_the_configuration_is_told_with_its_line() {
    let root = Root::new();
    root.put("etc/winddown/config.yaml", &CONFIG.replace("30s", "30 bananas"));
    let facts = collect(&root.place(no_bus())).await;
    let found = finding(&facts, "config").unwrap();
    assert_eq!(found.severity, Severity::Problem);
    assert!(found.evidence[0].contains("config.yaml:3"), "{found:?}");
    fs::remove_file(root.path().join("etc/winddown/config.yaml")).unwrap();
    let facts = collect(&root.place(no_bus())).await;
    assert_eq!(facts.config.read, ConfigRead::Defaults);
    root.put("var/lib/winddown/last-config.yaml", &format!("{CONFIG}maxPods: 7\n"));
    let facts = collect(&root.place(no_bus())).await;
    assert_eq!(facts.config.config.node.max_pods, 7);
    let found = finding(&facts, "config").unwrap();
    assert_eq!(found.severity, Severity::Problem);
    assert!(found.title.contains("the last one in effect is used"), "{found:?}");
    root.put("etc/winddown/config.yaml", &CONFIG.replace("30s", "30 bananas"));
    let facts = collect(&root.place(no_bus())).await;
    assert_eq!(facts.config.config.node.max_pods, 7);
    let found = finding(&facts, "config").unwrap();
    assert_eq!(found.severity, Severity::Problem);
    assert!(found.title.contains("wrong: the last one in effect is used"), "{found:?}");
    assert!(found.evidence[0].contains("config.yaml:3"), "{found:?}");
    assert!(!found.advice.concat().contains("cp "), "that would lose the change: {found:?}");
    let named = ObservedNode { config: Some("/nonexistent/c.yaml".into()), ..root.place(no_bus()) };
    let facts = collect(&named).await;
    assert!(matches!(facts.config.read, ConfigRead::Invalid(_)), "{:?}", facts.config.read);
}

#[tokio::test]
async fn the_runtimes_socket_is_tried() {
    let root = Root::new();
    root.put("etc/winddown/config.yaml", &format!("{CONFIG}runtime: cri\n"));
    let socket = root.path().join("run/containerd/containerd.sock");
    let facts = collect(&root.place(no_bus())).await;
    assert_eq!(facts.runtime.endpoint.not_observed(), Some(NotObserved::Absent));
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let listens = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let facts = collect(&root.place(no_bus())).await;
    assert_eq!(facts.runtime.endpoint, Fact::Known(()));
    drop(listens);
    let facts = collect(&root.place(no_bus())).await;
    assert_eq!(
        facts.runtime.endpoint.not_observed(),
        Some(NotObserved::Absent),
        "nothing listens now"
    );
}

#[tokio::test]
async fn commands_are_followed_below_the_root() {
    let root = Root::new();
    let sbin = root.path().join("usr/sbin");
    fs::create_dir_all(&sbin).unwrap();
    std::os::unix::fs::symlink("/bin/systemctl", sbin.join("poweroff")).unwrap();
    std::os::unix::fs::symlink("loop", sbin.join("loop")).unwrap();
    std::os::unix::fs::symlink("loop", sbin.join("halt")).unwrap();
    fs::write(sbin.join("reboot"), "#!/bin/sh\n").unwrap();
    let facts = collect(&root.place(no_bus())).await;
    let leads: Vec<_> =
        facts.files.commands.known().unwrap().iter().map(|c| &*c.leads_to).collect();
    assert_eq!(
        leads,
        [Path::new("/usr/sbin/reboot"), Path::new("/bin/systemctl"), Path::new("/usr/sbin/loop")]
    );
}

#[tokio::test]
async fn a_state_directory_that_is_a_file_is_no_directory() {
    let root = Root::new();
    fs::remove_dir(root.path().join("var/lib/winddown")).unwrap();
    root.put("var/lib/winddown", "");
    let facts = collect(&root.place(no_bus())).await;
    assert_eq!(facts.files.state.not_observed(), Some(NotObserved::Absent));
}

/// A bus that accepts connections and never answers.
fn hung_bus() -> Bus {
    let held = Arc::new(Mutex::new(Vec::new()));
    Bus::Peer(Arc::new(move || {
        let (ours, theirs) = UnixStream::pair()?;
        held.lock().map_err(|_| io::Error::other("poisoned"))?.push(theirs);
        Ok(ours)
    }))
}

/// A bus that refuses connections.
fn no_bus() -> Bus {
    Bus::Peer(Arc::new(|| Err(io::ErrorKind::ConnectionRefused.into())))
}

/// The line of a process that is entirely this user's.
fn own_users() -> String {
    let own = rustix::process::geteuid();
    format!("Uid:\t{own}\t{own}\t{own}\t{own}\n")
}

/// Every user can start processes with the name of an OOM killer.
#[tokio::test]
async fn killers_crowd_no_kubelet_out() {
    let root = Root::new();
    root.put("proc/9000/comm", "kubelet\n");
    root.put("proc/9000/status", &own_users());
    (100..200).for_each(|pid| root.put(&format!("proc/{pid}/comm"), "earlyoom\n"));
    let facts = collect(&root.place(no_bus())).await;
    assert_eq!(facts.kubelet.processes.known().unwrap().len(), 1);
    assert_eq!(facts.runtime.killers.known().unwrap().len(), 32);
}

/// k3s overwrites its own file at each start.
#[tokio::test]
async fn a_kubelet_with_a_directory_of_drop_ins_is_told_by_one_more() {
    let root = Root::new();
    let kept = "var/lib/rancher/k3s/agent/etc/kubelet.conf.d";
    let defaults = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nshutdownGracePeriod: 60s\n";
    root.put(&format!("{kept}/00-k3s-defaults.conf"), defaults);
    root.put("proc/9/comm", "k3s-server\n");
    root.put("proc/9/status", &own_users());
    root.put("etc/winddown/config.yaml", &format!("{CONFIG}{COMPANION}"));
    root.put("proc/9/cgroup", "0::/system.slice/k3s.service\n");
    let facts = collect(&root.place(no_bus())).await;
    let finding = finding(&facts, "kubelet").unwrap();
    assert!(finding.evidence.iter().any(|line| line.contains("00-k3s-defaults.conf:3")));
    let fix = finding.fix.as_slice();
    let [start, write, restart] = fix else { panic!("{finding:#?}") };
    assert_eq!(start, "systemctl enable winddown && systemctl restart winddown");
    assert_eq!(restart, "systemctl restart k3s");
    // Typed as it stands, it is what the kubelet reads.
    let place = root.path().display();
    let typed = write.replace("/var/lib/", &format!("{place}/var/lib/"));
    let done = std::process::Command::new("sh").args(["-ec", &typed]).status().unwrap();
    assert!(done.success(), "{typed}");
    let config = winddown_companion::kubelet::find(root.path(), true)[0].configuration(root.path());
    let config = config.unwrap();
    assert_eq!((config.problem.as_ref(), config.ends_pods()), (None, None), "{typed}");
    let last = config.files.last().unwrap();
    assert_eq!(last, std::path::Path::new(&format!("/{kept}/99-winddown.conf")));
    // Of several files, the one that has the last word is named.
    let facts = collect(&root.place(no_bus())).await;
    let kubelet = facts.kubelet.config.known().unwrap().as_ref().unwrap();
    assert_eq!(kubelet.place, format!("/{kept}/99-winddown.conf:3"));
}

/// Many machines have their logs on a disk of their own, and lost them without a word.
#[tokio::test]
async fn a_link_in_place_of_the_directory_of_logs_is_found_with_the_directory_that_it_leads_to() {
    let root = Root::new();
    root.put("data/logs/x", "");
    root.put("etc/winddown/config.yaml", &format!("{CONFIG}podLogsDir: /var/log/pods\n"));
    root.put("var/log/x", "");
    std::os::unix::fs::symlink("../../data/logs", root.path().join("var/log/pods")).unwrap();
    let facts = collect(&root.place(no_bus())).await;
    let found = finding(&facts, "logs").unwrap();
    assert!(found.evidence[0].ends_with("pods is a symbolic link, not a directory"), "{found:?}");
    let directory = root.path().canonicalize().unwrap().join("data/logs");
    assert!(
        found.advice[0].contains(&format!("podLogsDir: {} ", directory.display())),
        "{found:?}"
    );
    std::fs::remove_file(root.path().join("var/log/pods")).unwrap();
    assert_eq!(finding(&collect(&root.place(no_bus())).await, "logs"), None);
}
