use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use winddown_runtimes::process::ProcessRuntime;
use winddown_shared::{Grace, Pod, Runtime as _};

use crate::bed::{Bed, eventually, is_running, sh, skip, stop, sync_until};
use crate::disk::Disk;

/// Ignores SIGTERM, and reports when the signal may be sent.
const STUBBORN: &str = "trap '' TERM; echo up; while :; do sleep 0.05; done";
/// Reports SIGTERM, and exits with code 0.
const POLITE: &str = "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.02; done";

/// A program may exit its first thread and continue with the others. The kernel then shows it as a zombie.
const HEADLESS: &str = "perl -Mthreads -e 'threads->create(sub { sleep 1000 }); syscall(60, 0)' & \
    until grep -q '^State:.Z' /proc/$!/status; do sleep 0.02; done; echo pid=$!; ";

fn has_threads_in_perl() -> bool {
    let tried = std::process::Command::new("perl").args(["-Mthreads", "-e", "1"]).output();
    tried.is_ok_and(|output| output.status.success())
}

/// Starts a container whose script leaves behind a program without its first thread; returns its pid.
async fn with_headless(bed: &Bed, runtime: &ProcessRuntime, script: &str) -> Option<(Pod, i32)> {
    if !has_threads_in_perl() {
        skip("a program without its first thread", "perl has no threads here");
        return None;
    }
    let pod = bed.pod(&format!("{HEADLESS}{script}"));
    bed.bring_up(runtime, &pod).await;
    let log = bed.log("main", 0);
    let pid = log.split("pid=").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
    Some((pod, pid.unwrap()))
}

async fn is_gone(pid: i32) {
    let path = format!("/proc/{pid}");
    eventually("the program is gone", || !std::path::Path::new(&path).exists()).await;
}

#[tokio::test]
async fn what_goes_on_without_its_first_thread_ends_with_its_container() {
    let (bed, runtime) = Bed::with_runtime().await;
    let Some((pod, pid)) = with_headless(&bed, &runtime, POLITE).await else { return };
    let asked = Instant::now();
    let stopped = stop(&runtime, &pod, 10_000).await;
    assert!(!stopped.forced() && asked.elapsed() < Duration::from_secs(5), "{stopped:?}");
    is_gone(pid).await;
    bed.nothing_left().await;
}

#[tokio::test]
async fn what_goes_on_without_its_first_thread_ends_also_when_its_supervisor_was_killed() {
    let (bed, runtime) = Bed::with_runtime().await;
    let Some((pod, pid)) = with_headless(&bed, &runtime, POLITE).await else { return };
    for supervisor in bed.supervisors() {
        kill(nix::unistd::Pid::from_raw(supervisor), Signal::SIGKILL).unwrap();
    }
    stop(&runtime, &pod, 10_000).await;
    is_gone(pid).await;
}

#[tokio::test]
async fn a_process_that_forked_and_changed_session_does_not_outlive_its_container() {
    let (bed, runtime) = Bed::with_runtime().await;
    let pid_file = bed.path("orphan");
    // A daemon ($$$$ is a shell's $$ in a pod): its own session, parent gone, environment wiped, every signal but KILL ignored.
    let daemon = format!(
        "env -i setsid sh -c 'trap \"\" TERM HUP INT; echo $$$$ > {}; while :; do sleep 1; done' & ",
        pid_file.display()
    );
    let pod =
        bed.pod(&format!("({daemon}) ; trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done"));
    bed.bring_up(&runtime, &pod).await;
    let orphan =
        || std::fs::read_to_string(&pid_file).unwrap_or_default().trim().parse().unwrap_or(0);
    eventually("the daemon", || orphan() > 0).await;
    assert!(crate::bed::is_alive(orphan()));
    let stopped = stop(&runtime, &pod, 10_000).await;
    assert!(!stopped.forced());
    assert!(!crate::bed::is_alive(orphan()), "gone when the stop returns");
    bed.nothing_left().await;
}

