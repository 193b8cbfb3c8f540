use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use winddown_runtimes::process::{CgroupParent, OpenError, ProcessConfig, ProcessRuntime};
use winddown_shared::{Runtime as _, RuntimeError};

use serde_json::json;

use crate::bed::{Bed, eventually, exit_of, is_alive, is_running, sh, skip, stop, sync_until};

/// Where a cgroup v2 hierarchy may be mounted, alone or beside v1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// A bed with a cgroup of its own for pods. `None`, after it has said that `what` is skipped, where none can be made.
fn delegated(what: &str) -> Option<(Bed, PathBuf, ProcessConfig)> {
    let bed = Bed::new();
    let Some(root) = new_cgroup(&bed) else {
        skip(what, "needs a cgroup v2 that can be written");
        return None;
    };
    let mut config = bed.config();
    config.cgroups = CgroupParent::Directory(root.clone());
    Some((bed, root, config))
}

fn new_cgroup(bed: &Bed) -> Option<PathBuf> {
    let mount = MOUNTS.into_iter().find(|m| Path::new(m).join("cgroup.procs").exists())?;
    let name = bed.dir.path().file_name()?.to_str()?.trim_start_matches('.');
    let root = Path::new(mount).join(format!("winddown-test-{name}"));
    std::fs::create_dir(&root).ok()?;
    Some(root)
}

/// Removes the cgroup of a [`delegated`] bed, in which the pods that are gone have left nothing.
fn remove(root: &Path) {
    std::fs::remove_dir(root.join("besteffort")).unwrap();
    std::fs::remove_dir(root).unwrap();
}

#[tokio::test]
async fn a_container_lives_in_a_cgroup_of_its_own_that_is_gone_after_the_pod() {
    let Some((bed, root, config)) = delegated("a cgroup of its own") else { return };
    let runtime = ProcessRuntime::open(config).await.unwrap();
    let name = root.file_name().unwrap().to_str().unwrap();
    assert_eq!(runtime.places().await.unwrap().pods_cgroup, Some(format!("/{name}")));
    let pod = bed.pod("trap '' TERM; (setsid sleep 1000 &); echo up; while :; do sleep 0.05; done");
    sync_until(&runtime, &pod, |c| c[0].started).await;
    bed.logged("main", 0, "up").await;
    let dir = root.join(format!("besteffort/pod-{}/main.0", pod.uid()));
    let inside = || std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let pids: Vec<i32> = inside().lines().map(|l| l.parse().unwrap()).collect();
    let supervisors = bed.supervisors();
    assert!(pids.len() >= 2 && !pids.contains(&supervisors[0]), "{pids:?} {supervisors:?}");
    let stopped = stop(&runtime, &pod, 100).await;
    assert!(stopped.forced());
    bed.nothing_left().await;
    eventually("its cgroup is gone", || !dir.exists()).await;
    runtime.clean_pod(pod.uid()).await.unwrap();
    assert!(!root.join(format!("besteffort/pod-{}", pod.uid())).exists());
    drop(runtime);
    remove(&root);
}

/// The kernel lists no processes of a threaded cgroup, only those of the one that it belongs to.
#[tokio::test]
async fn threaded_cgroups_that_a_container_made_in_its_own_keep_no_agent_from_starting() {
    let Some((bed, root, config)) = delegated("threaded cgroups") else { return };
    let runtime = ProcessRuntime::open(config.clone()).await.unwrap();
    let pod = bed.pod("echo up; exec sleep 1000");
    bed.bring_up(&runtime, &pod).await;
    let threaded = root.join(format!("besteffort/pod-{}/main.0/threaded", pod.uid()));
    std::fs::create_dir(&threaded).unwrap();
    std::fs::write(threaded.join("cgroup.type"), "threaded").unwrap();
    drop(runtime);
    let runtime = ProcessRuntime::open(config).await.unwrap();
    assert!(is_running(&runtime.pod_status(pod.uid()).await.unwrap().containers[0]));
    stop(&runtime, &pod, 5000).await;
    bed.nothing_left().await;
    runtime.clean_pod(pod.uid()).await.unwrap();
    drop(runtime);
    remove(&root);
}

/// A pod that runs as root tries to escape: it leaves its session, clears its environment and kills its supervisor.
#[tokio::test]
async fn a_process_that_wiped_its_marks_and_killed_its_supervisor_ends_with_its_container() {
    let Some((bed, root, config)) = delegated("an escape") else { return };
    let pid = bed.path("pid");
    let escape = format!(
        // `$$` is how a manifest writes a dollar sign.
        "env -i setsid sh -c 'echo $$$$ > {pid}.new; mv {pid}.new {pid}; exec sleep 1000' & \
         while [ ! -e {pid} ]; do sleep 0.01; done; kill -9 $PPID; sleep 1000",
        pid = pid.display(),
    );
    let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": [sh("main", &escape)]}));
    let runtime = ProcessRuntime::open(config.clone()).await.unwrap();
    sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    let pid: i32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    assert!(!is_alive(pid), "it outlived its container");
    stop(&runtime, &pod, 100).await;
    // A cgroup that a container created in its own must not prevent the cleanup.
    std::fs::create_dir_all(root.join(format!("besteffort/pod-{}/main.0/own", pod.uid()))).unwrap();
    runtime.clean_pod(pod.uid()).await.unwrap();
    drop(runtime);
    remove(&root);
}

