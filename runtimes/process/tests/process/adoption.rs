use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;
use winddown_runtimes::process::{OpenError, ProcessRuntime};
use winddown_shared::{Grace, Pod, Runtime as _, WallClock};

use crate::bed::{Bed, eventually, exit_of, is_running, sh, skip, status_until, stop, sync_until};
use crate::disk::Disk;

#[tokio::test]
async fn containers_keep_their_pids_over_a_restart_and_their_exits_are_still_heard() {
    let bed = Bed::new();
    let first = bed.open().await;
    let gate = bed.path("gate").display().to_string();
    let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": [
        sh("main", &format!("echo up; while [ ! -e {gate} ]; do sleep 0.01; done; exit 6"))]}));
    first.sync_pod(&pod).await.unwrap();
    bed.logged("main", 0, "up").await;
    let before = bed.supervisors();
    drop(first);

    let second = bed.open().await;
    assert_eq!(bed.supervisors(), before);
    let listed = second.list_pods().await.unwrap();
    assert_eq!((listed.len(), &*listed[0].name, listed[0].running), (1, "web", true));
    let synced = second.sync_pod(&pod).await.unwrap();
    assert!(is_running(&synced.status.containers[0]));
    assert_eq!(synced.status.containers[0].restart_count, 0);
    std::fs::write(&gate, "").unwrap();
    let seen = status_until(&second, &pod, |c| exit_of(&c[0]).is_some()).await;
    assert_eq!(exit_of(&seen[0]).unwrap().exit_code, 6);
    bed.nothing_left().await;
}

/// What waits for the disk may block its thread, so another one watches the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_starts_on_a_disk_that_refuses_or_blocks_writes_and_knows_what_runs() {
    for break_it in [Disk::refuse_writes, Disk::freeze] {
        let (bed, disk) = match Bed::on_a_disk() {
            Ok(both) => both,
            Err(why) => return skip("a disk that became read-only", &why),
        };
        let first = bed.open().await;
        let pod = bed.pod("echo up; exec sleep 1000");
        bed.bring_up(&first, &pod).await;
        drop(first);
        break_it(&disk);
        // The disk answers no more.
        let opens = tokio::spawn(ProcessRuntime::open(bed.config()));
        let opened = timeout(Duration::from_secs(60), opens).await.expect("it waits for the disk");
        let status = opened.unwrap().unwrap().pod_status(pod.uid()).await;
        assert!(is_running(&status.unwrap().containers[0]));
    }
}

