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
        fs::write(path, text).unwrap();
    }

    fn find(&self, live: bool) -> Vec<Kubelet> {
        find(self.0.path(), live)
    }

    /// The configuration of the first kubelet, or the one at a usual place.
    fn config(&self) -> Option<Configuration> {
        self.find(true).into_iter().next().unwrap_or_default().configuration(self.0.path())
    }

    /// The location and text of the field that makes the kubelet stop pods.
    fn ends(&self) -> (String, String) {
        let said = self.config().expect("there is a file").ends_pods();
        said.map(|said| (said.to_string(), said.value)).unwrap_or_default()
    }
}

const FILE: &str = "var/lib/kubelet/config.yaml";

#[test]
fn the_field_that_decides_is_found_with_its_line() {
    for (text, place, enabled) in [
        (
            "shutdownGracePeriod: 30s\n",
            "/var/lib/kubelet/config.yaml:1",
            "shutdownGracePeriod: 30s",
        ),
        ("a: 1\nshutdownGracePeriod: 0s\n", "", ""),
        ("kind: KubeletConfiguration\n", "", ""),
        ("featureGates:\n  GracefulNodeShutdown: false\nshutdownGracePeriod: 30s\n", "", ""),
        (
            "x: 1\nshutdownGracePeriodByPodPriority:\n- priority: 0\n",
            "/var/lib/kubelet/config.yaml:2",
            "shutdownGracePeriodByPodPriority has 1 group",
        ),
        ("shutdownGracePeriodByPodPriority: []\n", "", ""),
        (
            "{\n \"shutdownGracePeriod\" : \"5m\"\n}\n",
            "/var/lib/kubelet/config.yaml:2",
            "shutdownGracePeriod: 5m",
        ),
        ("", "", ""),
    ] {
        let root = Root::with(&[(FILE, text)]);
        assert_eq!(root.config().unwrap().problem, None, "{text:?}");
        assert_eq!(root.ends(), (place.to_owned(), enabled.to_owned()), "{text:?}");
    }
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
        let found = Root::with(&[(FILE, text)]).config().unwrap();
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
        (FILE, "shutdownGracePeriod: 1h\n"),
        ("etc/k.yaml", "shutdownGracePeriod: 30s\n"),
        ("etc/k.d/10-a.conf", "shutdownGracePeriod: 40s\n"),
        ("etc/k.d/20-more/b.conf", "shutdownGracePeriodCriticalPods: 5s\n"),
        ("etc/k.d/README", "not: [yaml"),
    ]);
    assert_eq!(root.ends(), ("/etc/k.d/10-a.conf:1".into(), "shutdownGracePeriod: 40s".into()));
    let said = root.config().unwrap();
    assert_eq!((&*said.periods().total, &*said.periods().critical), ("40s", "5s"));
    // Changes go to a file that no distribution overwrites and that takes precedence.
    let change = || root.find(true)[0].file_to_change(root.0.path(), &root.config().unwrap());
    assert_eq!(change(), Some("/etc/k.d/99-winddown.conf".into()));
    root.put("etc/k.d/99-z.conf", "");
    assert_eq!(change(), Some("/etc/k.d/zz-winddown.conf".into()));
    let gated =
        "kubelet\0--config=/etc/k.yaml\0--feature-gates=A=true,GracefulNodeShutdown=false\0";
    root.put("proc/9/cmdline", gated);
    assert_eq!(root.ends(), Default::default());
    assert_eq!(change(), Some("/etc/k.yaml".into()));
    root.put("proc/9/cmdline", &gated.replace("false", "true"));
    root.put(
        "etc/k.yaml",
        "featureGates: {GracefulNodeShutdown: false}\nshutdownGracePeriod: 30s\n",
    );
    assert_eq!(root.ends().0, "/etc/k.yaml:2", "the command line takes precedence");
}