#[tokio::test]
async fn sigterm_goes_to_the_main_process_only() {
    let (bed, runtime) = Bed::with_runtime().await;
    let child = "sh -c 'trap \"echo child was asked\" TERM; while :; do sleep 0.02; done' &";
    let pod = bed.pod(&format!("{child} trap 'sleep 0.2; exit 0' TERM; echo up; wait; wait"));
    bed.bring_up(&runtime, &pod).await;
    stop(&runtime, &pod, 10_000).await;
    assert!(!bed.log("main", 0).contains("child was asked"));
    bed.nothing_left().await;
}

#[tokio::test]
async fn a_sidecar_whose_turn_does_not_come_is_asked_before_it_is_killed() {
    let (bed, runtime) = Bed::with_runtime().await;
    let mut sidecar = sh("side", POLITE);
    sidecar["restartPolicy"] = json!("Always");
    let pod =
        bed.pod_of(&json!({"initContainers": [sidecar], "containers": [sh("main", STUBBORN)]}));
    sync_until(&runtime, &pod, |c| c.iter().all(is_running)).await;
    bed.logged("side", 0, "up").await;
    bed.logged("main", 0, "up").await;
    let stopped = stop(&runtime, &pod, 2000).await;
    let forced: Vec<_> = stopped.containers.iter().map(|c| (&*c.name, c.forced)).collect();
    assert_eq!(forced, [("side", false), ("main", true)]);
    assert!(bed.log("side", 0).contains("asked"));
    bed.nothing_left().await;
}

#[tokio::test]
async fn the_pre_stop_hook_runs_as_the_container_before_sigterm() {
    let (bed, runtime) = Bed::with_runtime().await;
    let file = bed.path("hook").display().to_string();
    let mut container = sh(
        "main",
        &format!("trap 'cat {file}; exit 0' TERM; echo up; while :; do sleep 0.02; done"),
    );
    container["env"] = json!([{"name": "WHO", "value": "hook"}]);
    container["lifecycle"] = json!({"preStop": {"exec": {"command":
        ["/bin/sh", "-c", format!("sleep 0.1; echo the $WHO was first > {file}")]}}});
    let pod = bed.pod_of(&json!({"containers": [container]}));
    bed.bring_up(&runtime, &pod).await;
    stop(&runtime, &pod, 10_000).await;
    assert!(bed.log("main", 0).contains("the hook was first"), "{}", bed.log("main", 0));
    bed.nothing_left().await;
}

#[tokio::test]
async fn a_grace_that_shrinks_during_pre_stop_ends_the_hook_and_the_container() {
    let (bed, runtime) = Bed::with_runtime().await;
    let mut container = sh("main", STUBBORN);
    let hung = bed.path("hung").display().to_string();
    container["lifecycle"] = json!({"preStop": {"exec": {"command":
        ["/bin/sh", "-c", format!("echo > {hung}; setsid sleep 1000; sleep 1000")]}}});
    let pod = bed.pod_of(&json!({"containers": [container]}));
    bed.bring_up(&runtime, &pod).await;
    let (sender, grace) = Grace::until(Instant::now() + Duration::from_secs(600));
    let shorten = async {
        eventually("the hook runs", || std::path::Path::new(&hung).exists()).await;
        sender.shorten_to(Instant::now());
    };
    let (stopped, ()) = tokio::join!(runtime.stop_pod(pod.uid(), Some(&pod), grace), shorten);
    assert!(stopped.unwrap().forced());
    bed.nothing_left().await;
}

#[tokio::test]
async fn a_container_may_choose_the_signal_that_ends_it() {
    let (bed, runtime) = Bed::with_runtime().await;
    let mut container =
        sh("main", "trap 'exit 5' USR1; trap '' TERM; echo up; while :; do sleep 0.02; done");
    container["lifecycle"] = json!({"stopSignal": "SIGUSR1"});
    let pod = bed.pod_of(&json!({"containers": [container]}));
    bed.bring_up(&runtime, &pod).await;
    assert_eq!(stop(&runtime, &pod, 10_000).await.containers[0].exit_code, 5);
}

