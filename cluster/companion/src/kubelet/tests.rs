mod recorded;

use std::fs;

use super::*;

struct Root(tempfile::TempDir);

impl Root {
    fn with(files: &[(&str, &str)]) -> Self {
        let root = Self(tempfile::TempDir::new().unwrap());
        files.iter().for_each(|(file, text)| root.put(file, text));
        root
    }

    fn put(&self, file: &str, text: &str) {
        let path = self.0.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        if file.starts_with("proc/") && file.ends_with("/comm") {
            let own = rustix::process::geteuid();
            fs::write(path.with_file_name("status"), format!("Uid:\t{own}\t{own}\t{own}\t{own}\n"))
                .unwrap();
        }
    }

    fn link(&self, file: &str, to: &str) {
        let path = self.0.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(to, path).unwrap();
    }

    /// The names of the running kubelets, and what is said of processes that are called so and are none.
    fn running(&self) -> (Vec<String>, Vec<String>) {
        let strangers = processes::kubelets(self.0.path()).unwrap().strangers;
        let strangers = strangers.iter().map(|(process, why)| format!("{}: {why}", process.pid));
        (running(self.0.path()).iter().map(Kubelet::name).collect(), strangers.collect())
    }

    fn find(&self, live: bool) -> Vec<Kubelet> {
        find(self.0.path(), live)
    }

    /// The configuration of the first kubelet, or the one at a usual place.
    fn config(&self) -> Option<MergedConfiguration> {
        self.find(true).into_iter().next().unwrap_or_default().configuration(self.0.path())
    }

    /// The location and text of the field that makes the kubelet stop pods.
    fn ends(&self) -> (String, String) {
        let said = self.config().expect("there is a file").ends_pods();
        said.map(|said| (said.to_string(), said.value)).unwrap_or_default()
    }
}

/// A kubelet's configuration with these lines first.
fn configuration(lines: &str) -> String {
    format!("{lines}{}\n", periods::HEAD.join("\n"))
}

const FILE: &str = "var/lib/kubelet/config.yaml";
/// Of a machine whose processes started after the files were written.
const LATER: &str = "btime 9999999999\n";
const K3S_CONTAINERD: &str = "unix:///run/k3s/containerd/containerd.sock";

#[test]
fn the_field_that_decides_is_found_with_its_line() {
    for (text, place, enabled) in [
        (
            "shutdownGracePeriod: 30s\n",
            "/var/lib/kubelet/config.yaml:1",
            "shutdownGracePeriod: 30s",
        ),
        ("a: 1\nshutdownGracePeriod: 0s\n", "", ""),
        ("", "", ""),
        ("featureGates:\n  GracefulNodeShutdown: false\nshutdownGracePeriod: 30s\n", "", ""),
        (
            "x: 1\nshutdownGracePeriodByPodPriority:\n- priority: 0\n",
            "/var/lib/kubelet/config.yaml:2",
            "shutdownGracePeriodByPodPriority has 1 group",
        ),
        ("shutdownGracePeriodByPodPriority: []\n", "", ""),
    ] {
        let root = Root::with(&[(FILE, &configuration(text))]);
        assert_eq!(root.config().unwrap().problem, None, "{text:?}");
        assert_eq!(root.ends(), (place.to_owned(), enabled.to_owned()), "{text:?}");
    }
    let json = "{\"apiVersion\": \"kubelet.config.k8s.io/v1beta1\", \"kind\": \"KubeletConfiguration\",\n \
                \"shutdownGracePeriod\" : \"5m\"\n}\n";
    let place = "/var/lib/kubelet/config.yaml:2".to_owned();
    assert_eq!(Root::with(&[(FILE, json)]).ends(), (place, "shutdownGracePeriod: 5m".to_owned()));
    assert_eq!(Root::with(&[]).config(), None);
}

#[test]
fn all_the_time_that_a_kubelet_gives_is_summed() {
    for (text, seconds) in [
        ("shutdownGracePeriod: 1m30s\nshutdownGracePeriodCriticalPods: 30s\n", 90),
        (
            "shutdownGracePeriodByPodPriority:\n- {priority: 0, shutdownGracePeriodSeconds: 20}\n\
             - {priority: 9, shutdownGracePeriodSeconds: 15}\n",
            35,
        ),
        ("shutdownGracePeriod: 0s\n", 0),
    ] {
        let found = Root::with(&[(FILE, &configuration(text))]).config().unwrap();
        assert_eq!(found.wanted().as_secs(), seconds, "{text}");
    }
}

#[test]
fn a_running_kubelet_tells_which_files_it_reads() {
    let root = Root::with(&[
        ("proc/9/comm", "kubelet\n"),
        (
            "proc/9/cmdline",
            "/usr/bin/kubelet\0--v=2\0--config\0/etc/k.yaml\0--config-dir=/etc/k.d\0",
        ),
        (FILE, &configuration("shutdownGracePeriod: 1h\n")),
        ("etc/k.yaml", &configuration("shutdownGracePeriod: 30s\n")),
        ("etc/k.d/10-a.conf", &configuration("shutdownGracePeriod: 40s\n")),
        ("etc/k.d/20-more/b.conf", &configuration("shutdownGracePeriodCriticalPods: 5s\n")),
        ("etc/k.d/README", "not: [yaml"),
    ]);
    assert_eq!(root.ends(), ("/etc/k.d/10-a.conf:1".into(), "shutdownGracePeriod: 40s".into()));
    let said = root.config().unwrap();
    assert_eq!((&*said.periods().total, &*said.periods().critical), ("40s", "5s"));
    // Changes go to a file that no distribution overwrites and that takes precedence.
    let change = || {
        let kubelet = &root.find(true)[0];
        let said = kubelet.configuration(root.0.path()).unwrap();
        kubelet.change(root.0.path(), &said, &Periods::default()).unwrap()
    };
    let file = || (change().file.display().to_string(), change().is_new);
    assert_eq!(file(), ("/etc/k.d/99-winddown.conf".to_owned(), true));
    root.put("etc/k.d/99-z.conf", &configuration(""));
    assert_eq!(file(), ("/etc/k.d/zz-winddown.conf".to_owned(), true));
    assert_eq!(change().lines[..2], periods::HEAD);
    // What is there may have more in it by now.
    root.put("etc/k.d/zz-winddown.conf", &configuration("maxPods: 9\n"));
    assert_eq!(file(), ("/etc/k.d/zz-winddown.conf".to_owned(), false));
    assert_eq!(change().lines[0], "shutdownGracePeriod: 0s");
    let gated =
        "kubelet\0--config=/etc/k.yaml\0--feature-gates=A=true,GracefulNodeShutdown=false\0";
    root.put("proc/9/cmdline", gated);
    assert_eq!(root.ends(), Default::default());
    assert_eq!(file(), ("/etc/k.yaml".to_owned(), false));
    root.put("proc/9/cmdline", &gated.replace("false", "true"));
    root.put(
        "etc/k.yaml",
        &configuration("featureGates: {GracefulNodeShutdown: false}\nshutdownGracePeriod: 30s\n"),
    );
    assert_eq!(root.ends().0, "/etc/k.yaml:2", "the command line takes precedence");
}

#[test]
fn an_empty_argument_is_the_value_of_the_option_before_it() {
    let root = Root::with(&[
        ("proc/9/comm", "kubelet\n"),
        ("proc/9/cmdline", "kubelet\0--hostname-override\0\0--config\0/etc/k.yaml\0"),
    ]);
    let kubelet = &root.find(true)[0];
    assert_eq!((kubelet.node_name(), kubelet.option("--config")), (None, Some("/etc/k.yaml")));
}

/// A name that is missing here would be taken for no kubelet.
#[test]
fn every_program_that_contains_a_kubelet_is_searched_for_among_the_processes() {
    let contained = distributions::DISTRIBUTIONS.iter().flat_map(|one| one.processes);
    for name in contained {
        let root = Root::with(&[("proc/9/comm", &format!("{name}\n"))]);
        assert_eq!(root.find(true)[0].pid, Some(9), "{name}");
    }
    let root = Root::with(&[
        ("usr/lib/systemd/system/microshift.service", "[Service]\nExecStart=microshift run\n"),
        ("proc/9/comm", "microshift\n"),
        ("proc/9/cgroup", "0::/system.slice/microshift.service\n"),
    ]);
    for live in [true, false] {
        let found = root.find(live);
        assert_eq!(found[0].name(), "microshift.service");
        assert!(found[0].problem().unwrap().why.contains("microshift"), "{found:?}");
        assert_eq!(found[0].usual_endpoint(), "unix:///run/crio/crio.sock");
    }
}