/// What is left tells less and less: the complete record in memory, the directory of the logs, nothing.
#[tokio::test]
async fn containers_whose_records_are_lost_are_found_by_what_runs_and_no_second_copy_starts() {
    for (lost, name, grace) in [
        (&["state/pods"][..], "web", Some(Duration::from_secs(7))),
        (&["state/pods", "run"], "web", None),
        (&["state/pods", "run", "logs"], "", None),
    ] {
        let bed = Bed::new();
        let first = bed.open().await;
        let mut main = sh("main", "trap 'exit 6' TERM; echo up; while :; do sleep 0.02; done");
        main["resources"] = json!({});
        let pod = bed.pod_of(&json!({"containers": [main], "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 7}));
        bed.bring_up(&first, &pod).await;
        let before = (bed.supervisors(), bed.processes_of_containers());
        drop(first);
        for path in lost {
            std::fs::remove_dir_all(bed.path(path)).unwrap();
        }

        let second = bed.open().await;
        let listed = second.list_pods().await.unwrap();
        let seen: Vec<_> = listed.iter().map(|pod| (&*pod.name, pod.running, pod.grace)).collect();
        assert_eq!(seen, [(name, true, grace)], "{lost:?}");
        let synced = second.sync_pod(&pod).await.unwrap();
        assert!(is_running(&synced.status.containers[0]), "{synced:?}");
        let after = (bed.supervisors(), bed.processes_of_containers());
        assert_eq!(after, before, "a second copy was started");
        // Found once more, by the records that were written again.
        drop(second);
        let third = bed.open().await;
        let stopped = third.stop_pod(pod.uid(), None, Grace::fixed(Duration::from_secs(20))).await;
        let exits = stopped.unwrap().containers;
        assert_eq!((exits.len(), exits[0].exit_code, exits[0].forced), (1, 6, false), "{lost:?}");
        bed.nothing_left().await;
    }
}

#[tokio::test]
async fn the_logs_of_a_pod_whose_records_are_lost_are_removed_with_it_and_no_others() {
    let bed = Bed::new();
    let first = bed.open().await;
    let pod = bed.pod("echo up; exec sleep 1000");
    bed.bring_up(&first, &pod).await;
    drop(first);
    for path in ["state/pods", "run"] {
        std::fs::remove_dir_all(bed.path(path)).unwrap();
    }
    let logs = |pod: &str| bed.path("logs").join(format!("default_{pod}"));
    let (own, other) = (format!("web_{}", pod.uid()), format!("other_a_{}", pod.uid()));
    std::fs::create_dir(logs(&other)).unwrap();
    let second = bed.open().await;
    second.stop_pod(pod.uid(), None, Grace::fixed(Duration::ZERO)).await.unwrap();
    second.forget_pod(pod.uid()).await.unwrap();
    assert_eq!((logs(&own).exists(), logs(&other).exists()), (false, true));
    bed.nothing_left().await;
}

#[tokio::test]
async fn an_exit_while_no_agent_runs_is_known_to_the_next_one() {
    let bed = Bed::new();
    let first = bed.open().await;
    let gate = bed.path("gate").display().to_string();
    let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": [
        sh("main", &format!("while [ ! -e {gate} ]; do sleep 0.01; done; echo bye; exit 6"))]}));
    first.sync_pod(&pod).await.unwrap();
    // Until it has executed its program it is a copy of this test's process.
    eventually("the supervisor runs", || bed.supervisors().len() == 1).await;
    drop(first);
    std::fs::write(&gate, "").unwrap();
    eventually("the supervisor ends", || bed.supervisors().is_empty()).await;
    let second = bed.open().await;
    let synced = second.sync_pod(&pod).await.unwrap();
    assert_eq!(exit_of(&synced.status.containers[0]).unwrap().exit_code, 6);
    assert!(bed.log("main", 0).contains("bye"));
}

#[tokio::test]
async fn a_supervisor_that_was_killed_takes_its_container_with_it_and_the_exit_is_unknown() {
    let (bed, runtime) = Bed::with_runtime().await;
    // The daemon keeps its marks but is in another session, and its parent is gone.
    let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": [
        sh("main", "(setsid sleep 1000 &); echo up; exec sleep 1000")]}));
    bed.bring_up(&runtime, &pod).await;
    kill(bed.supervisors()[0]);
    let seen = status_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    let exit = exit_of(&seen[0]).unwrap();
    assert_eq!((exit.exit_code, &*exit.reason), (137, "ContainerStatusUnknown"));
    bed.nothing_left().await;
}

#[tokio::test]
async fn what_a_supervisor_killed_while_no_agent_ran_left_behind_is_ended_at_adoption() {
    let bed = Bed::new();
    let first = bed.open().await;
    let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": [
        sh("main", "(setsid sleep 1000 &); echo up; exec sleep 1000")]}));
    first.sync_pod(&pod).await.unwrap();
    bed.logged("main", 0, "up").await;
    drop(first);
    kill(bed.supervisors()[0]);
    eventually("the supervisor is gone", || bed.supervisors().is_empty()).await;
    assert!(!bed.processes().is_empty());
    let second = bed.open().await;
    assert_eq!(bed.processes(), Vec::<i32>::new());
    let status = second.pod_status(pod.uid()).await.unwrap();
    assert_eq!(exit_of(&status.containers[0]).unwrap().exit_code, 137);
}

