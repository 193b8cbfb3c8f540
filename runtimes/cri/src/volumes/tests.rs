#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use serde_json::{Value, json};

use super::*;
use crate::{api, mounts};

fn pod(spec: &Value) -> Pod {
    let meta = json!({"name": "web", "namespace": "n", "uid": "u"});
    let object = json!({"metadata": meta, "spec": spec});
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

/// A configuration with the directories that exist while an agent runs.
fn below(dir: &Path) -> CriConfig {
    let config = CriConfig::below(dir);
    for path in [&dirs::pods(&config), &config.logs.dir] {
        fs::create_dir_all(path).unwrap();
    }
    config
}

#[test]
fn the_hosts_file_has_the_pods_name_or_the_nodes_file_and_the_aliases() {
    let text_of = |pod: &Pod, node| {
        String::from_utf8(hosts(pod, &["10.1.2.3".to_owned()], "c.local", node)).unwrap()
    };
    let aliases = json!([{"ip": "192.0.2.9", "hostnames": ["a.example", "b.example"]}]);
    let own = pod(&json!({"containers": [], "hostAliases": aliases}));
    let text = text_of(&own, None);
    let names = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
        fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n10.1.2.3\tweb\n";
    let added = "\n# Entries added by HostAliases.\n192.0.2.9\ta.example\tb.example\n";
    assert_eq!(text, format!("# Kubernetes-managed hosts file.\n{names}{added}"));
    let below = pod(&json!({"containers": [], "hostname": "db-0", "subdomain": "db"}));
    let text = text_of(&below, None);
    assert!(text.contains("10.1.2.3\tdb-0.db.n.svc.c.local\tdb-0\n"), "{text}");
    let nodes = text_of(&own, Some(b"127.0.0.1 node\n"));
    let head = "# Kubernetes-managed hosts file (host network).\n127.0.0.1 node\n";
    assert_eq!(nodes, format!("{head}{added}"));
}

#[test]
fn a_host_path_must_be_what_its_type_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("file"), "").unwrap();
    let check = |name: &str, kind: &str| {
        let source = k8s::HostPathVolumeSource { path: path(name), type_: Some(kind.to_owned()) };
        host_path(Path::new("/proc"), &source).map_err(|e| e.to_string())
    };
    assert_eq!(check("file", "File"), Ok(()));
    assert_eq!(check("file", ""), Ok(()));
    assert_eq!(check("nothing", ""), Ok(()));
    assert_eq!(check("file", "Directory"), Err("it is not a directory".to_owned()));
    assert_eq!(check("file", "Socket"), Err("it is not a socket".to_owned()));
    assert!(check("nothing", "File").unwrap_err().contains("No such file"));
    assert_eq!(check("a/b", "DirectoryOrCreate"), Ok(()));
    assert_eq!(check("a/b/new", "FileOrCreate"), Ok(()));
    assert!(std::path::Path::new(&path("a/b/new")).is_file());
    assert_eq!(check("a/b/new", "DirectoryOrCreate"), Err("it is not a directory".to_owned()));
}

/// Names a directory on which a file system is mounted for a test.
const MOUNTED: &str = "WINDDOWN_TEST_MOUNTED";

#[test]
fn a_host_path_that_is_mounted_on_demand_is_mounted_and_looked_into() {
    let test = "a_host_path_that_is_mounted_on_demand_is_mounted_and_looked_into";
    let Some(debugfs) = std::env::var_os(MOUNTED) else {
        // The kernel mounts its `tracing` on demand.
        let mount = "mount -t debugfs debugfs \"$0\"";
        return in_a_namespace(test, &["debugfs", "tracefs"], mount);
    };
    let tracing = Path::new(&debugfs).join("tracing");
    let mounted = || {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.contains(&format!(" {} ", tracing.display()))
    };
    let check = |path: &Path, kind: &str| {
        let path = path.display().to_string();
        let source = k8s::HostPathVolumeSource { path, type_: Some(kind.to_owned()) };
        // Without process 1's root, this process's own view is used, which has the mount of this test.
        host_path(Path::new("/nowhere"), &source).map_err(|e| e.to_string())
    };
    assert!(!mounted(), "it is to be mounted below");
    assert_eq!(check(&tracing.join("events"), "Directory"), Ok(()));
    assert!(mounted());
    rustix::mount::unmount(&tracing, rustix::mount::UnmountFlags::empty()).unwrap();
    assert_eq!(check(&tracing, "Directory"), Ok(()));
    assert!(mounted(), "the directory below it is not what is on it");
}