#[test]
fn the_feature_gates_of_all_options_count_and_the_last_one_of_a_name_wins() {
    for (options, ends) in [
        ("--feature-gates=GracefulNodeShutdown=false\0--feature-gates=A=true", false),
        ("--feature-gates=A=true,GracefulNodeShutdown=False", false),
        ("--feature-gates=GracefulNodeShutdown=false,GracefulNodeShutdown=true", true),
    ] {
        let root = Root::with(&[
            (FILE, "shutdownGracePeriod: 30s\n"),
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
    let of = |why: &str| Some((PathBuf::from("/").join(FILE), why.to_owned()));
    assert_eq!(problem(&root), of("it is not a file"));
    fs::remove_dir(root.0.path().join(FILE)).unwrap();
    root.put(FILE, &"#".repeat(2 << 20));
    assert_eq!(problem(&root), of("it is larger than 1 MiB"));
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
        (FILE, "shutdownGracePeriod: 30s\n"),
        ("proc/9000/comm", "kubelet\n"),
        ("proc/7/comm", "kubelet\n"),
        ("proc/7/cmdline", "kubelet\0--config=/home/u/fifo\0"),
    ]);
    if !rustix::process::geteuid().is_root() {
        let test = "a_process_of_another_user_is_no_kubelet";
        assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{test} needs root");
        println!("SKIPPED: {test}: only root can give a file to another user");
        return;
    }
    std::os::unix::fs::chown(root.0.path().join("proc/7"), Some(65534), None).unwrap();
    assert_eq!(root.find(true).iter().map(|kubelet| kubelet.pid).collect::<Vec<_>>(), [Some(9000)]);
    assert_eq!(root.ends().0, "/var/lib/kubelet/config.yaml:1");
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
    (FILE, "shutdownGracePeriod: 90s\n"),
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
            "containerRuntimeEndpoint: unix:///run/k3s/containerd/containerd.sock\n\
             shutdownGracePeriod: 0s\nshutdownGracePeriodCriticalPods: 0s\n",
        ),
    ]);
    let drop_ins = "agent/etc/kubelet.conf.d";
    for (file, text, data, name) in [
        ("none", "", "/var/lib/rancher/k3s", None),
        ("etc/rancher/k3s/config.yaml", "data-dir: /one\ntls-san: [a]\n", "/one", None),
        (
            "etc/rancher/k3s/config.yaml.d/b.yaml",
            "data-dir: /two\nnode-name: n\n",
            "/two",
            Some("n"),
        ),
        ("etc/systemd/system/k3s.service.env", "K3S_DATA_DIR=/three\n", "/three", Some("n")),
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
            assert_eq!(kubelet.drop_in_directory(), Some(&*Path::new(data).join(drop_ins)));
            assert_eq!(kubelet.option("--hostname-override"), name, "{file}");
            assert_eq!(kubelet.usual_endpoint(), k3s::CONTAINERD);
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

#[test]
fn the_kubelet_of_k3s_reads_the_file_and_has_the_gates_that_k3s_is_told() {
    let root = Root::with(&[
        (
            "etc/systemd/system/k3s.service",
            "[Service]\nExecStart=k3s server --kubelet-arg=config=/etc/k.yaml\n",
        ),
        ("etc/k.yaml", "shutdownGracePeriod: 30s\n"),
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
    assert_eq!(files, KUBECONFIGS.map(Path::new));
    root.put("var/lib/rancher/k3s/agent/kubelet.kubeconfig", "");
    assert_eq!(find_credentials(root.0.path())[2].usual_endpoint(), k3s::CONTAINERD);
}

#[test]
fn what_is_to_be_written_reads_back() {
    let groups = vec![PriorityPeriod { priority: -5, shutdown_grace_period_seconds: 20 }];
    for periods in [
        Periods::default(),
        Periods { total: "1m30s".into(), critical: "20s".into(), groups: Vec::new() },
        Periods { groups, ..Periods::default() },
    ] {
        for (name, wrap) in [("k.yaml", false), ("k.conf", false), ("k.json", true)] {
            let text = periods.lines(Path::new(name)).join("\n");
            let text = if wrap { format!("{{{}}}", text.trim_end_matches(',')) } else { text };
            let root = Root::with(&[(FILE, &text)]);
            assert_eq!(root.config().unwrap().periods(), periods, "{text}");
        }
    }
}