#[tokio::test]
async fn the_initial_delay_of_a_probe_does_not_begin_again_with_a_new_agent() {
    let (bed, first) = Bed::with_runtime().await;
    let mut main = sh("main", "echo up; exec sleep 1000");
    main["readinessProbe"] = json!({"exec": {"command": ["false"]}, "initialDelaySeconds": 3600,
            "periodSeconds": 1, "failureThreshold": 1});
    let pod = bed.pod_of(&json!({"containers": [main]}));
    bed.bring_up(&first, &pod).await;
    drop(first);
    let mut config = bed.config();
    #[allow(clippy::disallowed_methods, reason = "real processes, real time")]
    let in_an_hour = || jiff::Timestamp::now() + Duration::from_secs(3600);
    config.wall = WallClock::new(in_an_hour);
    let second = ProcessRuntime::open(config).await.unwrap();
    // An adopted container is ready until its probe has run.
    sync_until(&second, &pod, |c| is_running(&c[0]) && !c[0].ready).await;
    stop(&second, &pod, 5000).await;
    bed.nothing_left().await;
}

#[tokio::test]
async fn the_back_off_survives_a_restart_of_the_agent() {
    let bed = Bed::new();
    let mut config = bed.config();
    config.backoff.initial = Duration::from_secs(60);
    config.backoff.max = Duration::from_secs(60);
    let pod = bed.pod("exit 1");
    let first = ProcessRuntime::open(config.clone()).await.unwrap();
    sync_until(&first, &pod, |c| c[0].restart_count == 1 && !is_running(&c[0])).await;
    eventually("the supervisor ends", || bed.supervisors().is_empty()).await;
    drop(first);
    let second = ProcessRuntime::open(config).await.unwrap();
    let synced = second.sync_pod(&pod).await.unwrap();
    assert_eq!(synced.status.containers[0].restart_count, 1);
    let wait = synced.again_in.unwrap();
    assert!(wait > Duration::from_secs(30) && wait <= Duration::from_secs(60), "{wait:?}");
    let stopped = stop(&second, &pod, 1000).await;
    assert_eq!((stopped.containers.len(), stopped.signalled_at), (0, None));
}

#[tokio::test]
async fn signals_sent_to_the_supervisor_by_mistake_do_not_end_the_container() {
    use nix::sys::signal::Signal;
    let (bed, runtime) = Bed::with_runtime().await;
    let pod = bed.pod("trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done");
    bed.bring_up(&runtime, &pod).await;
    let supervisor = nix::unistd::Pid::from_raw(bed.supervisors()[0]);
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1] {
        nix::sys::signal::kill(supervisor, signal).unwrap();
    }
    assert!(!stop(&runtime, &pod, 10_000).await.forced());
    bed.nothing_left().await;
}

#[tokio::test]
async fn a_second_agent_is_refused_the_state_directory() {
    let bed = Bed::new();
    let first = bed.open().await;
    let refused = ProcessRuntime::open(bed.config()).await;
    assert!(matches!(refused, Err(OpenError::InUse(_))));
    drop(first);
    bed.open().await;
}

#[tokio::test]
async fn a_damaged_record_costs_only_what_it_said() {
    let bed = Bed::new();
    let first = bed.open().await;
    let pod = bed.pod("trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done");
    first.sync_pod(&pod).await.unwrap();
    bed.logged("main", 0, "up").await;
    drop(first);
    let dir = bed.path("state/pods").join(pod.uid().as_str());
    std::fs::write(dir.join("pod.json"), "\0\0\0").unwrap();
    std::fs::create_dir_all(bed.path("state/pods/other/main/0")).unwrap();
    std::fs::write(bed.path("state/pods/other/main/0/attempt.json"), "{").unwrap();
    let second = bed.open().await;
    let mut listed = second.list_pods().await.unwrap();
    listed.sort_by_key(|pod| pod.running);
    let seen: Vec<_> = listed.iter().map(|pod| (pod.uid.as_str(), pod.running)).collect();
    assert_eq!(seen, [("other", false), (pod.uid().as_str(), true)]);
    second.forget_pod(&listed[0].uid).await.unwrap();
    assert!(!bed.path("state/pods/other").exists());
    stop(&second, &pod, 10_000).await;
    bed.nothing_left().await;
}