#[tokio::test]
async fn a_subvolume_that_a_pod_makes_in_a_volume_counts_and_is_removed_with_its_pod() {
    let test = "a_subvolume_that_a_pod_makes_in_a_volume_counts_and_is_removed_with_its_pod";
    let Some(btrfs) = std::env::var_os(MOUNTED) else {
        let mount = "truncate -s 256M \"$0/disk\" && mkfs.btrfs -q \"$0/disk\" && \
                     mount -o loop \"$0/disk\" \"$0\"";
        return in_a_namespace(test, &["btrfs"], mount);
    };
    let mut config = below(Path::new(&btrfs));
    config.paths.proc = "/proc".into();
    let uid = PodUid::new("u");
    let volume = dirs::volumes(&config, &uid).join("data");
    fs::create_dir_all(&volume).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new("btrfs");
        let done = command.arg("subvolume").args(arguments).current_dir(&volume).output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    run(&["create", "a"]);
    // Deeper than directories are entered before they are moved.
    let deep = format!("a{}", "/d".repeat(100));
    fs::create_dir_all(volume.join(&deep)).unwrap();
    let deep = format!("{deep}/e");
    run(&["create", &deep]);
    for subvolume in ["a", &deep] {
        // Both have the same inode number.
        let file = volume.join(subvolume).join("file");
        fs::write(&file, vec![1; 1_000_000]).unwrap();
        fs::hard_link(&file, file.with_extension("again")).unwrap();
    }
    // Has an empty directory, which cannot be moved, in place of the other subvolume.
    run(&["snapshot", "a", "s"]);
    run(&["create", "n"]);
    run(&["create", "n/n"]);
    run(&["create", "n/n/n"]);

    let disk = winddown_engine::stats::DiskCache::default();
    let pod = winddown_engine::stats::PodDirs {
        uid: uid.clone(),
        logs: Vec::new(),
        volumes: vec![("data".into(), volume)],
        in_memory: Vec::new(),
        made: Vec::new(),
        other: Vec::new(),
    };
    disk.refresh(vec![pod], std::time::Duration::ZERO).await;
    let mut stats = winddown_shared::PodStats::default();
    disk.enter(&uid, &mut stats);
    let used = stats.volumes[0].used;
    // The volume, 100 directories and a file twice, two subvolumes in the first and what is left of one in its snapshot.
    assert_eq!((used.inodes, used.is_partial), (1 + 2 * (1 + 100 + 1 + 1) + 1 + 3, false));
    assert!(used.bytes >= 3_000_000, "{used:?}");
    remove(&config, &uid).unwrap();
    assert!(!dirs::pod(&config, &uid).exists());
}

