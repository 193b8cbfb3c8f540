use std::path::{Path, PathBuf};

use winddown_runtimes::process::ProcessRuntime;
use winddown_shared::{PodStatsSource as _, Runtime as _};

use crate::bed::{Bed, eventually, skip, stop, sync_until};

/// Where a cgroup v2 hierarchy may be mounted, alone or beside v1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

fn delegated(bed: &Bed) -> Option<PathBuf> {
    let mount = MOUNTS.into_iter().find(|m| Path::new(m).join("cgroup.procs").exists())?;
    let name = bed.dir.path().file_name()?.to_str()?.trim_start_matches('.');
    let root = Path::new(mount).join(format!("winddown-test-{name}"));
    std::fs::create_dir(&root).ok()?;
    Some(root)
}

#[tokio::test]
async fn a_container_lives_in_a_cgroup_of_its_own_that_is_gone_after_the_pod() {
    let bed = Bed::new();
    let Some(root) = delegated(&bed) else {
        return skip("a cgroup of its own", "needs a cgroup v2 that can be written");
    };
    let mut config = bed.config();
    config.cgroup_root = Some(root.clone());
    let runtime = ProcessRuntime::open(config).await.unwrap();
    let name = root.file_name().unwrap().to_str().unwrap();
    assert_eq!(runtime.pods_cgroup().await, Some(format!("/{name}")));
    let pod = bed.pod("trap '' TERM; (setsid sleep 1000 &); echo up; while :; do sleep 0.05; done");
    sync_until(&runtime, &pod, |c| c[0].started).await;
    bed.logged("main", 0, "up").await;
    let dir = root.join(format!("pod-{}/main.0", pod.uid()));
    let inside = || std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let pids: Vec<i32> = inside().lines().map(|l| l.parse().unwrap()).collect();
    let supervisors = bed.supervisors();
    assert!(pids.len() >= 2 && !pids.contains(&supervisors[0]), "{pids:?} {supervisors:?}");
    let stopped = stop(&runtime, &pod, 100).await;
    assert!(stopped.forced());
    bed.nothing_left().await;
    eventually("its cgroup is gone", || !dir.exists()).await;
    runtime.clean_pod(pod.uid()).await.unwrap();
    assert!(!root.join(format!("pod-{}", pod.uid())).exists());
    drop(runtime);
    std::fs::remove_dir(&root).unwrap();
}