/// The names in the marks are public: everybody can read them in the path of the container's cgroup.
#[tokio::test]
async fn a_process_of_another_user_that_carries_a_containers_marks_is_none_of_it() {
    let Some((bed, root, config)) = delegated("marks of another user") else { return };
    let runtime = ProcessRuntime::open(config).await.unwrap();
    let dies = [sh("main", "kill -9 $PPID; sleep 1000")];
    let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": dies}));
    let mut other = Command::new("sleep");
    other.arg("1000").uid(65534);
    other.env("WINDDOWN_POD_UID", pod.uid().as_str()).env("WINDDOWN_CONTAINER", "main");
    let mut other = other.spawn().unwrap();
    sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    assert_eq!(other.try_wait().unwrap(), None, "it was killed");
    other.kill().unwrap();
    other.wait().unwrap();
    runtime.clean_pod(pod.uid()).await.unwrap();
    drop(runtime);
    remove(&root);
}

#[tokio::test]
async fn a_cgroup_that_is_removed_before_its_process_enters_it_costs_no_start() {
    let Some((bed, root, config)) = delegated("a removed cgroup") else { return };
    let runtime = ProcessRuntime::open(config).await.unwrap();
    let pod = bed.pod("echo up; exec sleep 1000");
    let dir = root.join(format!("besteffort/pod-{}/main.0", pod.uid()));
    let (over, stop_removing) = std::sync::mpsc::channel::<()>();
    // Removes it once; a cgroup with processes cannot be removed.
    let remover = std::thread::spawn(move || {
        while stop_removing.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            if std::fs::remove_dir(&dir).is_ok() {
                break;
            }
        }
    });
    let started = runtime.sync_pod(&pod).await;
    drop(over);
    remover.join().unwrap();
    assert!(is_running(&started.unwrap().status.containers[0]));
    stop(&runtime, &pod, 5_000).await;
    bed.nothing_left().await;
    runtime.clean_pod(pod.uid()).await.unwrap();
    drop(runtime);
    remove(&root);
}

/// The disk of an agent is replaced by another one while its pods run.
#[tokio::test]
async fn containers_of_a_lost_state_directory_are_found_by_their_cgroups() {
    let Some((bed, root, mut config)) = delegated("a replaced disk") else { return };
    let first = ProcessRuntime::open(config.clone()).await.unwrap();
    let pod = bed.pod("trap 'exit 6' TERM; echo up; while :; do sleep 0.02; done");
    bed.bring_up(&first, &pod).await;
    let before = bed.processes_of_containers();
    config.state_dir = bed.path("state/another");
    config.volatile_dir = Some(bed.path("run/another"));
    let refused = ProcessRuntime::open(config.clone()).await;
    assert!(matches!(refused, Err(OpenError::CgroupsInUse { .. })), "while the first one runs");
    drop(first);
    let second = ProcessRuntime::open(config).await.unwrap();
    let listed = second.list_pods().await.unwrap();
    assert_eq!((listed.len(), &*listed[0].name, listed[0].running), (1, "web", true));
    let synced = second.sync_pod(&pod).await.unwrap();
    assert!(is_running(&synced.status.containers[0]), "{synced:?}");
    assert_eq!(bed.processes_of_containers(), before, "a second copy was started");
    assert!(!stop(&second, &pod, 10_000).await.forced());
    bed.nothing_left().await;
    second.clean_pod(pod.uid()).await.unwrap();
    drop(second);
    remove(&root);
}

/// An upgrade from an agent that accepted limits it could not enforce to one that refuses them.
#[tokio::test]
async fn a_limit_that_cannot_be_enforced_spares_the_pod_that_runs_until_the_next_boot() {
    let bed = Bed::new();
    let gate = bed.path("gate").display().to_string();
    let mut main =
        sh("main", &format!("while [ ! -e {gate} ]; do sleep 0.01; done; exec rm {gate}"));
    main["resources"] = json!({"limits": {"memory": "64Mi"}});
    let pod = bed.pod_of(&json!({"containers": [main]}));
    let mut config = bed.config();
    config.cgroups = CgroupParent::Rehearsal;
    let older = ProcessRuntime::open(config).await.unwrap();
    sync_until(&older, &pod, |c| is_running(&c[0])).await;
    drop(older);

    // No cgroup can be made there.
    let mut config = bed.config();
    config.cgroups = CgroupParent::Directory(bed.path("no-cgroup/pods"));
    let newer = ProcessRuntime::open(config.clone()).await.unwrap();
    let synced = newer.sync_pod(&pod).await.unwrap();
    assert!(is_running(&synced.status.containers[0]), "{synced:?}");
    let fields: Vec<_> = synced.ignored.iter().map(|one| one.field.as_str()).collect();
    assert_eq!(fields, ["spec.containers[0].resources.limits.memory"]);
    // Its container is restarted like that, too.
    std::fs::write(&gate, "").unwrap();
    sync_until(&newer, &pod, |c| c[0].restart_count == 1 && is_running(&c[0])).await;
    drop(newer);

    bed.cut_the_power(&[]).await;
    let after_boot = ProcessRuntime::open(config).await.unwrap();
    let error = after_boot.sync_pod(&pod).await.unwrap_err();
    let refused = matches!(&error, RuntimeError::Unsupported { field, .. } if *field == fields[0]);
    assert!(refused, "{error}");
    assert!(bed.processes().is_empty());
}

#[tokio::test]
async fn a_pod_with_a_limit_is_refused_by_a_runtime_that_was_given_no_cgroups() {
    let (bed, runtime) = Bed::with_runtime().await;
    let mut main = sh("main", "exec sleep 1000");
    main["resources"] = json!({"limits": {"memory": "64Mi"}});
    let pod = bed.pod_of(&json!({"containers": [main]}));
    for refused in [runtime.sync_pod(&pod).await.map(drop), runtime.supports(&pod)] {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("spec.containers[0].resources.limits.memory"), "{error}");
        assert!(error.contains("set `ProcessConfig::cgroups`"), "{error}");
    }
    bed.nothing_left().await;
}