#[tokio::test]
async fn an_exit_record_that_cannot_be_read_does_not_count_as_missing() {
    let bed = Bed::new();
    let first = bed.open().await;
    let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": [sh("main", "exit 6")]}));
    first.sync_pod(&pod).await.unwrap();
    status_until(&first, &pod, |c| exit_of(&c[0]).is_some()).await;
    drop(first);
    let attempt = bed.path("state/pods").join(pod.uid().as_str()).join("main/0");
    let record = attempt.join("exit.json");
    std::fs::remove_file(&record).unwrap();
    std::fs::create_dir(&record).unwrap();
    let refused = ProcessRuntime::open(bed.config()).await;
    assert!(matches!(refused, Err(OpenError::Unusable { path, .. }) if path == attempt));
}

fn kill(pid: i32) {
    let pid = nix::unistd::Pid::from_raw(pid);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn a_container_that_was_asked_to_end_is_not_asked_again_by_the_next_agent() {
    let bed = Bed::new();
    let pod = bed.pod("trap 'echo asked' TERM; echo up; while :; do sleep 0.02; done");
    let first = bed.open().await;
    first.sync_pod(&pod).await.unwrap();
    bed.logged("main", 0, "up").await;
    leave_asked(&bed, first, &pod).await;
    let second = bed.open().await;
    let stopped = second.stop_pod(pod.uid(), None, Grace::fixed(Duration::from_millis(300))).await;
    assert!(stopped.unwrap().forced());
    assert_eq!(bed.log("main", 0).matches("asked").count(), 1);
    second.forget_pod(pod.uid()).await.unwrap();
    bed.nothing_left().await;
}

/// The next agent resumes the stop only after it has found what runs.
#[tokio::test]
async fn a_container_that_exits_before_the_next_agent_resumes_its_stop_has_not_done_its_work() {
    let bed = Bed::new();
    let gate = bed.path("gate").display().to_string();
    let script = format!(
        "trap 'echo asked; while [ ! -e {gate} ]; do sleep 0.01; done; exit 0' TERM
        echo up; while :; do sleep 0.02; done"
    );
    let pod =
        bed.pod_of(&json!({"restartPolicy": "OnFailure", "containers": [sh("main", &script)]}));
    let first = bed.open().await;
    bed.bring_up(&first, &pod).await;
    leave_asked(&bed, first, &pod).await;
    let second = bed.open().await;
    std::fs::write(&gate, "").unwrap();
    status_until(&second, &pod, |c| exit_of(&c[0]).is_some()).await;
    assert!(!second.has_completed(&pod));
    sync_until(&second, &pod, |c| is_running(&c[0])).await;
    stop(&second, &pod, 5000).await;
}

/// Drops the agent once it has sent the pod's container the stop signal.
async fn leave_asked(bed: &Bed, agent: ProcessRuntime, pod: &Pod) {
    let long = Grace::fixed(Duration::from_secs(60));
    let stop = agent.stop_pod(pod.uid(), Some(pod), long);
    let asked = async {
        bed.logged("main", 0, "asked").await;
        let mark = bed.path(&format!("state/pods/{}/main/0/asked", pod.uid()));
        eventually("the mark is on disk", || mark.exists()).await;
    };
    tokio::select! {
        stopped = stop => panic!("the container ignores SIGTERM: {stopped:?}"),
        () = asked => {}
    }
}