#[test]
fn the_feature_gates_of_all_options_count_and_the_last_one_of_a_name_wins() {
    for (options, ends) in [
        ("--feature-gates=GracefulNodeShutdown=false\0--feature-gates=A=true", false),
        ("--feature-gates=A=true,GracefulNodeShutdown=False", false),
        ("--feature-gates=GracefulNodeShutdown=false,GracefulNodeShutdown=true", true),
    ] {
        let root = Root::with(&[
            (FILE, &configuration("shutdownGracePeriod: 30s\n")),
            ("proc/9/comm", "kubelet\n"),
            ("proc/9/cmdline", &format!("kubelet\0{options}\0")),
        ]);
        assert_eq!(root.config().unwrap().ends_pods().is_some(), ends, "{options}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_said_and_harms_nothing() {
    let problem = |root: &Root| root.config().expect("there is a file").problem;
    for text in ["a: [", "shutdownGracePeriod: [1]\n", "- a\n- b\n"] {
        let root = Root::with(&[(FILE, text)]);
        assert!(problem(&root).is_some(), "{text:?}");
        assert_eq!(root.ends(), Default::default());
    }
    let root = Root::with(&[(FILE, "")]);
    fs::remove_file(root.0.path().join(FILE)).unwrap();
    fs::create_dir(root.0.path().join(FILE)).unwrap();
    let of = |why: &str| Some(KubeletProblem::of_file(&Path::new("/").join(FILE), why.to_owned()));
    assert_eq!(problem(&root), of("it is a directory, not a regular file"));
    fs::remove_dir(root.0.path().join(FILE)).unwrap();
    root.put(FILE, &"#".repeat(2 << 20));
    assert_eq!(problem(&root), of("it is larger than 1048576 bytes"));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn no_text_makes_it_fail(text in "\\PC{0,200}", lines in "([a-zA-Z$:{}\\[\\]&*\"=\\\\ \n-]{0,40}){0,8}") {
        for text in [text, lines] {
            let unit = format!("[Service]\nExecStart={text}\nEnvironment={text}\n");
            let files = [(FILE, &*text), ("etc/systemd/system/kubelet.service", &unit)];
            for file in files {
                proptest::prop_assert!(Root::with(&[file, files[0]]).config().is_some());
            }
        }
    }
}

#[test]
fn a_kubelet_in_a_container_is_that_of_another_node() {
    let root = Root::with(&[("proc/8/comm", "kubelet\n"), ("proc/9/comm", "kubelet\n")]);
    for (process, namespace) in [("self", "pid:[1]"), ("8", "pid:[2]"), ("9", "pid:[1]")] {
        let directory = root.0.path().join("proc").join(process).join("ns");
        fs::create_dir_all(&directory).unwrap();
        std::os::unix::fs::symlink(namespace, directory.join("pid")).unwrap();
    }
    assert_eq!(root.find(true).iter().map(|kubelet| kubelet.pid).collect::<Vec<_>>(), [Some(9)]);
}

/// Any user can start a program with this name, with arguments that name any file.
#[test]
fn a_process_of_another_user_is_no_kubelet() {
    let root = Root::with(&[
        (FILE, &configuration("shutdownGracePeriod: 30s\n")),
        ("proc/9000/comm", "kubelet\n"),
        ("proc/7/comm", "kubelet\n"),
        ("proc/7/cmdline", "kubelet\0--config=/home/u/fifo\0"),
        ("proc/7/status", "Uid:\t65534\t65534\t65534\t65534\n"),
    ]);
    let strangers = vec!["7: user 65534 started it".to_owned()];
    assert_eq!(root.running(), (vec!["process 9000".to_owned()], strangers));
    assert_eq!(root.ends().0, "/var/lib/kubelet/config.yaml:1");
}

/// su belongs to root from its first instruction; sudo takes all of root's IDs before it asks for the password.
#[test]
fn a_setuid_program_by_the_name_of_a_kubelet_is_none() {
    use std::os::unix::fs::PermissionsExt as _;
    let root = Root::with(&[("proc/9/comm", "kubelet\n"), ("usr/bin/sudo", "")]);
    for ids in ["1000\t0\t0\t0", "0\t1000\t0\t0", "0\t0\t1000\t0", "0\t0\t0\t1000"] {
        root.put("proc/9/status", &format!("Name:\tkubelet\nUid:\t{ids}\nGid:\t0\t0\t0\t0\n"));
        assert_eq!(root.running(), (vec![], vec!["9: user 1000 started it".to_owned()]), "{ids}");
    }
    root.put("proc/9/comm", "kubelet\n");
    root.link("proc/9/exe", "../../usr/bin/sudo");
    assert_eq!(root.running(), (vec!["process 9".to_owned()], vec![]));
    let mode = fs::Permissions::from_mode(0o4755);
    fs::set_permissions(root.0.path().join("usr/bin/sudo"), mode).unwrap();
    let why = "9: it is a setuid program, which any user can start";
    assert_eq!(root.running(), (vec![], vec![why.to_owned()]));
}

/// Its `--kubeconfig` is a file of its own, which can name a program to be run as root.
#[test]
fn a_pod_in_the_pid_namespace_of_the_machine_is_no_kubelet_whoever_started_its_shim() {
    let root = Root::with(&[
        ("run/systemd/system/x.conf", ""),
        ("etc/systemd/system/k3s.service", "[Service]\nExecStart=/usr/local/bin/k3s server\n"),
        ("etc/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet\n"),
        ("proc/9/comm", "kubelet\n"),
        ("proc/9/stat", &stat(8, 50)),
        ("proc/9/cgroup", "0::/kubepods/besteffort/podu/c\n"),
        ("proc/8/comm", "containerd-shim\n"),
        ("proc/8/stat", &stat(1, 40)),
        ("proc/8/cgroup", "0::/system.slice/k3s.service\n"),
        ("proc/1/x", ""),
        ("machine/x", ""),
        ("image/x", ""),
    ]);
    root.link("proc/1/root", "../../machine");
    root.link("proc/9/root", "../../image");
    let nobodys = (vec![], vec!["9: it runs in a container".to_owned()]);
    assert_eq!(root.running(), nobodys);
    root.put("proc/9/stat", &stat(1, 50));
    assert_eq!(root.running(), nobodys, "it has killed its shim");
    // Root's own podman runs the kubelet: nobody knows with what files.
    root.put("proc/9/cgroup", "0::/machine.slice/libpod-a.scope\n");
    let unclear = (vec![], vec!["9: it belongs to no service of systemd".to_owned()]);
    assert_eq!(root.running(), unclear);
    root.link("proc/self/ns/pid", "pid:[1]");
    root.link("proc/9/ns/pid", "pid:[2]");
    assert_eq!(root.running(), nobodys, "another node's");
}

#[test]
fn where_systemd_runs_a_kubelet_without_a_service_is_none() {
    let root = Root::with(&[("proc/9/comm", "kubelet\n"), ("proc/9/cgroup", "0::/\n")]);
    assert_eq!(root.running(), (vec!["process 9".to_owned()], vec![]));
    fs::create_dir_all(root.0.path().join("run/systemd/system")).unwrap();
    let why = "9: it belongs to no service of systemd";
    assert_eq!(root.running(), (vec![], vec![why.to_owned()]));
    root.put("proc/9/cgroup", "0::/user.slice/user-0.slice/session-1.scope\n");
    assert_eq!(root.running(), (vec![], vec!["9: it runs in a user's session".to_owned()]));
    root.put("proc/9/cgroup", "0::/system.slice/kubelet.service\n");
    assert_eq!(root.running(), (vec!["kubelet.service".to_owned()], vec![]));
}

/// Stopping the service of another program would stop more than the kubelet.
#[test]
fn a_kubelet_is_a_service_of_its_own_by_any_name_and_in_another_programs_service_it_is_none() {
    let unit = |program: &str| format!("[Service]\nExecStart=/usr/bin/{program} --v=2\n");
    let own = |unit: &str| Some(unit.to_owned());
    for (what, name, service, parent, wanted) in [
        ("kubeadm", "kubelet", "kubelet", 1, own("kubelet.service")),
        ("a script that does not exec", "kubelet", "kubelet", 800, own("kubelet.service")),
        ("a snap", "kubelet", "snap.k8s.kubelet", 1, own("snap.k8s.kubelet.service")),
        ("RKE2", "kubelet", "rke2-server", 800, None),
        ("k3s", "k3s-server", "k3s", 1, None),
        ("MicroK8s", "kubelite", "snap.microk8s.daemon-kubelite", 1, None),
    ] {
        let zeros = "0 ".repeat(17);
        let root = Root::with(&[
            ("proc/9/comm", &format!("{name}\n")),
            ("proc/9/stat", &format!("9 ({name}) S {parent} {zeros}50 0\n")),
            ("proc/9/cgroup", &format!("0::/system.slice/{service}.service\n")),
        ]);
        assert_eq!(service::own(root.0.path()), wanted, "{what}");
    }
    for (program, wanted) in [("kubelet", own("node-agent.service")), ("k3s", None)] {
        let root = Root::with(&[("etc/systemd/system/node-agent.service", &unit(program))]);
        assert_eq!(service::own(root.0.path()), wanted, "{program}");
    }
}

#[test]
fn a_server_of_k0s_or_k3s_that_is_no_node_has_no_kubelet() {
    for (unit, command, setting, is_node) in [
        ("k0scontroller", "k0s controller --config=/etc/k0s/k0s.yaml", "", false),
        ("k0scontroller", "k0s controller --enable-worker=false", "", false),
        ("k0scontroller", "k0s controller --enable-worker", "", true),
        ("k0scontroller", "k0s controller --single=true", "", true),
        ("k0sworker", "k0s worker", "", true),
        ("k3s", "k3s server", "", true),
        ("k3s", "k3s server --disable-agent", "", false),
        ("by-hand", "k3s server '--disable-agent'", "", false),
        ("k3s", "k3s server", "disable-agent: true\n", false),
        ("k3s", "k3s server --disable-agent=false", "disable-agent: true\n", true),
        ("k3s-agent", "k3s agent", "disable-agent: true\n", true),
    ] {
        let what = format!("{unit}: {command} {setting}");
        let start = format!("[Service]\nExecStart=/usr/local/bin/{command}\n");
        let unit = format!("{unit}.service");
        let root = Root::with(&[
            (&format!("etc/systemd/system/{unit}"), &start),
            (&format!("etc/systemd/system/multi-user.target.wants/{unit}"), ""),
            ("etc/rancher/k3s/config.yaml", setting),
        ]);
        let wanted = is_node.then(|| unit.clone());
        assert_eq!(enabled_unit(root.0.path(), &find(root.0.path(), true)), wanted, "{what}");
        // The server itself has the name of a program that contains a kubelet.
        root.put("proc/9/comm", "k3s-server\n");
        root.put("proc/9/stat", &stat(1, 50));
        root.put("proc/stat", LATER);
        root.put("proc/9/cgroup", &format!("0::/system.slice/{unit}\n"));
        if command.starts_with("k3s") {
            let found: Vec<_> = find(root.0.path(), true).iter().map(Kubelet::name).collect();
            assert_eq!(found, Vec::from_iter(wanted), "{what}");
            assert_eq!(
                processes::kubelets(root.0.path()).unwrap().kubelets.len(),
                found.len(),
                "{what}"
            );
        }
    }
}

/// What a file says counts for the server's next start: this one still has its kubelet.
#[test]
fn a_server_that_runs_keeps_its_kubelet_when_its_settings_are_edited() {
    let root = Root::with(&[
        ("etc/systemd/system/k3s.service", "[Service]\nExecStart=/usr/local/bin/k3s server\n"),
        ("etc/rancher/k3s/config.yaml", "disable-agent: true\n"),
        ("proc/9/comm", "k3s-server\n"),
        ("proc/9/stat", &stat(1, 50)),
        ("proc/9/cgroup", "0::/system.slice/k3s.service\n"),
    ]);
    for (boot, wanted) in [(LATER, 0), ("btime 1\n", 1), ("cpu 1 2\n", 1)] {
        root.put("proc/stat", boot);
        let found = processes::kubelets(root.0.path()).unwrap().kubelets;
        assert_eq!(found.len(), wanted, "{boot}");
    }
}

fn stat(parent: u32, start: u32) -> String {
    let between = "0 ".repeat(17);
    format!("9 (a) b) S {parent} {between}{start} 0\n")
}

/// `kubeletCgroups:` has a kubelet move itself, k0s moves its own, and podman starts one in a scope.
#[test]
fn a_kubelet_that_left_the_control_group_of_its_unit_is_that_units_as_far_as_its_parents_say() {
    let unit = |program: &str| format!("[Service]\nExecStart=/usr/bin/{program} run\n");
    let root = Root::with(&[
        ("run/systemd/system/x.conf", ""),
        ("etc/systemd/system/kubelet.service", &unit("kubelet")),
        ("etc/systemd/system/k3s.service", &unit("k3s")),
        ("etc/systemd/system/k0sworker.service", &unit("k0s")),
        ("proc/9/comm", "kubelet\n"),
        ("proc/9/stat", &stat(1, 50)),
    ]);
    let ours = (vec!["kubelet.service".to_owned()], vec![]);
    for group in
        ["0::/system.slice", "0::/kubelet.slice", "1:name=systemd:/system.slice\n0::/", "0::/"]
    {
        root.put("proc/9/cgroup", &format!("{group}\n"));
        assert_eq!(root.running(), ours, "{group}");
    }
    let nobodys = (vec![], vec!["9: it belongs to no service of systemd".to_owned()]);
    root.put("etc/systemd/system/node.service", &unit("kubelet"));
    assert_eq!(root.running(), nobodys, "either unit may have started it");

    root.put("proc/9/stat", &stat(800, 50));
    root.put("proc/800/stat", &stat(1, 40));
    root.put("proc/800/cgroup", "0::/machine.slice/libpod-conmon-a.scope\n");
    assert_eq!(root.running(), nobodys, "nothing says who started its parent");
    root.put("proc/800/cgroup", "0::/system.slice/k0sworker.service\n");
    for group in ["/system.slice/containerd.service", "/system.slice", "/kubepods"] {
        root.put("proc/9/cgroup", &format!("0::{group}\n"));
        assert_eq!(root.running(), (vec!["k0sworker.service".to_owned()], vec![]), "{group}");
    }
}

#[test]
fn of_the_processes_of_a_unit_the_kubelet_is_the_first_whatever_its_pid() {
    let root = Root::with(&[
        // A fork of the kubelet's that has not executed another program yet.
        ("proc/7/comm", "kubelet\n"),
        ("proc/7/stat", &stat(900, 50)),
        ("proc/7/cmdline", "kubelet\0--config=/child\0"),
        ("proc/900/comm", "kubelet\n"),
        ("proc/900/stat", &stat(1, 50)),
        ("proc/900/cmdline", "kubelet\0--config=/main\0"),
        // PIDs began again after the kubelet had started.
        ("proc/30/comm", "kubelet\n"),
        ("proc/30/stat", &stat(1, 60)),
        ("proc/30/cmdline", "kubelet\0--config=/late\0"),
    ]);
    for pid in [7, 900, 30] {
        root.put(&format!("proc/{pid}/cgroup"), "0::/system.slice/kubelet.service\n");
    }
    let configs: Vec<_> = running(root.0.path())
        .iter()
        .map(|kubelet| kubelet.option("--config").map(str::to_owned))
        .collect();
    assert_eq!(configs, [Some("/main".to_owned())]);
}

#[test]
fn a_file_that_others_can_change_is_named_and_not_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let text = &configuration("shutdownGracePeriod: 30s\n");
    let root = Root::with(&[
        ("proc/9/comm", "kubelet\n"),
        ("proc/9/cmdline", "kubelet\0--config=/tmp/u/k.yaml\0--config-dir=/etc/k.d\0"),
        ("tmp/u/k.yaml", text),
        ("etc/k.d/a.conf", text),
    ]);
    let mode = |path: &str, mode: u32| {
        let path = root.0.path().join(path);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    assert_eq!(root.ends().0, "/etc/k.d/a.conf:1");
    let problem = || {
        let said = root.config().unwrap();
        assert_eq!(said.ends_pods(), None);
        said.problem.unwrap().to_string().replace(root.0.path().to_str().unwrap(), "")
    };
    mode("etc/k.d/a.conf", 0o666);
    // The first file is read, and nothing after the one that is not.
    let said = root.config().unwrap();
    assert_eq!(said.period.unwrap().file, Path::new("/tmp/u/k.yaml"));
    mode("etc/k.d/a.conf", 0o644);
    mode("tmp/u", 0o777);
    assert_eq!(
        problem(),
        "/tmp/u/k.yaml: others than root can change it (/tmp/u: every user may write to it); if it is as you \
         want it: chmod go-w /tmp/u"
    );
    mode("tmp/u", 0o755);
    mode("etc/k.d", 0o777);
    assert!(problem().starts_with("/etc/k.d: others than root can change it"), "{}", problem());
}

/// Opening a pipe waits for its other end, and a device may have no end.
#[test]
fn a_pipe_or_a_device_in_place_of_a_file_is_neither_waited_for_nor_read() {
    let root = Root::with(&[
        ("proc/9/comm", "kubelet\n"),
        ("proc/9/cmdline", "kubelet\0--config=/etc/pipe\0"),
        ("etc/x", ""),
    ]);
    let pipe = root.0.path().join("etc/pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from(0o600)).unwrap();
    let why = |root: &Root| root.config().unwrap().problem.unwrap().why;
    assert_eq!(why(&root), "it is a pipe, not a regular file");
    fs::remove_file(&pipe).unwrap();
    root.link("etc/pipe", "../../../../../../../../../../dev/zero");
    assert!(root.config().unwrap().problem.is_some());
}

#[test]
fn the_manifests_that_a_kubelet_runs_are_where_its_option_or_else_its_last_file_says() {
    let of = |arguments: &str, file: &str, last: &str| {
        let root = Root::with(&[
            ("proc/9/comm", "kubelet\n"),
            (
                "proc/9/cmdline",
                &format!("kubelet\0--config=/k.yaml\0--config-dir=/k.d\0{arguments}"),
            ),
            ("k.yaml", &configuration(file)),
            ("k.d/10-a.conf", &configuration(last)),
        ]);
        root.find(true)[0].manifests(root.0.path())
    };
    let file = "staticPodPath: /etc/kubernetes/manifests\n";
    assert_eq!(of("", file, ""), Some("/etc/kubernetes/manifests".into()));
    assert_eq!(of("", file, "staticPodPath: /srv\n"), Some("/srv".into()));
    assert_eq!(of("", file, "staticPodPath: ''\n"), None);
    assert_eq!(of("--pod-manifest-path=/old\0", file, ""), Some("/old".into()));
    assert_eq!(of("", "", ""), None);
}

const KUBEADM: [(&str, &str); 4] = [
    (
        "usr/lib/systemd/system/kubelet.service",
        "[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n",
    ),
    (
        "usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf",
        "# Note: this drop-in only works with kubeadm\n[Service]\n\
         Environment=\"KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
         --kubeconfig=/etc/kubernetes/kubelet.conf\"\n\
         Environment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml\"\n\
         EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\nEnvironmentFile=-/etc/default/kubelet\n\
         ExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS \
         $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n",
    ),
    (
        "var/lib/kubelet/kubeadm-flags.env",
        "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///var/run/containerd/containerd.sock \
         --hostname-override=worker-1\"\n",
    ),
    (
        FILE,
        "shutdownGracePeriod: 90s\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n",
    ),
];

#[test]
fn a_unit_tells_by_its_drop_ins_and_environment_files_what_its_kubelet_is_started_with() {
    let root = Root::with(&KUBEADM);
    let [kubelet] = &root.find(false)[..] else { panic!("there is one") };
    assert_eq!(kubelet.name(), "kubelet.service");
    assert_eq!(kubelet.kubeconfig(), Some(Path::new("/etc/kubernetes/kubelet.conf")));
    assert_eq!(kubelet.option("--hostname-override"), Some("worker-1"));
    let socket = "unix:///var/run/containerd/containerd.sock";
    assert_eq!(kubelet.option("--container-runtime-endpoint"), Some(socket));
    assert_eq!(root.ends().0, "/var/lib/kubelet/config.yaml:1");
    // Later files win, an empty assignment clears earlier ones, and a drop-in in /etc hides one with the same name.
    root.put("etc/default/kubelet", "KUBELET_EXTRA_ARGS=--kubeconfig=/etc/mine.conf --v=2\n");
    let kubeconfig = || root.find(false)[0].kubeconfig().map(Path::to_owned);
    assert_eq!(kubeconfig(), Some("/etc/mine.conf".into()));
    let dir = "etc/systemd/system/kubelet.service.d";
    root.put(
        &format!("{dir}/20-x.conf"),
        "[Service]\nEnvironmentFile=\nEnvironment='A=/b c'\n\
        ExecStart=\nExecStart=/k --kubeconfig \\\n \"${A}\"\n",
    );
    assert_eq!(kubeconfig(), Some("/b c".into()));
    root.put(&format!("{dir}/10-kubeadm.conf"), "");
    assert_eq!(root.find(false)[0].option("--config"), None);
    let mask = root.0.path().join("etc/systemd/system/kubelet.service");
    std::os::unix::fs::symlink("/dev/null", mask).unwrap();
    assert_eq!(root.find(false), []);
}

#[test]
fn k3s_is_asked_by_its_own_arguments_variables_and_files_where_it_keeps_its_kubelets() {
    let unit = "[Service]\nEnvironmentFile=-/etc/systemd/system/k3s.service.env\n\
                ExecStart=/usr/local/bin/k3s \\\n    server \\\n\t'--disable' 'traefik' \\\n\n";
    let root = Root::with(&[
        ("etc/systemd/system/k3s.service", unit),
        ("proc/9/comm", "k3s-server\n"),
        ("proc/9/cmdline", "/usr/local/bin/k3s server\0\0\0"),
        (
            "proc/9/cgroup",
            "1:name=systemd:/system.slice/k3s.service\n0::/system.slice/k3s.service\n",
        ),
        (
            "var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf",
            &configuration(
                "containerRuntimeEndpoint: unix:///run/k3s/containerd/containerd.sock\n\
                 shutdownGracePeriod: 0s\nshutdownGracePeriodCriticalPods: 0s\n",
            ),
        ),
    ]);
    let drop_ins = "agent/etc/kubelet.conf.d";
    for (file, text, data, name) in [
        ("none", "", "/var/lib/rancher/k3s", None),
        (
            // Its installer keeps what was set then, and the files are edited later.
            "etc/systemd/system/k3s.service.env",
            "K3S_DATA_DIR=/three\nK3S_NODE_NAME=old\n",
            "/three",
            Some("old"),
        ),
        ("etc/rancher/k3s/config.yaml", "data-dir: /one\ntls-san: [a]\n", "/one", Some("old")),
        (
            "etc/rancher/k3s/config.yaml.d/b.yaml",
            "data-dir: /two\nnode-name: n\n",
            "/two",
            Some("n"),
        ),
        (
            "etc/systemd/system/k3s.service",
            "[Service]\nExecStart=k3s server -d /four --node-name=m\n",
            "/four",
            Some("m"),
        ),
    ] {
        root.put(file, text);
        for live in [true, false] {
            let [kubelet] = &root.find(live)[..] else { panic!("there is one") };
            let config = Path::new(data).join("agent/kubelet.kubeconfig");
            assert_eq!(kubelet.name(), "k3s.service");
            assert_eq!(kubelet.kubeconfig(), Some(&*config), "{file}");
            let directory = Path::new(data).join(drop_ins).display().to_string();
            assert_eq!(kubelet.option("--config-dir"), Some(&*directory));
            assert_eq!(kubelet.option("--hostname-override"), name, "{file}");
            assert_eq!(kubelet.usual_endpoint(), K3S_CONTAINERD);
        }
    }
    for argument in
        ["--kubelet-arg=root-dir=/five", "'--kubelet-arg' v=2 '--kubelet-arg' 'root-dir=/five'"]
    {
        let unit = format!("[Service]\nExecStart=k3s server {argument}\n");
        root.put("etc/systemd/system/k3s.service", &unit);
        assert_eq!(root.find(true)[0].option("--root-dir"), Some("/five"), "{argument}");
    }
}

/// k3s recommends it for hosts of the same name.
#[test]
fn an_id_that_k3s_appends_to_the_name_of_its_node_is_part_of_the_name() {
    let root = Root::with(&[
        ("proc/sys/kernel/hostname", "Edge\n"),
        ("etc/rancher/node/id", "1a2b3c4d\n"),
        ("etc/rancher/k3s/config.yaml", "with-node-id: true\n"),
    ]);
    let started = |command: &str| {
        root.put("etc/systemd/system/k3s.service", &format!("[Service]\nExecStart={command}\n"));
        root.find(false).remove(0)
    };
    for (command, name) in [
        ("k3s agent", Some("Edge-1a2b3c4d")),
        ("k3s agent --node-name=shelf", Some("shelf-1a2b3c4d")),
        ("k3s agent --with-node-id=false", None),
    ] {
        assert_eq!(started(command).option("--hostname-override"), name, "{command}");
    }
    root.put("etc/rancher/k3s/config.yaml", "");
    let kubelet = started("rke2 agent --with-node-id --node-name n");
    assert_eq!(kubelet.option("--hostname-override"), Some("n-1a2b3c4d"));
    // Until the node has started once, it has no id.
    root.put("etc/rancher/node/id", "");
    let problem = started("k3s agent --with-node-id").problem().unwrap().to_string();
    assert!(
        problem.starts_with("/etc/rancher/node/id: it is not there, and with-node-id"),
        "{problem}"
    );
}

#[test]
fn the_kubelet_of_k3s_reads_the_file_and_has_the_gates_that_k3s_is_told() {
    let root = Root::with(&[
        (
            "etc/systemd/system/k3s.service",
            "[Service]\nExecStart=k3s server --kubelet-arg=config=/etc/k.yaml\n",
        ),
        ("etc/k.yaml", &configuration("shutdownGracePeriod: 30s\n")),
    ]);
    assert_eq!(root.ends(), ("/etc/k.yaml:1".into(), "shutdownGracePeriod: 30s".into()));
    let gate = "kubelet-arg: feature-gates=GracefulNodeShutdown=false\n";
    root.put("etc/rancher/k3s/config.yaml", gate);
    assert_eq!(root.ends(), Default::default());
}

#[test]
fn credentials_at_a_usual_place_tell_that_there_is_a_kubelet() {
    let root =
        Root::with(&[("var/lib/kubelet/kubeconfig", ""), ("etc/kubernetes/kubelet.conf", "")]);
    let found = find_credentials(root.0.path());
    let files: Vec<_> = found.iter().filter_map(Kubelet::kubeconfig).collect();
    let usual = ["/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/kubeconfig"];
    assert_eq!(files, usual.map(Path::new));
    root.put("var/lib/rancher/k3s/agent/kubelet.kubeconfig", "");
    assert_eq!(find_credentials(root.0.path())[2].usual_endpoint(), K3S_CONTAINERD);
    assert_eq!(root.config(), None, "a file that does not say what it is");
    // OpenShift has the kubelet's configuration where kubeadm has its credentials.
    root.put(
        "etc/kubernetes/kubelet.conf",
        &configuration("# Of MachineConfig\nshutdownGracePeriod: 5s\n"),
    );
    let found = find_credentials(root.0.path());
    assert_eq!(found[0].kubeconfig(), Some(Path::new(usual[1])));
    assert_eq!(root.ends().0, "/etc/kubernetes/kubelet.conf:2");
}

#[test]
fn what_is_to_be_written_reads_back() {
    let groups = vec![KubeletPriorityPeriod { priority: -5, shutdown_grace_period_seconds: 20 }];
    for periods in [
        Periods::default(),
        Periods { total: "1m30s".into(), critical: "20s".into(), groups: Vec::new() },
        Periods { groups, ..Periods::default() },
    ] {
        for (there, wrap) in [("a: 1\n", false), ("# JSON is YAML\n", false), ("\n {}", true)] {
            let root = Root::with(&[(FILE, there)]);
            let kubelet = Kubelet::default();
            let said = kubelet.configuration(root.0.path()).unwrap();
            let change = kubelet.change(root.0.path(), &said, &periods).unwrap();
            assert!(!change.is_new);
            let text = change.lines.join("\n");
            let text = match wrap {
                true => {
                    let [version, kind] = ["kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"];
                    format!("{{\"apiVersion\": {version:?}, {text} \"kind\": {kind:?}}}")
                }
                false => configuration(&format!("{text}\n")),
            };
            root.put(FILE, &text);
            assert_eq!(root.config().unwrap().periods(), periods, "{text}");
        }
    }
}

/// Whatever else such a file says: the kubelet exits when it next starts.
#[test]
fn a_file_that_a_kubelet_refuses_for_what_it_says_it_is_is_no_configuration() {
    let [version, kind] = periods::HEAD;
    for (text, why) in [
        ("", ": the kubelet does not start with it, because it \"was empty\": write `apiVersion: "),
        ("# 0s\n", ": the kubelet does not start with it, because \"Object 'Kind' is missing\": "),
        (
            "shutdownGracePeriod: 0s\n",
            ": the kubelet does not start with it, because \"Object 'Kind'",
        ),
        (version, ": the kubelet does not start with it, because \"Object 'Kind' is missing\": "),
        (kind, ":1:1: apiVersion: the kubelet does not start with it, because it knows no other"),
        ("a: 1\nkind: Pod\napiVersion: v1\n", ":2:1: kind: the kubelet does not start with it"),
        (
            "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1\n",
            ":2:1: apiVersion: the kubelet does not start with it, because it knows no other version",
        ),
    ] {
        let unit = "[Service]\nExecStart=/usr/bin/kubelet --config=/k.yaml --config-dir=/k.d\n";
        for refused in ["k.yaml", "k.d/99-winddown.conf"] {
            let root = Root::with(&[
                ("etc/systemd/system/kubelet.service", unit),
                ("k.yaml", &configuration("shutdownGracePeriod: 60s\n")),
            ]);
            root.put(refused, text);
            let problem = root.config().unwrap().problem.map(|problem| problem.to_string());
            let wanted = format!("/{refused}{why}");
            assert!(problem.as_ref().is_some_and(|said| said.starts_with(&wanted)), "{problem:?}");
        }
    }
}

/// As sigs.k8s.io/yaml does: the kubelet reads a file leniently that it cannot read strictly.
#[test]
fn a_file_is_read_as_the_kubelet_reads_it_and_its_mistakes_are_told_in_our_words() {
    for (text, total) in [
        ("maxPods: 1\nshutdownGracePeriod: 10s\nmaxPods: 2\nshutdownGracePeriod: 20s\nHEAD", "20s"),
        ("shutdownGracePeriod: 10s\nHEAD---\n", "10s"),
        ("---\nshutdownGracePeriod: 10s\nHEAD---\nshutdownGracePeriod: 20s\n", "10s"),
        ("shutdownGracePeriod: 10s\nHEAD---\na: [\n", "10s"),
        (
            "{\"shutdownGracePeriod\": \"10s\",\n\t\"shutdownGracePeriod\": \"20s\",
            \"apiVersion\": \"kubelet.config.k8s.io/v1beta1\", \"kind\": \"KubeletConfiguration\"}",
            "20s",
        ),
        ("\u{feff}shutdownGracePeriod: 10s\r\nHEADunknown: {a: 1}\r\n", "10s"),
    ] {
        let text = text.replace("HEAD", &configuration(""));
        let said = Root::with(&[(FILE, &text)]).config().unwrap();
        assert_eq!((said.problem.as_ref(), &*said.periods().total), (None, total), "{text}");
    }
    let gate =
        &configuration("featureGates: {GracefulNodeShutdown: no}\nshutdownGracePeriod: 10s\n");
    assert_eq!(Root::with(&[(FILE, gate)]).ends(), Default::default());
    for (text, why) in [
        ("a: 1\nb: [\n", "2:4: this is not valid YAML or JSON: "),
        (
            &configuration("a: 1\nshutdownGracePeriod: 30\n"),
            "2:22: shutdownGracePeriod: needs a duration, for example 30s, this is the number `30`",
        ),
        ("- a\n", "1:1: needs a mapping, this is a list"),
    ] {
        let problem = Root::with(&[(FILE, text)]).config().unwrap().problem.unwrap();
        let problem = problem.to_string();
        assert!(problem.starts_with(&format!("/{FILE}:{why}")), "{problem}");
    }
}

#[test]
fn keys_with_a_plus_add_to_those_of_earlier_files() {
    let unit = "[Service]\nEnvironmentFile=-/etc/default/%N\nExecStart=/usr/local/bin/k3s server\n";
    let root = Root::with(&[
        ("etc/systemd/system/k3s.service", unit),
        ("etc/rancher/k3s/config.yaml", "kubelet-arg+: [root-dir=/one]\n"),
        ("etc/rancher/k3s/config.yaml.d/10.yaml", "kubelet-arg+: config=/etc/k.yaml\n"),
        ("etc/rancher/k3s/config.yaml.d/20.YML", "kubelet-arg+:\n- --feature-gates=A=true\n"),
        ("etc/rancher/k3s/config.yaml.d/30.conf", "kubelet-arg: [root-dir=/not-read]\n"),
        ("etc/rancher/k3s/config.yaml.d/sub/40.yaml", "kubelet-arg: [root-dir=/not-read]\n"),
    ]);
    let option = |name: &str| root.find(false)[0].option(name).map(str::to_owned);
    assert_eq!(option("--root-dir"), Some("/one".to_owned()));
    assert_eq!(option("--config"), Some("/etc/k.yaml".to_owned()));
    assert_eq!(option("--feature-gates"), Some("A=true".to_owned()));
    root.put("etc/rancher/k3s/config.yaml.d/90.yaml", "kubelet-arg: [config=/etc/l.yaml]\n");
    assert_eq!(option("--config"), Some("/etc/l.yaml".to_owned()));
    assert_eq!(option("--root-dir"), None);
    // The variable takes precedence over the option, and its file has drop-ins of its own.
    root.put("etc/default/k3s", "K3S_CONFIG_FILE=/etc/mine.yaml\n");
    root.put("etc/mine.yaml.d/a.yaml", "container-runtime-endpoint: /run/crio/crio.sock\n");
    assert_eq!(option("--config"), None);
    assert_eq!(option("--container-runtime-endpoint"), Some("/run/crio/crio.sock".to_owned()));
    // What cannot be read makes the arguments unknown, which is not the same as none.
    root.put("etc/mine.yaml", "a: [\n");
    let problem = root.find(false)[0].problem().cloned().unwrap();
    assert_eq!(problem.file, Path::new("/etc/mine.yaml"));
    assert_eq!(root.find(false)[0].configuration(root.0.path()).unwrap().problem, Some(problem));
}

#[test]
fn of_the_values_that_k3s_gives_its_kubelet_for_a_name_the_last_one_counts() {
    for (file, line, wanted) in [
        ("kubelet-arg: [config=/a, config=/b]", "", Some("/b")),
        // The command line comes after the files, and adds to their list.
        ("kubelet-arg: [config=/a]", " --kubelet-arg=config=/c", Some("/c")),
        (
            "kubelet-arg: [config=/a]",
            " --kubelet-arg config=/c --kubelet-arg=--config=/d",
            Some("/d"),
        ),
        ("kubelet-arg: [config=/a]", " --kubelet-arg=root-dir=/r", Some("/a")),
        // A sign after the name puts a value behind the others, or before them.
        ("kubelet-arg: [config=/a]", " --kubelet-arg=config+=/c", Some("/c")),
        ("kubelet-arg: [config=/a]", " --kubelet-arg=config-=/c", Some("/a")),
        ("kubelet-arg: [config-=/a]", "", Some("/a")),
        ("kubelet-arg: [config]", "", None),
    ] {
        let unit = format!("[Service]\nExecStart=/usr/local/bin/k3s server{line}\n");
        let root = Root::with(&[
            ("etc/systemd/system/k3s.service", &unit),
            ("etc/rancher/k3s/config.yaml", file),
        ]);
        assert_eq!(root.find(false)[0].option("--config"), wanted, "{file}{line}");
    }
    let unit = "[Service]\nExecStart=/usr/local/bin/k3s server --kubelet-arg=config-dir-=/mine\n";
    let root = Root::with(&[("etc/systemd/system/k3s.service", unit)]);
    let own = Some("/var/lib/rancher/k3s/agent/etc/kubelet.conf.d");
    assert_eq!(root.find(false)[0].option("--config-dir"), own, "its own comes after it");
}

/// k3s from 1.32 on passes `config-dir` to no kubelet: it copies the files into the directory that it merges itself.
#[test]
fn what_k3s_copies_from_a_directory_is_read_and_changed_where_its_kubelet_reads_it() {
    const MERGED: &str = "var/lib/rancher/k3s/agent/etc/kubelet.conf.d";
    let root = Root::with(&[
        ("etc/systemd/system/k3s.service", "[Service]\nExecStart=k3s server\n"),
        ("etc/rancher/k3s/config.yaml", "kubelet-arg: [config-dir=/etc/mine.d]\n"),
        ("etc/mine.d/99-a.conf", &configuration("maxPods: 50\n")),
        (&format!("{MERGED}/20-cli-config-dir/99-a.conf"), &configuration("maxPods: 50\n")),
        (&format!("{MERGED}/50-x.conf"), &configuration("shutdownGracePeriod: 45s\n")),
    ]);
    let set = (format!("/{MERGED}/50-x.conf:1"), "shutdownGracePeriod: 45s".into());
    assert_eq!(root.ends(), set);
    let kubelet = &root.find(false)[0];
    let said = kubelet.configuration(root.0.path()).unwrap();
    let change = kubelet.change(root.0.path(), &said, &Periods::default()).unwrap();
    assert_eq!(change.file, Path::new(&format!("/{MERGED}/99-winddown.conf")));
    // An earlier k3s has no such directory, and passes the option on.
    std::fs::remove_dir_all(root.0.path().join(MERGED)).unwrap();
    assert_eq!(root.find(false)[0].option("--config-dir"), Some("/etc/mine.d"));
}

#[test]
fn the_runtime_of_k3s_with_docker_is_cri_dockerd() {
    const SOCKET: Option<&str> = Some("unix:///run/k3s/cri-dockerd/cri-dockerd.sock");
    for (file, line, wanted) in [
        ("docker: true", "", SOCKET),
        ("", " --docker", SOCKET),
        ("docker: true", " --docker=false", None),
        ("docker: false", "", None),
        // Then the other option names the socket of Docker.
        ("docker: true\ncontainer-runtime-endpoint: /run/docker.sock", "", SOCKET),
    ] {
        let unit = format!("[Service]\nExecStart=/usr/local/bin/k3s server{line}\n");
        let root = Root::with(&[
            ("etc/systemd/system/k3s.service", &unit),
            ("etc/rancher/k3s/config.yaml", file),
        ]);
        let kubelet = &root.find(false)[0];
        assert_eq!(kubelet.option("--container-runtime-endpoint"), wanted, "{file}{line}");
    }
}

#[test]
fn the_variables_of_a_unit_are_those_of_its_kubelet() {
    let unit = "[Service]\nEnvironment=HTTPS_PROXY=http://p:3128\nExecStart=kubelet\n";
    let root = Root::with(&[("etc/systemd/system/kubelet.service", unit)]);
    let kubelet = &root.find(false)[0];
    assert_eq!(kubelet.proxy_variable(root.0.path()), Some("HTTPS_PROXY"));
    root.put("etc/systemd/system/kubelet.service", "[Service]\nExecStart=kubelet\n");
    assert_eq!(kubelet.proxy_variable(root.0.path()), None);
    // That of k3s asks 127.0.0.1.
    let root = Root::with(&[("etc/systemd/system/k3s.service", &unit.replace("=kubelet", "=k3s"))]);
    assert_eq!(root.find(false)[0].proxy_variable(root.0.path()), None);
}

#[test]
fn specifiers_stand_for_the_name_of_the_unit() {
    let unit = "[Service]\nEnvironmentFile=-/etc/default/%p-%i\nEnvironment=N=%n,%N,%%t,%E\n\
                ExecStart=/usr/bin/kubelet --config=${F} --root-dir=${N}\n";
    let root = Root::with(&[
        ("etc/systemd/system/node@one.service", unit),
        ("etc/default/node-one", "F=/etc/k.yaml\n"),
    ]);
    let [kubelet] = &root.find(false)[..] else { panic!("a unit that starts a kubelet is one") };
    assert_eq!(kubelet.name(), "node@one.service");
    assert_eq!(kubelet.option("--config"), Some("/etc/k.yaml"));
    assert_eq!(kubelet.option("--root-dir"), Some("node@one.service,node@one,%t,/etc"));
}

/// OpenShift writes its proxy into a drop-in of `system.conf`.
#[test]
fn a_kubelet_has_what_systemd_gives_to_all_services_or_to_those_whose_names_begin_like_its_own() {
    let unit = "[Service]\nExecStart=rke2 server\nEnvironment=D=unit\n";
    let root = Root::with(&[
        ("etc/systemd/system.conf", "[Manager]\nDefaultEnvironment=A=main B=main\n"),
        ("usr/lib/systemd/system.conf", "[Manager]\nDefaultEnvironment=Z=hidden\n"),
        ("usr/lib/systemd/system.conf.d/10.conf", "[Manager]\nDefaultEnvironment='B=all' D=all\n"),
        ("usr/lib/systemd/system/rke2-server.service", unit),
        ("etc/systemd/system/service.d/10.conf", "[Service]\nEnvironment=C=hidden Z=hidden\n"),
        ("etc/systemd/system/service.d/20.conf", "[Service]\nEnvironment=E=services\n"),
        ("usr/lib/systemd/system/rke2-.service.d/30.conf", "[Service]\nEnvironment=F=rke2\n"),
        ("usr/lib/systemd/system/rke2-server.service.d/10.conf", "[Service]\nEnvironment=C=own\n"),
    ]);
    root.link("usr/lib/systemd/system/rke2-server.service.d/.#10.conf", "root@host.1:2");
    let start = unit::start(root.0.path(), "rke2-server.service").unwrap().unwrap();
    let all = start.environment.iter().map(|(name, value)| format!("{name}={value}"));
    let wanted = ["A=main", "B=all", "C=own", "D=unit", "E=services", "F=rke2"];
    assert_eq!(all.collect::<Vec<_>>(), wanted);
}

#[test]
fn the_name_of_the_host_in_a_unit_is_that_of_the_machine_and_in_an_image_none() {
    let unit = "[Service]\nExecStart=/usr/bin/kubelet --hostname-override=%H\n";
    let root = Root::with(&[("etc/systemd/system/kubelet.service", unit)]);
    let name = || root.find(false)[0].node_name();
    assert_eq!(name(), None);
    root.put("proc/sys/kernel/hostname", "Edge\n");
    assert_eq!(name().as_deref(), Some("edge"));
}

/// As systemd.syntax(7) and systemd.exec(5) have it.
#[test]
fn comments_in_a_continuation_and_patterns_of_environment_files_are_those_of_systemd() {
    let root = Root::with(&[
        (
            "etc/systemd/system/kubelet.service",
            "[Service]\nEnvironmentFile=-/etc/kubelet.d/[0-9]*.e?v\nExecStart=/usr/bin/kubelet \\\n  $A \\\n\
             # 2024: see the ticket\n  ; and this\n  --root-dir=/data\\\\\nRestart=always\n",
        ),
        ("etc/kubelet.d/10-a.env", "A=--config=/nowhere\n"),
        ("etc/kubelet.d/20-b.env", "A=--config=/etc/k.yaml\n"),
        ("etc/kubelet.d/20-b.environment", "A=\n"),
        ("etc/kubelet.d/.30.env", "A=\n"),
        ("etc/kubelet.d/x.env", "A=\n"),
    ]);
    let [kubelet] = &root.find(false)[..] else { panic!("there is one") };
    assert_eq!(kubelet.option("--config"), Some("/etc/k.yaml"), "{:?}", kubelet.problem());
    assert_eq!(kubelet.option("--root-dir"), Some("/data\\"));
    // A pattern for directories is not followed.
    let unit = "[Service]\nEnvironmentFile=/etc/*/env\nExecStart=/usr/bin/kubelet $A\n";
    root.put("etc/systemd/system/kubelet.service", unit);
    let why = root.find(false)[0].problem().map(ToString::to_string).unwrap_or_default();
    assert!(why.starts_with("/etc/*/env: "), "{why}");
}

/// As in the tree, and not as on the machine that looks at it.
#[test]
fn absolute_links_of_an_image_lead_to_its_own_files() {
    let elsewhere = Root::with(&[("k.yaml", &configuration("shutdownGracePeriod: 5s\n"))]);
    let outside = elsewhere.0.path().join("k.yaml").display().to_string();
    let root = Root::with(&[
        (
            "opt/k8s/kubelet.service",
            "[Service]\nExecStart=/usr/bin/kubelet --config=/etc/k/k.yaml\n",
        ),
        ("data/k/real.yaml", &configuration("shutdownGracePeriod: 90s\n")),
    ]);
    root.link("etc/systemd/system/kubelet.service", "/opt/k8s/kubelet.service");
    root.link("etc/k", "/data/k");
    root.link("data/k/k.yaml", "/data/k/real.yaml");
    assert_eq!(root.ends().1, "shutdownGracePeriod: 90s");
    let [kubelet] = &root.find(false)[..] else { panic!("there is one") };
    assert_eq!(kubelet.name(), "kubelet.service");
    // What is there on this machine only is not there.
    fs::remove_file(root.0.path().join("data/k/k.yaml")).unwrap();
    root.link("data/k/k.yaml", &outside);
    assert!(root.config().unwrap().problem.is_some());
    root.put(&outside[1..], &configuration("shutdownGracePeriod: 91s\n"));
    assert_eq!(root.ends().1, "shutdownGracePeriod: 91s");
}

/// The kubelet walks the directory by its own name, and does not follow that.
#[test]
fn a_directory_of_drop_ins_that_is_a_link_is_passed_over_as_by_a_kubelet() {
    let root = Root::with(&[
        ("etc/k.yaml", &configuration("shutdownGracePeriod: 0s\n")),
        ("srv/real/x.conf", &configuration("shutdownGracePeriod: 94s\n")),
    ]);
    root.link("srv/kd", "real");
    for (directory, wanted) in [
        ("/srv/kd", ""),
        ("/srv/kd/", "shutdownGracePeriod: 94s"),
        ("/srv/real", "shutdownGracePeriod: 94s"),
    ] {
        let start =
            format!("ExecStart=/usr/bin/kubelet --config=/etc/k.yaml --config-dir={directory}");
        root.put("etc/systemd/system/kubelet.service", &format!("[Service]\n{start}\n"));
        assert_eq!(root.ends().1, wanted, "{directory}");
        let [kubelet] = &root.find(false)[..] else { panic!("there is one") };
        let change = kubelet.change(root.0.path(), &root.config().unwrap(), &Periods::default());
        assert_eq!(change.unwrap().is_new, !wanted.is_empty(), "{directory}");
    }
}

/// The file at a usual place may be one that it does not read.
#[test]
fn a_kubelet_that_a_script_starts_is_not_one_without_arguments() {
    let stale = "kind: KubeletConfiguration\n";
    for (start, is_known) in [
        ("/opt/bin/start-kubelet.sh", false),
        ("/bin/sh -c 'exec /usr/bin/kubelet --config=/etc/k.yaml'", false),
        ("/usr/bin/podman start -a kubelet-container", false),
        ("/usr/bin/kubelet", true),
        ("/usr/bin/hyperkube kubelet", true),
        ("/usr/bin/nsenter -m -- /usr/bin/kubelet", true),
        ("/usr/bin/kubelet-1.36 --config=/var/lib/kubelet/config.yaml", true),
        // Relative to the directory that the unit names.
        ("/usr/bin/kubelet --config=k.yaml\nWorkingDirectory=/etc", false),
        ("/usr/bin/kubelet --config /k.yaml\nWorkingDirectory=/etc", true),
        ("/usr/bin/kubelet --config=var/lib/kubelet/config.yaml\nWorkingDirectory=/", true),
        (r"/usr/bin/kubelet --config=/srv/k\x6c.yaml", false),
    ] {
        let unit = format!("[Service]\nExecStart={start}\n");
        let root = Root::with(&[("etc/systemd/system/kubelet.service", &unit), (FILE, stale)]);
        let [kubelet] = &root.find(false)[..] else { panic!("there is one") };
        assert_eq!(kubelet.problem().is_none(), is_known, "{start}: {:?}", kubelet.problem());
    }
}

#[test]
fn variables_of_a_command_line_are_those_of_systemd() {
    for (start, wanted) in [
        ("kubelet --root-dir=/a${UNSET}${SET}b", Some("/a1 2b")),
        ("kubelet $UNSET $SET --root-dir=$SET", Some("$SET")),
        ("kubelet --root-dir ${UNSET} --v=2", Some("")),
        ("kubelet --root-dir=/a$$b${SET", Some("/a$b${SET")),
        (":kubelet --root-dir=${SET}", Some("${SET}")),
        ("kubelet $UNSET", None),
    ] {
        let unit = format!("[Service]\nEnvironment=\"SET=1 2\"\nExecStart={start}\n");
        let root = Root::with(&[("etc/systemd/system/kubelet.service", &unit)]);
        assert_eq!(root.find(false)[0].option("--root-dir"), wanted, "{start}");
    }
}

#[test]
fn the_kubelet_of_a_snap_is_a_service_of_its_own_with_a_file_of_arguments() {
    for (unit, file, data) in [
        ("snap.kubelet-eks.daemon", "var/snap/kubelet-eks/current/args", "kubelet-eks/current"),
        ("snap.kubelet.daemon", "var/snap/kubelet/current/args", "kubelet/current"),
        ("snap.k8s.kubelet", "var/snap/k8s/common/args/kubelet", "k8s/current"),
    ] {
        let unit = format!("{unit}.service");
        let root = Root::with(&[
            (&format!("etc/systemd/system/{unit}"), "[Service]\nExecStart=/usr/bin/snap run x\n"),
            (file, "--kubeconfig=\"/var/lib/kubelet/kubeconfig\"\n--root-dir=$SNAP_DATA\n"),
            (FILE, &configuration("shutdownGracePeriod: 30s\n")),
        ]);
        let [kubelet] = &root.find(false)[..] else { panic!("{unit}") };
        assert_eq!(kubelet.kubeconfig(), Some(Path::new("/var/lib/kubelet/kubeconfig")), "{unit}");
        assert_eq!(kubelet.option("--root-dir"), Some(&*format!("/var/snap/{data}")), "{unit}");
        assert!(kubelet.configuration(root.0.path()).unwrap().ends_pods().is_some(), "{unit}");
        assert_eq!(service::own(root.0.path()), Some(unit));
    }
}

/// `install` has an agent stop before a unit that is not named there by a file of its own.
#[test]
fn the_agent_is_stopped_before_every_unit_that_may_start_a_kubelet() {
    let target = include_str!("../../../../systemd/units/winddown-order.target");
    for unit in distributions::DISTRIBUTIONS.iter().flat_map(|one| one.units) {
        assert!(target.split([' ', '=', '\n']).any(|name| name == *unit), "{unit}");
    }
}

#[test]
fn a_kubelet_whose_arguments_cannot_be_seen_is_unknown_and_not_absent() {
    let unit = |start: &str| format!("[Service]\nExecStart={start}\n");
    let root =
        Root::with(&[("etc/systemd/system/k0sworker.service", &unit("/usr/bin/k0s worker"))]);
    let said = |root: &Root| {
        let [kubelet] = &root.find(false)[..] else { panic!("there is one") };
        kubelet.configuration(root.0.path()).unwrap().problem.unwrap().to_string()
    };
    let why = "/etc/systemd/system/k0sworker.service: what k0s tells its kubelet shows only while that \
               runs";
    assert_eq!(said(&root), why);
    let snap = "etc/systemd/system/snap.microk8s.daemon-kubelite.service";
    let root = Root::with(&[(snap, &unit("/usr/bin/snap run microk8s.daemon-kubelite"))]);
    assert!(
        said(&root).starts_with("/var/snap/microk8s/current/args/kubelet: "),
        "{}",
        said(&root)
    );
}

#[test]
fn kubelite_is_asked_by_its_file_of_arguments() {
    let root = Root::with(&[
        ("proc/9/comm", "kubelite\n"),
        ("proc/9/cmdline", "kubelite\0--kubelet-args-file=/var/snap/microk8s/77/args/kubelet\0"),
        (
            "var/snap/microk8s/77/args/kubelet",
            "# by hand\n--config=${SNAP_DATA}/k.yaml\n--root-dir=$SNAP_COMMON/var/lib/kubelet\n\
             --node-labels=\"a=b\"\n",
        ),
        ("var/snap/microk8s/77/k.yaml", &configuration("shutdownGracePeriod: 30s\n")),
    ]);
    assert_eq!(root.ends().0, "/var/snap/microk8s/77/k.yaml:1");
    let kubelet = &root.find(true)[0];
    assert_eq!(kubelet.option("--root-dir"), Some("/var/snap/microk8s/common/var/lib/kubelet"));
    assert!(kubelet.is_contained());
}

#[test]
fn a_kubelet_is_expected_at_the_next_boot_only_if_something_starts_its_unit() {
    let unit = "usr/lib/systemd/system/kubelet.service";
    let root = Root::with(&[(unit, "[Service]\nExecStart=/usr/bin/kubelet\n")]);
    let enabled = || enabled_unit(root.0.path(), &root.find(false));
    assert_eq!(enabled(), None, "it is installed, and nothing starts it");
    root.put("etc/systemd/system/multi-user.target.wants/kubelet.service", "");
    assert_eq!(enabled().as_deref(), Some("kubelet.service"));
    std::os::unix::fs::symlink(
        "/dev/null",
        root.0.path().join("etc/systemd/system/kubelet.service"),
    )
    .unwrap();
    assert_eq!(enabled(), None, "it is masked");
    let only_wanted = [("etc/systemd/system/multi-user.target.wants/k3s.service", "")];
    let root = Root::with(&only_wanted);
    assert_eq!(enabled_unit(root.0.path(), &root.find(false)), None, "there is no such unit");
}

/// k0s writes its kubelet's file at each start.
#[test]
fn who_writes_a_file_again_is_known_by_the_distribution_wherever_the_file_is() {
    let root = Root::with(&[
        ("proc/9/comm", "kubelet\n"),
        ("proc/9/cmdline", "kubelet\0--config=/data/k0s/kubelet-config.yaml\0"),
        ("proc/9/cgroup", "0::/system.slice/k0sworker.service\n"),
        ("data/k0s/kubelet-config.yaml", &configuration("shutdownGracePeriod: 90s\n")),
    ]);
    let kubelet = &root.find(true)[0];
    let said = kubelet.configuration(root.0.path()).unwrap();
    let change = kubelet.change(root.0.path(), &said, &Periods::default()).unwrap();
    assert!(change.rewritten.contains("spec.workerProfiles"), "{change:?}");
}

/// Typhoon has it where Talos has it.
#[test]
fn a_place_that_several_distributions_have_says_nothing_about_who_writes_it() {
    for (os, wanted) in [("ID=talos\n", true), ("ID=\"talos\"\n", true), ("ID=fedora\n", false)] {
        let root = Root::with(&[
            ("etc/os-release", os),
            ("etc/kubernetes/kubelet.yaml", &configuration("shutdownGracePeriod: 90s\n")),
        ]);
        let said = Kubelet::default().configuration(root.0.path()).unwrap();
        let change = Kubelet::default().change(root.0.path(), &said, &Periods::default()).unwrap();
        assert_eq!(change.rewritten.contains("Talos"), wanted, "{os} {change:?}");
    }
}
