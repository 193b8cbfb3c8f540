#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use serde_json::json;
use winddown_shared::{WallClock, WallTime};

use super::*;
use crate::process::ShimCommand;

fn config(cgroups: CgroupParent) -> ProcessConfig {
    let shim = ShimCommand::subcommand("shim");
    let mut config =
        ProcessConfig::new("/none", "/none", shim, WallClock::fixed(WallTime::UNIX_EPOCH));
    config.cgroups = cgroups;
    config
}

fn pod(resources: &serde_json::Value) -> Pod {
    let object = json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"containers": [{"name": "c"}, {"name": "main", "resources": resources}]},
    });
    Pod::new(serde_json::from_value(object).unwrap()).unwrap()
}

#[test]
fn a_limit_that_would_not_be_enforced_is_refused_by_its_field_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let cgroups = Cgroups::new(&config(CgroupParent::Directory(dir.path().join("pods"))));
    assert!(cgroups.unenforced().lines().concat().contains("not a cgroup v2 directory"));
    let refused = cgroups.unenforced().field(&pod(&json!({"limits": {"memory": "1Gi"}}))).unwrap();
    assert_eq!(refused.field, "spec.containers[1].resources.limits.memory");
    assert!(refused.why.contains("not a cgroup v2 directory"), "{}", refused.why);
    assert!(refused.why.contains("runtime: systemd"), "{}", refused.why);
    assert_eq!(cgroups.unenforced().field(&pod(&json!({"requests": {"memory": "1Gi"}}))), None);
    let without = Cgroups::new(&config(CgroupParent::None));
    let refused = without.unenforced().field(&pod(&json!({"limits": {"memory": "1Gi"}}))).unwrap();
    assert!(refused.why.contains("set `ProcessConfig::cgroups`"), "{}", refused.why);
    let rehearsal = Cgroups::new(&config(CgroupParent::Rehearsal));
    assert_eq!(rehearsal.unenforced().field(&pod(&json!({"limits": {"memory": "1Gi"}}))), None);
    assert_eq!(rehearsal.unenforced().lines(), Vec::<String>::new());
}

#[test]
fn a_limit_that_systemd_takes_and_the_kernel_does_not_enforce_is_refused() {
    const OF_MACHINE: &str =
        "3:memory:/\n2:cpu,cpuacct:/\n1:name=systemd:/init.scope\n0::/init.scope\n";
    const OF_CONTAINER: &str = "3:memory:/box\n2:cpu,cpuacct:/box\n1:name=systemd:/box/payload/init.scope\n0::/box/payload/init.scope\n";
    for (init, files, refused) in [
        ("0::/init.scope\n", &[("cgroup.controllers", "cpu memory pids\n")][..], &[][..]),
        ("0::/init.scope\n", &[("cgroup.controllers", "cpu pids\n")], &["memory"]),
        ("0::/init.scope\n", &[("cgroup.controllers", "")], &["cpu", "memory"]),
        (OF_MACHINE, &[("cpu/cgroup.procs", ""), ("memory/cgroup.procs", "")], &[]),
        (
            "2:cpu,cpuacct:/\n0::/init.scope\n",
            &[("cpu/cgroup.procs", ""), ("unified/cgroup.controllers", "")],
            &["memory"],
        ),
        // The group of the whole container can be written, and is not one in which systemd makes others.
        (
            OF_CONTAINER,
            &[("cpu/cgroup.procs", ""), ("memory/cgroup.procs", "")],
            &["cpu", "memory"],
        ),
        (
            OF_CONTAINER,
            &[("cpu/box/payload/cgroup.procs", ""), ("memory/cgroup.procs", "")],
            &["memory"],
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (proc_root, mount) = (dir.path().join("proc"), dir.path().join("cg"));
        for process in ["1", "self"] {
            fs::create_dir_all(proc_root.join(process)).unwrap();
            fs::write(proc_root.join(process).join("cgroup"), init).unwrap();
        }
        for (path, text) in files {
            let path = mount.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let unenforced = Unenforced::by_systemd(&proc_root, &mount);
        for name in ["cpu", "memory"] {
            let field = unenforced.field(&pod(&json!({"limits": {name: "1"}})));
            assert_eq!(field.is_some(), refused.contains(&name), "{name}: {init} {files:?}");
        }
    }
}

/// Uses a tree of plain files in place of the kernel's.
#[test]
fn a_pods_cgroups_have_its_weight_and_each_containers_its_limits_on_version_2() {
    let dir = tempfile::tempdir().unwrap();
    let unit = dir.path().join("winddown.service");
    let root = unit.join("pods");
    let files = [
        "cgroup.subtree_control",
        "cpu.weight",
        "cpu.max",
        "memory.max",
        "memory.swap.max",
        "pids.max",
    ];
    for below in ["", "agent", "pods", "pods/pod-u", "pods/pod-u/main.3"] {
        fs::create_dir_all(unit.join(below)).unwrap();
        files.iter().for_each(|file| fs::write(unit.join(below).join(file), "").unwrap());
    }
    let controllers = Controller::ALL.to_vec();
    let path = "/winddown.service/pods".to_owned();
    let cgroups = Cgroups {
        hierarchies: vec![Hierarchy { root: root.clone(), path, is_v2: true, controllers }],
        unenforced: Unenforced::default(),
        node_tasks: Some(1000),
    };
    let pod = pod(&json!({"limits": {"memory": "1Mi", "cpu": "1"}, "requests": {"cpu": "500m"}}));
    let container = &pod.spec.as_ref().unwrap().containers[1];
    let made = cgroups.make(&pod, container, 3).unwrap();
    assert_eq!(made, [root.join("pod-u/main.3")]);
    let text = |path: &str| fs::read_to_string(unit.join(path)).unwrap();
    for level in ["", "pods", "pods/pod-u"] {
        assert_eq!(
            text(format!("{level}/cgroup.subtree_control").trim_start_matches('/')),
            "+cpu +memory +pids"
        );
    }
    assert_eq!(text("pods/pod-u/main.3/cgroup.subtree_control"), "", "it has the processes");
    assert_eq!(text("agent/memory.swap.max"), "0", "it has the values of Secrets");
    assert_eq!(text("pods/pids.max"), "900");
    assert_eq!(text("pods/pod-u/cpu.weight"), "20");
    assert_eq!(text("pods/pod-u/main.3/cpu.weight"), "20");
    assert_eq!(text("pods/pod-u/main.3/cpu.max"), "100000 100000");
    assert_eq!(text("pods/pod-u/main.3/memory.max"), "1048576");
    assert_eq!(text("pods/pod-u/main.3/memory.swap.max"), "0");
    assert_eq!(cgroups.newest(&pod, "main"), made);
    assert_eq!(cgroups.newest(&pod, "other"), Vec::<PathBuf>::new());
}
