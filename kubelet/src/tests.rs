use super::*;

struct Root(tempfile::TempDir);

impl Root {
    fn with(files: &[(&str, &str)]) -> Self {
        let root = Self(tempfile::TempDir::new().unwrap());
        for (file, text) in files {
            let path = root.0.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn config(&self) -> Option<KubeletConfig> {
        config(self.0.path(), true)
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
        ("a: 1\nshutdownGracePeriod: 0s\n", "/var/lib/kubelet/config.yaml", ""),
        ("kind: KubeletConfiguration\n", "/var/lib/kubelet/config.yaml", ""),
        (
            "featureGates:\n  GracefulNodeShutdown: false\nshutdownGracePeriod: 30s\n",
            "/var/lib/kubelet/config.yaml",
            "",
        ),
        (
            "x: 1\nshutdownGracePeriodByPodPriority:\n- priority: 0\n",
            "/var/lib/kubelet/config.yaml:2",
            "shutdownGracePeriodByPodPriority has 1 groups",
        ),
        ("shutdownGracePeriodByPodPriority: []\n", "/var/lib/kubelet/config.yaml", ""),
        (
            "{\n \"shutdownGracePeriod\" : \"5m\"\n}\n",
            "/var/lib/kubelet/config.yaml:2",
            "shutdownGracePeriod: 5m",
        ),
        ("", "/var/lib/kubelet/config.yaml", ""),
    ] {
        let found = Root::with(&[(FILE, text)]).config().expect("there is a file");
        assert_eq!(found.problem, "", "{text:?}");
        assert_eq!((found.place.as_str(), found.enabled.as_str()), (place, enabled), "{text:?}");
        assert_eq!(found.file, "/var/lib/kubelet/config.yaml");
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
        assert_eq!(found.wanted.as_secs(), seconds, "{text}");
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
        ("etc/k.d/20-b.conf", "shutdownGracePeriodCriticalPods: 5s\n"),
        ("etc/k.d/README", "not: [yaml"),
    ]);
    let found = root.config().unwrap();
    assert_eq!(
        (found.place.as_str(), found.enabled.as_str()),
        ("/etc/k.d/10-a.conf:1", "shutdownGracePeriod: 40s")
    );
    assert_eq!(found.file, "/etc/k.d/10-a.conf");
    let gated =
        "kubelet\0--config=/etc/k.yaml\0--feature-gates=A=true,GracefulNodeShutdown=false\0";
    fs::write(root.0.path().join("proc/9/cmdline"), gated).unwrap();
    assert_eq!(root.config().unwrap().enabled, "");
}

#[test]
fn a_file_that_cannot_be_read_is_said_and_harms_nothing() {
    for text in ["a: [", "shutdownGracePeriod: [1]\n", "- a\n- b\n"] {
        let found = Root::with(&[(FILE, text)]).config().expect("there is a file");
        assert_ne!(found.problem, "", "{text:?}");
        assert_eq!(found.enabled, "");
    }
    let root = Root::with(&[(FILE, "")]);
    fs::remove_file(root.0.path().join(FILE)).unwrap();
    fs::create_dir(root.0.path().join(FILE)).unwrap();
    assert_eq!(root.config().unwrap().problem, "it is not a file");
    fs::remove_dir(root.0.path().join(FILE)).unwrap();
    fs::write(root.0.path().join(FILE), "#".repeat(2 << 20)).unwrap();
    assert_eq!(root.config().unwrap().problem, "it is larger than 1 MiB");
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_fail(text in "\\PC{0,200}", lines in "([a-zA-Z:{}\\[\\]&*\" \n-]{0,40}){0,8}") {
        for text in [text, lines, ] {
            let root = Root::with(&[(FILE, &text)]);
            proptest::prop_assert!(root.config().is_some());
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
    let Fact::Known(found) = processes::interesting(root.0.path()) else { panic!("they are seen") };
    assert_eq!(found.iter().map(|process| process.pid).collect::<Vec<_>>(), [9]);
}

/// Any user may start a program of that name, with arguments that name any file.
#[test]
fn a_process_of_another_user_is_no_kubelet_and_crowds_none_out() {
    let mut files = vec![
        (FILE.to_owned(), "shutdownGracePeriod: 30s\n"),
        ("proc/9000/comm".to_owned(), "kubelet\n"),
        ("proc/7/comm".to_owned(), "kubelet\n"),
        ("proc/7/cmdline".to_owned(), "kubelet\0--config=/home/u/fifo\0"),
    ];
    files.extend((100..200).map(|pid| (format!("proc/{pid}/comm"), "earlyoom\n")));
    let files: Vec<(&str, &str)> = files.iter().map(|(file, text)| (&**file, *text)).collect();
    let root = Root::with(&files);
    if !rustix::process::geteuid().is_root() {
        let test = "a_process_of_another_user_is_no_kubelet_and_crowds_none_out";
        assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{test} needs root");
        println!("SKIPPED: {test}: only root can give a file to another user");
        return;
    }
    std::os::unix::fs::chown(root.0.path().join("proc/7"), Some(65534), None).unwrap();
    let Fact::Known(found) = processes::interesting(root.0.path()) else { panic!("they are seen") };
    let kubelets: Vec<u32> = found.iter().filter(|p| p.name == "kubelet").map(|p| p.pid).collect();
    assert_eq!(kubelets, [9000]);
    assert_eq!(root.config().unwrap().place, "/var/lib/kubelet/config.yaml:1");
}