#[tokio::test]
async fn a_stop_after_a_sync_that_was_dropped_midway_ends_what_had_been_started() {
    let (bed, runtime) = Bed::with_runtime().await;
    let names: Vec<String> = (0..12).map(|i| format!("c{i}")).collect();
    let containers: Vec<_> = names.iter().map(|n| sh(n, "exec sleep 1000")).collect();
    let pod = bed.pod_of(&json!({"containers": containers}));
    for ms in [0, 1, 3, 8, 20] {
        tokio::select! {
            _ = runtime.sync_pod(&pod) => {}
            () = sleep(Duration::from_millis(ms)) => {}
        }
        stop(&runtime, &pod, 10_000).await;
        assert!(!runtime.pod_status(pod.uid()).await.unwrap().any_running(), "after {ms} ms");
        assert_eq!(bed.processes(), Vec::<i32>::new(), "after {ms} ms");
    }
    bed.nothing_left().await;
}

#[tokio::test]
async fn a_supervisor_that_is_suspended_does_not_save_its_container() {
    let bed = Bed::new();
    let mut config = bed.config();
    config.kill_timeout = Duration::from_secs(2);
    let runtime = winddown_runtimes::process::ProcessRuntime::open(config).await.unwrap();
    let pod = bed.pod(STUBBORN);
    bed.bring_up(&runtime, &pod).await;
    let supervisor = nix::unistd::Pid::from_raw(bed.supervisors()[0]);
    nix::sys::signal::kill(supervisor, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let stopped = stop(&runtime, &pod, 100).await;
    assert!(stopped.forced());
    bed.nothing_left().await;
}

#[tokio::test]
async fn a_container_that_survives_sigkill_is_an_error_that_names_it_and_the_next_stop_ends_it() {
    let bed = Bed::new();
    let disk = match Disk::new(bed.dir.path()) {
        Ok(disk) => disk,
        Err(why) => return skip("a container that survives SIGKILL", &why),
    };
    disk.freeze();
    let mut config = bed.config();
    config.kill_timeout = Duration::from_secs(1);
    let runtime = winddown_runtimes::process::ProcessRuntime::open(config).await.unwrap();
    let pod = bed.pod(&format!("echo up; echo > {}; exec sleep 1000", disk.path("file").display()));
    bed.bring_up(&runtime, &pod).await;
    let pid = bed.processes()[0];
    let stat = format!("/proc/{pid}/stat");
    let waits = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") D "));
    eventually("the container waits for its disk", waits).await;
    let grace = Grace::fixed(Duration::from_millis(100));
    let error = runtime.stop_pod(pod.uid(), Some(&pod), grace).await.unwrap_err().to_string();
    assert!(error.contains("container main") && error.contains("survives SIGKILL"), "{error}");
    assert!(error.contains(&format!("process {pid} (state D)")), "{error}");
    assert!(runtime.pod_status(pod.uid()).await.unwrap().any_running());
    drop(disk);
    let stopped = stop(&runtime, &pod, 1000).await;
    assert!(stopped.forced());
    bed.nothing_left().await;
}

/// Its supervisor waits for the disk on which it records the exit.
#[tokio::test]
async fn on_a_disk_that_hangs_a_stop_waits_for_the_container_and_not_for_the_record_of_its_exit() {
    let (bed, disk) = match Bed::on_a_disk() {
        Ok(both) => both,
        Err(why) => return skip("a stop on a disk that hangs", &why),
    };
    let runtime = bed.open().await;
    let pod = bed.pod("echo up; exec sleep 1000");
    bed.bring_up(&runtime, &pod).await;
    disk.freeze();
    let stopped = timeout(Duration::from_secs(20), stop(&runtime, &pod, 60_000)).await;
    assert!(!stopped.expect("it waits for the disk").forced());
    drop(disk);
    bed.nothing_left().await;
}

/// A busy disk is no hung one.
#[tokio::test]
async fn an_exit_that_is_recorded_late_counts_as_it_was() {
    let (bed, disk) = match Bed::on_a_disk() {
        Ok(both) => both,
        Err(why) => return skip("an exit that is recorded late", &why),
    };
    let runtime = bed.open().await;
    let pod = bed.pod("trap 'exit 3' TERM; echo up; while :; do sleep 0.1; done");
    bed.bring_up(&runtime, &pod).await;
    disk.freeze();
    let busy = async {
        sleep(Duration::from_secs(4)).await;
        disk.thaw();
    };
    let (stopped, ()) = tokio::join!(stop(&runtime, &pod, 60_000), busy);
    assert_eq!((stopped.containers[0].exit_code, stopped.forced()), (3, false));
    bed.nothing_left().await;
}
