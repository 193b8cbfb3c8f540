use serde_json::json;
use winddown_runtimes::process::ProcessRuntime;
use winddown_shared::{Grace, Runtime as _};

use crate::bed::{Bed, eventually, exit_of, is_running, sh, stop, sync_until};

#[tokio::test]
async fn a_container_runs_with_its_environment_and_ends_with_its_exit_code() {
    let (bed, runtime) = Bed::with_runtime().await;
    let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": [{
        "name": "main", "image": "none",
        "command": ["/bin/sh", "-c", "echo $GREETING $0; echo $(NAME) >&2; pwd; exit 3"],
        "args": ["$(NAME)!"],
        "workingDir": "/usr",
        "env": [
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "GREETING", "value": "hello"}],
    }]}));
    let seen = sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    let exit = exit_of(&seen[0]).unwrap();
    assert_eq!((exit.exit_code, exit.signal, &*exit.reason), (3, None, "Error"));
    assert!(exit.started_at.unwrap() <= exit.finished_at.unwrap());
    let log = bed.log("main", 0);
    for line in ["stdout F hello web!", "stderr F web", "stdout F /usr"] {
        assert!(log.contains(line), "{line} is not in\n{log}");
    }
    bed.nothing_left().await;
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_a_start_error_that_names_it() {
    let (bed, runtime) = Bed::with_runtime().await;
    let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": [
        {"name": "main", "image": "none", "command": ["/no/such/program"]}]}));
    let seen = sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    let exit = exit_of(&seen[0]).unwrap();
    assert_eq!((exit.exit_code, &*exit.reason), (128, "StartError"));
    assert!(exit.message.contains("/no/such/program"), "{}", exit.message);
}

#[tokio::test]
async fn a_container_runs_as_the_user_and_group_it_asks_for() {
    if !nix::unistd::geteuid().is_root() {
        let test = "a_container_runs_as_the_user_and_group_it_asks_for";
        return crate::bed::skip(test, "needs root");
    }
    let (bed, runtime) = Bed::with_runtime().await;
    let mut container = sh(
        "main",
        "id -u; id -g; id -G; echo to-out > /dev/stdout; echo to-err > /dev/stderr; \
         echo -n me > $WINDDOWN_TERMINATION_LOG",
    );
    container["securityContext"] =
        json!({"runAsUser": 65534, "runAsGroup": 65533, "allowPrivilegeEscalation": false});
    let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": [container],
        "securityContext": {"supplementalGroups": [4, 5]}}));
    // The temporary directory itself is closed to others.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(bed.dir.path(), open).unwrap();
    let seen = sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    let log = bed.log("main", 0);
    for line in ["F 65534\n", "F 65533\n", "F 65533 4 5\n", "F to-out\n", "F to-err\n"] {
        assert!(log.contains(line), "{line:?} is not in\n{log}");
    }
    assert_eq!(exit_of(&seen[0]).unwrap().message, "me");
}

#[tokio::test]
async fn a_user_without_a_group_never_has_that_of_the_hosts_root() {
    if !nix::unistd::geteuid().is_root() {
        let test = "a_user_without_a_group_never_has_that_of_the_hosts_root";
        return crate::bed::skip(test, "needs root");
    }
    let (bed, runtime) = Bed::with_runtime().await;
    let file = bed.path("hook");
    // The container waits for the hook, which would end with it.
    let wait = format!("while [ ! -s {} ]; do sleep 0.01; done", file.display());
    let mut container = sh("main", &format!("echo main $(id -u) $(id -G) $(umask); {wait}"));
    // No user of this host has this id.
    container["securityContext"] = json!({"runAsUser": 54321});
    std::fs::write(&file, "").unwrap();
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&file, all).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(bed.dir.path(), open).unwrap();
    let hook = format!("echo hook $(id -u) $(id -G) > {}", file.display());
    container["lifecycle"] = json!({"postStart": {"exec": {"command": ["/bin/sh", "-c", hook]}}});
    let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": [container]}));
    sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    let log = bed.log("main", 0);
    assert!(log.contains("main 54321 65534 0022"), "{log}");
    bed_file(file.to_str().unwrap(), "hook 54321 65534\n").await;
}

#[tokio::test]
async fn a_signal_mask_or_open_file_of_the_supervisor_does_not_reach_the_container() {
    let (bed, runtime) = Bed::with_runtime().await;
    let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": [
        sh("main", "grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | tr '\\n' ' '")]}));
    sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    let log = bed.log("main", 0);
    assert!(log.contains("SigBlk:\t0000000000000000"), "{log}");
    // stdin, stdout, stderr, and the directory that ls reads.
    assert!(log.ends_with("F 0 1 2 3 \n"), "{log}");
}

async fn bed_file(path: &str, expected: &str) {
    let read = || std::fs::read_to_string(path).unwrap_or_default();
    crate::bed::eventually(expected, || read() == expected).await;
}

#[tokio::test]
async fn directories_may_be_named_from_where_the_agent_was_started() {
    let (bed, here) = (Bed::new(), std::env::current_dir().unwrap());
    // Not below the root directory, in which supervisors run: from there the same names would lead elsewhere.
    let dir = tempfile::tempdir_in(&here).unwrap();
    let below = |name: &str| dir.path().strip_prefix(&here).unwrap().join(name);
    let mut config = bed.config();
    (config.state_dir, config.log_dir) = (below("state"), below("logs"));
    config.volatile_dir = Some(below("run"));
    let runtime = ProcessRuntime::open(config).await.unwrap();
    let pod = bed.pod("echo up; exec sleep 1000");
    sync_until(&runtime, &pod, |c| is_running(&c[0])).await;
    let log = dir.path().join(format!("logs/default_web_{}/main/0.log", pod.uid()));
    let logged = || std::fs::read_to_string(&log).is_ok_and(|text| text.contains("up"));
    eventually("its log is there", logged).await;
    stop(&runtime, &pod, 5000).await;
    bed.nothing_left().await;
}

#[tokio::test]
async fn a_container_has_the_home_of_its_user_and_the_name_of_its_host_unless_its_spec_has_others()
{
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let me = nix::unistd::Uid::current().to_string();
    let mut users = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let home = users.find(|user| user[2] == me).map_or("/", |user| user[5]);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let own = json!([{"name": "HOME", "value": "/h"}, {"name": "HOSTNAME", "value": "web-0"}]);
    for (env, home, host) in [(json!([]), home, host.trim()), (own, "/h", "web-0")] {
        let (bed, runtime) = Bed::with_runtime().await;
        let mut main = sh("main", "env");
        main["env"] = env;
        let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": [main]}));
        sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
        let log = bed.log("main", 0);
        for line in [format!(" HOME={home}\n"), format!(" HOSTNAME={host}\n")] {
            assert!(log.contains(&line), "{line} is not in\n{log}");
        }
    }
}

/// A hundred pods that start at once have as many: memory that the allocator keeps for as long as the agent runs.
#[tokio::test]
async fn a_step_of_a_pod_has_no_room_for_what_few_pods_need() {
    let (bed, runtime) = Bed::with_runtime().await;
    let pod = bed.pod("exit 0");
    let started = size_of_val(&runtime.sync_pod(&pod));
    let grace = Grace::fixed(Grace::DEFAULT);
    let stopped = size_of_val(&runtime.stop_pod(pod.uid(), Some(&pod), grace));
    assert!(started < 2048 && stopped < 4096, "{started} and {stopped} bytes");
}