/// Runs the test again, in a new mount namespace in which `mount` has mounted one of these file systems at `$0`.
fn in_a_namespace(test: &str, file_systems: &[&str], mount: &str) {
    let command = |program: &str| {
        let mut command = std::process::Command::new(program);
        command.stdin(std::process::Stdio::null());
        command
    };
    // Where they are modules that are not loaded yet.
    let _ = command("modprobe").arg("--all").args(file_systems).output();
    let known = std::fs::read_to_string("/proc/filesystems").unwrap();
    let lacks = file_systems.iter().find(|name| !known.contains(**name)).copied();
    let lacks = lacks.or_else(|| (!rustix::process::geteuid().is_root()).then_some("root"));
    let has = |program: &str| command(program).arg("--version").output().is_ok();
    let tools = (file_systems == ["btrfs"]).then_some(["btrfs", "mkfs.btrfs"]);
    let lacks = lacks.or_else(|| tools.into_iter().flatten().find(|program| !has(program)));
    if let Some(lacks) = lacks {
        println!("SKIPPED: {test}: needs {lacks}");
        assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "skipped: {test}: {lacks}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = command("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c"])
        .arg(format!("{mount} && exec \"$@\""))
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .args([test, "--nocapture"])
        .env(MOUNTED, dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && said.contains("1 passed");
    assert!(passed, "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_path_that_climbs_is_not_inside() {
    for (path, inside) in
        [("a/b", true), ("a/../b", false), ("..", false), ("/a", false), ("./a", true)]
    {
        assert_eq!(is_inside(Path::new(path)), inside, "{path}");
    }
}

#[test]
fn the_value_of_a_variable_in_a_path_is_in_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let config = below(dir.path());
    fs::write(dir.path().join("hunter2"), "is no directory").unwrap();
    for value in ["/hunter2", "hunter2/..", "hunter2/below"] {
        let pod = pod(&json!({
            "containers": [{"name": "main", "env": [{"name": "P", "value": value}],
                "volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$(P)"}]}],
            "volumes": [{"name": "v", "hostPath": {"path": dir.path()}}],
        }));
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let error = mounts(&config, &pod, container, 0, &[]).unwrap_err();
        let said = winddown_shared::error_chain(&error);
        assert!(said.contains("$(P)") && !said.contains("hunter2"), "{said}");
    }
}

/// A pod that has the directory of all pods, or of all logs, as a volume can make links there.
#[test]
fn no_link_of_a_pod_leads_what_is_made_for_it_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let config = below(dir.path());
    let volumes = json!([{"name": "scratch", "emptyDir": {}}]);
    let pod = pod(&json!({"containers": [{"name": "main"}], "volumes": volumes}));
    fs::create_dir(dir.path().join("elsewhere")).unwrap();
    let secret = dir.path().join("secret");
    fs::write(&secret, "of somebody else").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    prepare(&config, &pod).unwrap();
    prepare_run(&config, &pod, "main", 0, &[]).unwrap();

    let put = |path: &Path, to: &Path| {
        let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
        std::os::unix::fs::symlink(to, path).unwrap();
    };
    put(&dirs::termination_log(&config, pod.uid(), "main", 1), &secret);
    assert!(prepare_run(&config, &pod, "main", 1, &[]).is_err());
    put(&dirs::hosts(&config, pod.uid()), &secret);
    assert!(write_hosts(&config, &pod, &[]).is_err());
    let elsewhere = dir.path().join("elsewhere");
    put(&dirs::volume(&config, pod.uid(), "scratch"), &elsewhere);
    prepare(&config, &pod).unwrap();
    assert!(!dirs::volume(&config, pod.uid(), "scratch").is_symlink(), "it is made anew");
    put(&dirs::messages(&config, pod.uid()), &elsewhere);
    assert!(prepare_run(&config, &pod, "main", 2, &[]).is_err());
    // The last one: a pod that has the directory above the logs can put it there.
    for logs in [&dirs::logs_of(&config, &pod), &config.logs.dir] {
        put(logs, &elsewhere);
        assert!(prepare(&config, &pod).is_err());
        assert!(prepare_run(&config, &pod, "main", 2, &[]).is_err());
    }

    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&secret), mode(&elsewhere) & 0o022), (0o600, 0));
    assert_eq!(fs::read_to_string(&secret).unwrap(), "of somebody else");
}

#[test]
fn an_empty_dir_keeps_its_files_for_the_pods_next_start_until_the_pod_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let config = below(dir.path());
    let pod = pod(&json!({"containers": [], "volumes": [{"name": "scratch", "emptyDir": {}}]}));
    prepare(&config, &pod).unwrap();
    let file = dirs::volume(&config, pod.uid(), "scratch").join("deep/file");
    fs::create_dir(file.parent().unwrap()).unwrap();
    fs::write(&file, "kept").unwrap();
    // As after a reboot that the pod survives.
    prepare(&config, &pod).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    remove(&config, pod.uid()).unwrap();
    assert!(!file.exists());
}

