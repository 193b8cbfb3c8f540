use serde_json::json;
use winddown_runtimes::process::ProcessRuntime;

use crate::bed::{Bed, exit_of, sh, sync_until};

#[tokio::test]
async fn a_chatty_container_fills_as_many_files_as_are_kept_and_loses_no_line_in_them() {
    let bed = Bed::new();
    let mut config = bed.config();
    (config.log_max_bytes, config.log_max_files) = (100_000, 3);
    let runtime = ProcessRuntime::open(config).await.unwrap();
    let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": [
        sh("main", "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done")]}));
    sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    let dir = bed.path("logs").join(format!("default_web_{}", pod.uid())).join("main");
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    let all = [read("0.log.2"), read("0.log.1"), read("0.log")];
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 3);
    assert!(all.iter().all(|file| file.len() <= 100_000 && file.ends_with('\n')));
    let numbers: Vec<u32> = all
        .iter()
        .flat_map(|file| file.lines())
        .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
        .collect();
    assert!(numbers.windows(2).all(|w| w[1] == w[0] + 1), "no line is missing in between");
    assert_eq!(numbers.last(), Some(&19_999));
}

#[tokio::test]
async fn the_last_output_of_a_container_is_in_its_log_when_its_exit_is_seen() {
    let (bed, runtime) = Bed::with_runtime().await;
    let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": [
        sh("main", "head -c 60000 /dev/zero | tr '\\0' x; echo; printf 'no newline at the end'")]}));
    sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    let log = bed.log("main", 0);
    assert!(log.ends_with("stdout F no newline at the end\n"));
    let pieces = log.lines().filter(|l| l.contains(" stdout P ")).count();
    assert_eq!(pieces, 3, "60000 bytes are three pieces of 16 KiB and the rest");
}