#[test]
fn an_empty_dir_keeps_the_mode_and_the_group_that_the_pod_gave_it() {
    use std::os::unix::fs::MetadataExt as _;

    let own = rustix::process::getgid().as_raw();
    for security in [json!({}), json!({"fsGroup": own})] {
        let dir = tempfile::tempdir().unwrap();
        let config = below(dir.path());
        let volumes = json!([{"name": "scratch", "emptyDir": {}}]);
        let spec = json!({"containers": [], "volumes": volumes, "securityContext": security});
        let pod = pod(&spec);
        let path = dirs::volume(&config, pod.uid(), "scratch");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
        let open = if security["fsGroup"].is_null() { 0o777 } else { 0o2777 };
        prepare(&config, &pod).unwrap();
        assert_eq!(mode(), open);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o755);
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        let group = if rustix::process::geteuid().is_root() { own + 1 } else { own };
        std::os::unix::fs::chown(&path, None, Some(group)).unwrap();
        prepare(&config, &pod).unwrap();
        assert_eq!((mode(), fs::metadata(&path).unwrap().gid()), (0o700, group), "{spec}");
        // As an agent leaves it that is killed on the way.
        for left in [mounts::UNFINISHED, 0o2000 | mounts::UNFINISHED] {
            fs::set_permissions(&path, Permissions::from_mode(left)).unwrap();
            prepare(&config, &pod).unwrap();
            assert_eq!(mode() & open, open);
        }
    }
}

#[test]
fn a_run_begins_without_what_an_earlier_run_of_its_number_left() {
    let dir = tempfile::tempdir().unwrap();
    let config = below(dir.path());
    let pod = pod(&json!({"containers": [{"name": "main"}]}));
    let message = dirs::termination_log(&config, pod.uid(), "main", 0);
    let asked = dirs::asked(&config, pod.uid(), "main", 0);
    fs::create_dir_all(message.parent().unwrap()).unwrap();
    fs::write(&message, "of the last boot").unwrap();
    fs::write(&asked, "").unwrap();
    prepare_run(&config, &pod, "main", 0, &[]).unwrap();
    assert_eq!(fs::read_to_string(&message).unwrap(), "");
    assert!(!asked.exists(), "the next agent would never send the stop signal");
}

#[test]
fn a_hosts_file_for_which_the_disk_had_no_space_is_written_when_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let config = below(dir.path());
    let pod = pod(&json!({"containers": [{"name": "main"}]}));
    let path = dirs::hosts(&config, pod.uid());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    // What cannot be written to, as a file on a full disk.
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    write_hosts(&config, &pod, &[]).unwrap_err();
    prepare_run(&config, &pod, "main", 0, &[]).unwrap();
    assert!(fs::read_to_string(&path).unwrap().contains("127.0.0.1\tlocalhost\n"));
}

#[test]
fn a_container_that_starts_again_sees_what_was_added_to_the_nodes_hosts() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = below(dir.path());
    config.dns.hosts_file = dir.path().join("node-hosts");
    let pod = pod(&json!({"containers": [{"name": "main"}], "hostNetwork": true}));
    let path = dirs::hosts(&config, pod.uid());
    prepare(&config, &pod).unwrap();
    for (attempt, node) in ["192.0.2.1 a\n", "192.0.2.1 a\n192.0.2.2 b\n"].iter().enumerate() {
        fs::write(&config.dns.hosts_file, node).unwrap();
        let running = fs::File::open(&path);
        prepare_run(&config, &pod, "main", u32::try_from(attempt).unwrap(), &[]).unwrap();
        assert!(fs::read_to_string(&path).unwrap().ends_with(node), "run {attempt}");
        // The pod's other containers have the file mounted.
        let seen = running.map(|file| std::io::read_to_string(file).unwrap());
        assert!(seen.is_ok_and(|seen| seen.ends_with(node)) || attempt == 0);
    }
}

#[test]
fn a_pod_on_the_nodes_network_gets_the_whole_hosts_file_of_the_node_or_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = below(dir.path());
    config.dns.hosts_file = dir.path().join("node-hosts");
    let pod = pod(&json!({"containers": [{"name": "main"}], "hostNetwork": true}));
    let path = dirs::hosts(&config, pod.uid());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let head = b"# Kubernetes-managed hosts file (host network).\n".as_slice();
    let large = b"192.0.2.1 ads.example\n".repeat(2 * 1024 * 1024 / 22);
    for node in [b"192.0.2.1 caf\xff\n".as_slice(), &large] {
        fs::write(&config.dns.hosts_file, node).unwrap();
        write_hosts(&config, &pod, &[]).unwrap();
        assert!(fs::read(&path).unwrap() == [head, node].concat(), "of {} bytes", node.len());
    }
    fs::remove_file(&config.dns.hosts_file).unwrap();
    write_hosts(&config, &pod, &[]).unwrap();
    assert_eq!(fs::read(&path).unwrap(), head);
    remove_hosts(&config, pod.uid()).unwrap();
    fs::create_dir(&config.dns.hosts_file).unwrap();
    let error = prepare_run(&config, &pod, "main", 0, &[]).unwrap_err();
    let error = winddown_shared::error_chain(&error);
    assert!(error.contains("node-hosts") && !path.exists(), "{error}");
}

#[test]
fn only_what_was_made_for_pods_gets_their_selinux_label() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = CriConfig::below(dir.path());
    config.made_volumes = vec!["/run/made".into()];
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
    let pod = pod(&json!({
        "containers": [{"name": "main",
            "volumeMounts": [mount("scratch"), mount("secret"), mount("host"), mount("near")]}],
        "volumes": [
            {"name": "scratch", "emptyDir": {}},
            {"name": "secret", "hostPath": {"path": "/run/made/u/secret"}},
            {"name": "host", "hostPath": {"path": "/etc"}},
            {"name": "near", "hostPath": {"path": "/run/made-by-others"}},
        ],
    }));
    let all = mounts(&config, &pod, &pod.spec.as_ref().unwrap().containers[0], 0, &[]).unwrap();
    let seen: Vec<_> = all.iter().map(|m| (m.container_path.as_str(), m.selinux_relabel)).collect();
    let expected = [
        ("/scratch", true),
        ("/secret", true),
        ("/host", false),
        ("/near", false),
        ("/etc/hosts", true),
        ("/dev/termination-log", true),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_mount_is_what_its_spec_says() {
    let config = CriConfig::below(Path::new("/"));
    let pod = pod(&json!({
        "containers": [{"name": "main", "terminationMessagePath": "/srv/last-words", "volumeMounts": [
            {"name": "data", "mountPath": "/a", "readOnly": true},
            {"name": "data", "mountPath": "/b", "mountPropagation": "HostToContainer"},
            {"name": "data", "mountPath": "/c", "mountPropagation": "Bidirectional"}]}],
        "volumes": [{"name": "data", "hostPath": {"path": "/data"}}],
    }));
    let all = mounts(&config, &pod, &pod.spec.as_ref().unwrap().containers[0], 0, &[]).unwrap();
    use super::super::api::MountPropagation::{
        PropagationBidirectional as Both, PropagationHostToContainer as In,
        PropagationPrivate as No,
    };
    let seen: Vec<_> = all[..3]
        .iter()
        .map(|m| (&*m.container_path, &*m.host_path, m.readonly, m.propagation()))
        .collect();
    let expected =
        [("/a", "/data", true, No), ("/b", "/data", false, In), ("/c", "/data", false, Both)];
    assert_eq!(seen, expected);
    assert_eq!(all.last().unwrap().container_path, "/srv/last-words");
}

#[test]
fn a_container_reads_its_notice_unless_a_volume_is_in_the_way() {
    let mount = |path: &str| api::Mount { container_path: path.into(), ..api::Mount::default() };
    let given = |path: &str| notice(Path::new("/run/notices/u"), &[mount(path)]);
    let (mount, variable) = given("/data").unwrap();
    assert_eq!(mount.host_path, "/run/notices/u");
    assert_eq!((&*mount.container_path, mount.readonly), ("/dev/winddown", true));
    assert_eq!(
        (&*variable.key, &*variable.value),
        ("WINDDOWN_NOTICE", &b"/dev/winddown/notice.json"[..])
    );
    assert!(given("/dev/shm").is_some());
    for path in ["/", "/dev", "/dev/", "/dev/winddown", "/dev/winddown/own"] {
        assert_eq!(given(path), None, "{path}");
    }
}
