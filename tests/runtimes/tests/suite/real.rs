//! What only a real containerd shows.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use tokio::time::{Instant, timeout};
use winddown_cri::{CriRuntime, PodContainers};
use winddown_shared::{Grace, Pod, Runtime as _, error_chain};

use crate::bed::{
    Act, PATIENCE, POLITE, STUBBORN, eventually, exit_of, forget, is_running, pod, run, secs, skip,
    status_until, stop, sync_until, waits_for,
};
use crate::containerd::{IMAGE, systemd_manages_cgroups};
use crate::stage::Stage as _;
use crate::stages::{Real, container_of};

pub(crate) async fn set(test: &str) -> Option<Real> {
    match Real::missing() {
        None => Some(Real::set().await),
        Some(why) => {
            skip(test, why);
            None
        }
    }
}

/// The version of Linux.
fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The kernel tells of an exit before the runtime does, and the status of a pod that has terminated is final.
#[tokio::test]
async fn the_first_status_after_a_stop_has_what_the_containers_said_at_their_end() {
    let Some(stage) = set("the first status after a stop has what the containers said").await
    else {
        return;
    };
    let runtime = stage.open_now().await;
    let container = |name: &str, policy: &str, deed: &str| {
        let script = format!("trap '{deed}' TERM; echo up; while :; do sleep 1000 & wait $!; done");
        json!({"name": name, "image": IMAGE, "terminationMessagePolicy": policy,
            "command": ["/bin/sh", "-c", script]})
    };
    let pod = pod(
        "web",
        &json!({"containers": [
            container("says", "File", "echo -n bye > /dev/termination-log; exit 3"),
            container("logs", "FallbackToLogsOnError", "echo the end; sleep 1; exit 4"),
        ]}),
    );
    stage.up(&runtime, &pod).await;
    stop(&runtime, &pod, 30).await;
    let ends = runtime.pod_status(pod.uid()).await.unwrap().containers;
    let said = ends.iter().map(|one| exit_of(one).unwrap());
    let said: Vec<_> = said.map(|exit| (exit.exit_code, exit.message.as_str())).collect();
    assert_eq!(said, [(3, "bye"), (4, "up\nthe end")]);
}

#[tokio::test]
async fn a_container_finds_what_its_spec_promises() {
    let Some(stage) = set("a container finds what its spec promises").await else { return };
    let runtime = stage.open_now().await;
    let host = stage.dir.path().join("host");
    std::fs::create_dir(&host).unwrap();
    std::fs::write(host.join("file"), "from the node").unwrap();
    let script = "id -u; id -g; id -G; echo var=$GREETING; cat /data/file; echo; ls /part; \
        echo x > /data/new || echo read-only; echo y > /scratch/y && cat /scratch/y; \
        grep ' /fast ' /proc/self/mountinfo; grep alias.example /etc/hosts; cat /etc/resolv.conf; \
        grep -E 'NoNewPrivs|CapEff|Seccomp:' /proc/self/status; touch /root-file || echo root-is-read-only; \
        echo -n out of cheese > /dev/termination-log; exit 2";
    let pod = pod(
        "promises",
        &json!({
            "restartPolicy": "Never", "dnsPolicy": "None",
            "dnsConfig": {"nameservers": ["192.0.2.53"], "searches": ["example.org"]},
            "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["alias.example"]}],
            "securityContext": {"runAsUser": 1234, "runAsGroup": 5678, "fsGroup": 99,
                "supplementalGroups": [77]},
            "volumes": [
                {"name": "data", "hostPath": {"path": host.display().to_string(), "type": "Directory"}},
                {"name": "scratch", "emptyDir": {}},
                {"name": "fast", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
            "containers": [{
                "name": "main", "image": IMAGE, "command": ["/bin/sh", "-c", script],
                "env": [{"name": "GREETING", "value": "hello $(NAME)"},
                    {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "resources": {"limits": {"memory": "64Mi", "cpu": "500m"}, "requests": {"cpu": "500m"}},
                "securityContext": {"allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [
                    {"name": "data", "mountPath": "/data", "readOnly": true},
                    {"name": "scratch", "mountPath": "/part", "subPath": "deep/inside"},
                    {"name": "scratch", "mountPath": "/scratch"},
                    {"name": "fast", "mountPath": "/fast"}],
            }],
        }),
    );
    let seen = sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    let cgroup = format!("/{}", stage.containerd.cgroup());
    assert_eq!(
        runtime.places().await.unwrap().pods_cgroup,
        Some(cgroup),
        "who manages them is known"
    );
    let log = stage.log("promises", "main", 0);
    let exit = exit_of(&seen[0]).unwrap();
    assert_eq!((exit.exit_code, exit.message.as_str()), (2, "out of cheese"), "{log}");
    for line in [
        "F 1234\n",
        "F 5678\n",
        "F 5678 77 99\n",
        "F var=hello $(NAME)\n",
        "F from the node\n",
        "F read-only\n",
        "F y\n",
        "tmpfs rw,size=1024k",
        "alias.example",
        "nameserver 192.0.2.53",
        "search example.org",
        "NoNewPrivs:\t1",
        "CapEff:\t0000000000000000",
        "root-is-read-only",
    ] {
        assert!(log.contains(line), "{line:?} is not in\n{log}");
    }
    if kernel() >= (6, 4) {
        let tmpfs = log.lines().find(|line| line.contains("size=1024k")).unwrap();
        assert!(tmpfs.contains("noswap"), "what it keeps in memory may be swapped out: {tmpfs}");
    }
    let slices = stage.containerd.slices_of_pods();
    assert_eq!(slices.len(), usize::from(systemd_manages_cgroups()), "{slices:?}");
    if systemd_manages_cgroups() {
        // The pod asks for half a processor, so do all Burstable pods; each installation of a package reloads systemd.
        let weights = || {
            stage.containerd.weights(["-burstable", "-besteffort", "-burstable-poduid_promises"])
        };
        assert_eq!(weights(), ["20", "1", "20"]);
        let reloaded =
            std::process::Command::new("systemctl").arg("daemon-reload").status().unwrap();
        assert!(reloaded.success());
        assert_eq!(weights(), ["20", "1", "20"], "after a reload");
    }
    forget(&runtime, &pod).await;
    assert_eq!(stage.containerd.containers(), Vec::<String>::new());
    let left = |name: &str| std::fs::read_dir(stage.dir.path().join(name)).unwrap().count();
    assert_eq!((left("state/pods"), left("logs")), (0, 0));
    assert!(host.join("file").exists(), "what was mounted is the node's");
    let parent = stage.containerd.cgroup_parent();
    let slice = format!("{parent}-burstable.slice/{parent}-burstable-poduid_promises.slice");
    // systemd stops it when it has answered.
    eventually("its slice is gone", || stage.containerd.slices_of_pods().is_empty()).await;
    for dir in stage.containerd.cgroup_dirs() {
        for group in ["burstable/poduid-promises", &slice].map(|below| dir.join(below)) {
            assert!(!group.exists(), "{}", group.display());
        }
    }
}

#[tokio::test]
async fn hooks_and_probes_run_in_the_container() {
    let Some(stage) = set("hooks and probes run in the container").await else { return };
    let runtime = stage.open_now().await;
    let mut main = container_of("main", POLITE);
    main["lifecycle"] = json!({
        "postStart": {"exec": {"command": ["/bin/sh", "-c", "touch /tmp/ready"]}},
        "preStop": {"exec": {"command": ["/bin/sh", "-c", "echo bye > /proc/1/fd/1"]}}});
    main["readinessProbe"] =
        json!({"exec": {"command": ["/bin/ls", "/tmp/ready"]}, "periodSeconds": 1});
    main["livenessProbe"] =
        json!({"exec": {"command": ["/bin/sh", "-c", "exit 0"]}, "periodSeconds": 1});
    let pod = pod("web", &json!({"containers": [main]}));
    sync_until(&runtime, &pod, |c| c[0].ready && c[0].started).await;
    stage.hears(&pod).await;
    assert!(!stop(&runtime, &pod, 20).await.forced());
    // containerd writes the last words some time after the container has ended.
    let is_written = || stage.log("web", "main", 0).contains("F asked");
    eventually("the last words are written", is_written).await;
    let log = stage.log("web", "main", 0);
    let (bye, asked) = (log.find("F bye"), log.find("F asked"));
    assert!(bye.is_some() && bye < asked, "{log}");
}

#[tokio::test]
async fn an_image_that_cannot_be_pulled_is_named_with_what_to_do() {
    let Some(stage) = set("an image that cannot be pulled").await else { return };
    let runtime = stage.open_now().await;
    let mut absent = container_of("absent", POLITE);
    absent["image"] = json!("winddown.test/nothing:1");
    absent["imagePullPolicy"] = json!("Never");
    let pod = pod("web", &json!({"containers": [absent, container_of("main", POLITE)]}));
    let seen = runtime.sync_pod(&pod).await.unwrap().status.containers;
    assert_eq!((waits_for(&seen[0]).as_str(), is_running(&seen[1])), ("ErrImageNeverPull", true));
    stop(&runtime, &pod, 20).await;
}

#[tokio::test]
async fn pods_outlive_a_killed_containerd_and_their_exits_are_heard_when_it_is_back() {
    let Some(mut stage) = set("pods outlive a killed containerd").await else { return };
    let runtime = stage.open_now().await;
    let stays = pod("stays", &json!({"containers": [container_of("main", POLITE)]}));
    let (ends, gate) = stage.gated("ends", Act { run: "gate", code: 6, ..POLITE });
    stage.up(&runtime, &stays).await;
    stage.up(&runtime, &ends).await;
    stage.containerd.kill();
    let broken = runtime.list_pods().await.unwrap_err();
    assert!(error_chain(&broken).contains("containerd.sock"), "{}", error_chain(&broken));
    let refused = runtime.list_pods().await.unwrap_err();
    assert!(
        error_chain(&refused).contains("start the container runtime"),
        "{}",
        error_chain(&refused)
    );
    // It exits while nobody is there to tell.
    gate.open();
    eventually("it ended", || stage.containerd.pids_of("act gate").is_empty()).await;
    stage.containerd.resume().await;
    let seen = status_until(&runtime, &ends, |c| exit_of(&c[0]).is_some()).await;
    // From 1.7 on containerd does not know the code of what ended without it.
    let code = exit_of(&seen[0]).unwrap().exit_code;
    assert!([6, 255].contains(&code), "{code}");
    let status = runtime.sync_pod(&stays).await.unwrap().status.containers;
    assert_eq!((is_running(&status[0]), status[0].restart_count), (true, 0));
    assert!(!stop(&runtime, &stays, 20).await.forced());
}

#[tokio::test]
async fn a_containerd_killed_during_a_start_leaves_no_container_twice() {
    let Some(mut stage) = set("containerd killed during a start").await else { return };
    let runtime = stage.open_now().await;
    runtime.list_pods().await.unwrap();
    for (i, after) in [10, 60, 120, 180].into_iter().enumerate() {
        let pod = pod(&format!("web{i}"), &json!({"containers": [container_of("main", POLITE)]}));
        let cut = timeout(Duration::from_millis(after), runtime.sync_pod(&pod)).await;
        stage.containerd.kill();
        stage.containerd.resume().await;
        if cut.is_err() {
            let _ = runtime.sync_pod(&pod).await;
        }
        let seen = sync_until(&runtime, &pod, |c| is_running(&c[0])).await;
        let log = stage.log(&format!("web{i}"), "main", seen[0].restart_count);
        assert!(log.matches("up").count() <= 1, "{log}");
        stage.hears(&pod).await;
        assert!(!stop(&runtime, &pod, 20).await.forced());
        forget(&runtime, &pod).await;
    }
    assert_eq!(stage.containerd.containers(), Vec::<String>::new());
}

#[tokio::test]
async fn a_containerd_restarted_during_a_stop_still_ends_the_pod() {
    let Some(mut stage) = set("containerd restarted during a stop").await else { return };
    let runtime = stage.open_now().await;
    let slow = Act { stop: "1", stop_code: 4, ..POLITE };
    let pod = pod("web", &json!({"containers": [container_of("main", slow)]}));
    stage.up(&runtime, &pod).await;
    let stopping = runtime.stop_pod(pod.uid(), Some(&pod), Grace::fixed(secs(30)));
    let restart = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        stage.containerd.kill();
        stage.containerd.resume().await;
    };
    let (stopped, ()) = tokio::join!(stopping, restart);
    let stopped = stopped.unwrap();
    // From 1.7 on containerd does not know the code of what ended without it, nor does Linux before 6.15.
    let code = stopped.containers[0].exit_code;
    assert!(code == 4 || (code == 255 && kernel() < (6, 15)), "{code}");
    assert!(!stopped.forced());
}

#[tokio::test]
async fn a_containerd_killed_before_a_stop_ends_the_pod_when_it_is_back() {
    let Some(mut stage) = set("containerd killed before a stop").await else { return };
    let runtime = stage.open_now().await;
    let pod = pod("web", &json!({"containers": [container_of("main", POLITE)]}));
    stage.up(&runtime, &pod).await;
    stage.containerd.kill();
    let stopping = runtime.stop_pod(pod.uid(), Some(&pod), Grace::fixed(secs(30)));
    let restart = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        stage.containerd.resume().await;
    };
    let (stopped, ()) = tokio::join!(stopping, restart);
    assert!(!stopped.unwrap().forced());
}

#[tokio::test]
async fn a_suspended_containerd_makes_a_stop_fail_at_its_deadline_and_a_later_one_works() {
    let Some(stage) = set("a suspended containerd").await else { return };
    let mut config = stage.config();
    config.times.ask = secs(3);
    config.times.kill = secs(1);
    config.signal_directly = false;
    let runtime = CriRuntime::open(config).await.unwrap();
    let pod = pod("web", &json!({"containers": [container_of("main", STUBBORN)]}));
    stage.up(&runtime, &pod).await;
    stage.containerd.suspend();
    let began = Instant::now();
    let error = runtime.stop_pod(pod.uid(), Some(&pod), Grace::fixed(secs(1))).await.unwrap_err();
    assert!(began.elapsed() >= secs(2) && began.elapsed() < secs(15), "{:?}", began.elapsed());
    assert!(
        error_chain(&error).contains("container main of pod uid-web"),
        "{}",
        error_chain(&error)
    );
    assert!(runtime.pod_status(pod.uid()).await.unwrap().any_running());
    stage.containerd.go_on();
    // As pod workers do: on an emulated machine containerd takes more than a second for what has piled up.
    let resumed = Instant::now();
    let stopped = loop {
        match runtime.stop_pod(pod.uid(), Some(&pod), Grace::fixed(secs(1))).await {
            Ok(stopped) => break stopped,
            Err(error) => assert!(resumed.elapsed() < PATIENCE, "{}", error_chain(&error)),
        }
    };
    assert!(stopped.forced());
}

#[tokio::test]
async fn a_suspended_containerd_keeps_no_pod_from_ending() {
    let Some(stage) = set("pods terminate without containerd").await else { return };
    let mut config = stage.config();
    config.times.ask = secs(3);
    let runtime = CriRuntime::open(config).await.unwrap();
    let slow = Act { stop: "0.5", stop_code: 3, ..POLITE };
    let polite = pod("polite", &json!({"containers": [container_of("main", slow)]}));
    let stubborn = pod("stubborn", &json!({"containers": [container_of("main", STUBBORN)]}));
    stage.up(&runtime, &polite).await;
    stage.up(&runtime, &stubborn).await;
    stage.containerd.suspend();
    let began = Instant::now();
    let (asked, killed) = tokio::join!(stop(&runtime, &polite, 20), stop(&runtime, &stubborn, 1));
    assert!(killed.forced() && began.elapsed() < secs(15), "{:?}", began.elapsed());
    let ended = asked.stopped_at.unwrap() - began;
    assert!(ended >= Duration::from_millis(500) && ended < secs(15), "{ended:?}");
    // Before Linux 6.15 only containerd knows the code.
    assert!([3, 137].contains(&asked.containers[0].exit_code));
    stage.containerd.go_on();
    for pod in [&polite, &stubborn] {
        forget(&runtime, pod).await;
    }
    assert_eq!(stage.containerd.containers(), Vec::<String>::new());
}

/// A pod whose hook says so in the log, and takes a second.
fn with_hook(name: &str, act: Act) -> Pod {
    let mut main = container_of("main", act);
    let hook = "echo hook > /proc/1/fd/1; sleep 1";
    main["lifecycle"] = json!({"preStop": {"exec": {"command": ["/bin/sh", "-c", hook]}}});
    pod(name, &json!({"containers": [main]}))
}

/// The kernel reports the exit of a PID namespace's first process only when all others in it have been reaped, and
/// what was executed in a container is reaped by its shim.
#[tokio::test]
async fn a_shim_that_reaps_no_hook_keeps_no_pod_from_terminating() {
    let Some(stage) = set("a suspended shim").await else { return };
    let runtime = stage.open_now().await;
    let polite = with_hook("polite", Act { stop_code: 3, ..POLITE });
    let stubborn = with_hook("stubborn", STUBBORN);
    stage.up(&runtime, &polite).await;
    stage.up(&runtime, &stubborn).await;
    let began = Instant::now();
    let suspend = async {
        let runs = |name: &str| stage.log(name, "main", 0).contains("F hook");
        eventually("the hooks run", || runs("polite") && runs("stubborn")).await;
        stage.containerd.suspend_with_shims();
    };
    let both = async { tokio::join!(stop(&runtime, &polite, 5), stop(&runtime, &stubborn, 5)) };
    let ((exited, killed), ()) = tokio::join!(both, suspend);
    assert_eq!((exited.containers[0].exit_code, exited.forced()), (3, false));
    assert!(killed.forced());
    for stopped in [exited, killed] {
        let ended = stopped.stopped_at.unwrap() - began;
        assert!(ended < secs(9), "{ended:?}");
    }
    stage.containerd.go_on();
    for pod in [&polite, &stubborn] {
        forget(&runtime, pod).await;
    }
    assert_eq!(stage.containerd.containers(), Vec::<String>::new());
}

#[tokio::test]
async fn a_container_is_asked_to_end_once_also_by_an_agent_that_comes_later() {
    let Some(stage) = set("a container is asked to terminate once").await else { return };
    let runtime = stage.open_now().await;
    let (pod, gate) = stage.gated("web", Act { stop: "gate", stop_code: 3, ..POLITE });
    stage.up(&runtime, &pod).await;
    let is_asked = || stage.log("web", "main", 0).contains("F asked");
    tokio::select! {
        stopped = runtime.stop_pod(pod.uid(), Some(&pod), Grace::fixed(secs(300))) => {
            panic!("it ended before it was let go: {stopped:?}")
        }
        () = eventually("it was asked", is_asked) => {}
    }
    drop(runtime);
    let runtime = stage.open_now().await;
    assert!(runtime.list_pods().await.unwrap()[0].running, "it is still terminating");
    // The second agent's stop has begun when the gate opens: futures are polled in this order.
    let (stopped, ()) = tokio::join!(stop(&runtime, &pod, 300), async { gate.open() });
    assert_eq!((stopped.containers[0].exit_code, stopped.forced()), (3, false));
    assert_eq!(stage.log("web", "main", 0).matches("asked").count(), 1);
}

#[tokio::test]
async fn an_agent_that_starts_after_a_crash_takes_the_exit_code_of_what_ended_meanwhile() {
    let Some(stage) = set("an exit while no agent was there").await else { return };
    let runtime = stage.open_now().await;
    let (pod, gate) = stage.gated("web", Act { run: "gate", code: 8, ..POLITE });
    stage.up(&runtime, &pod).await;
    drop(runtime);
    gate.open();
    eventually("it ended", || stage.containerd.pids_of("act gate").is_empty()).await;
    let runtime = stage.open_now().await;
    let seen = sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    assert_eq!((exit_of(&seen[0]).unwrap().exit_code, seen[0].restart_count), (8, 0));
}

#[tokio::test]
async fn who_looks_on_hears_of_an_end_from_the_kernel_where_the_runtime_is_silent() {
    let Some(stage) = set("the kernel tells an end").await else { return };
    let runtime = stage.open_now().await;
    let (pod, gate) = stage.gated("web", Act { run: "gate", ..POLITE });
    stage.up(&runtime, &pod).await;
    let containers = beside(&stage, &[&pod]).await;
    let end = containers.ends(pod.uid()).pop().unwrap();
    stage.containerd.suspend();
    gate.open();
    timeout(PATIENCE, end).await.unwrap();
    stage.containerd.go_on();
}

/// The containers as another program sees them, with the first processes of these pods'.
async fn beside(stage: &Real, pods: &[&Pod]) -> PodContainers {
    let containers = PodContainers::new(&stage.containerd.socket().display().to_string()).unwrap();
    containers.look().await.unwrap();
    let is_known = || pods.iter().all(|pod| !containers.ends(pod.uid()).is_empty());
    eventually("their processes are known", is_known).await;
    containers
}

/// A kubelet's pods while its runtime is away: one that exits half a second after its stop signal, one that is deaf to
/// it, and who ends them.
async fn two_without_runtime(stage: &Real, runtime: &CriRuntime) -> (PodContainers, Pod, Pod) {
    let slow = Act { stop: "0.5", stop_code: 3, ..POLITE };
    let polite = pod("polite", &json!({"containers": [container_of("main", slow)]}));
    let stubborn = pod("stubborn", &json!({"containers": [container_of("main", STUBBORN)]}));
    stage.up(runtime, &polite).await;
    stage.up(runtime, &stubborn).await;
    let containers = beside(stage, &[&polite, &stubborn]).await;
    (containers, polite, stubborn)
}

#[tokio::test]
async fn containers_of_a_kubelet_keep_their_grace_and_end_while_the_runtime_is_killed_or_hangs() {
    let Some(mut stage) = set("a kubelet's containers end without containerd").await else {
        return;
    };
    let runtime = stage.open_now().await;
    for hangs in [false, true] {
        let (containers, polite, stubborn) = two_without_runtime(&stage, &runtime).await;
        match hangs {
            true => stage.containerd.suspend(),
            false => stage.containerd.kill(),
        }
        let begun = Instant::now();
        let end = async |pod: &Pod, grace| {
            let stopped = containers.stop(pod.uid(), secs(grace), false, &[]).await;
            (stopped.unwrap(), begun.elapsed())
        };
        let (asked, killed) = tokio::join!(end(&polite, 20), end(&stubborn, 4));
        for (stopped, _) in [&asked, &killed] {
            assert!(stopped.ran && stopped.without_runtime, "{stopped:?}");
        }
        // A hung runtime is given two seconds of twenty, and one of four.
        assert!(asked.1 < secs(if hangs { 6 } else { 3 }), "{hangs}: {asked:?}");
        assert!(killed.1 >= secs(4) && killed.1 < secs(8), "{hangs}: {killed:?}");
        let begun = Instant::now();
        let again = containers.stop(polite.uid(), secs(20), false, &[]).await.unwrap();
        assert!(again.ran, "the kernel shows that nothing of it runs");
        assert!(begun.elapsed() < secs(2), "a runtime that is known to be silent is given no time");
        match hangs {
            // Logs pass through containerd.
            true => {
                stage.containerd.go_on();
                let times = || stage.log("polite", "main", 0).matches("asked").count();
                eventually("it was asked", || times() > 0).await;
                assert_eq!(times(), 1);
            }
            false => stage.containerd.resume().await,
        }
        for pod in [&polite, &stubborn] {
            forget(&runtime, pod).await;
        }
    }
}

#[tokio::test]
async fn a_container_that_was_asked_to_exit_is_killed_in_time_by_no_runtime_that_died_meanwhile() {
    let Some(mut stage) = set("containerd dies in the grace of a kubelet's pod").await else {
        return;
    };
    let runtime = stage.open_now().await;
    let (containers, _, stubborn) = two_without_runtime(&stage, &runtime).await;
    let begun = Instant::now();
    let stopping = containers.stop(stubborn.uid(), secs(3), false, &[]);
    let die = async {
        tokio::time::sleep(secs(1)).await;
        stage.containerd.kill();
    };
    let (stopped, ()) = tokio::join!(stopping, die);
    assert!(stopped.unwrap().ran);
    let took = begun.elapsed();
    // With what the stop signal may have taken to reach it.
    assert!(took >= Duration::from_millis(3250) && took < secs(6), "{took:?}");
    stage.containerd.resume().await;
    assert_eq!(stage.log("stubborn", "main", 0).matches("asked").count(), 1);
}

#[tokio::test]
async fn a_container_of_a_kubelet_is_over_when_nothing_of_it_runs_though_its_shim_reaps_no_hook() {
    let Some(stage) = set("a suspended shim of a kubelet's container").await else { return };
    let runtime = stage.open_now().await;
    let pod = with_hook("web", STUBBORN);
    stage.up(&runtime, &pod).await;
    let containers = beside(&stage, &[&pod]).await;
    let suspend = async {
        eventually("the hook runs", || stage.log("web", "main", 0).contains("F hook")).await;
        stage.containerd.suspend_with_shims();
    };
    let (stopped, ()) = tokio::join!(containers.stop(pod.uid(), secs(4), true, &[]), suspend);
    // What counts as running ten seconds after SIGKILL is an error.
    assert!(stopped.unwrap().ran);
    stage.containerd.go_on();
    forget(&runtime, &pod).await;
}

#[tokio::test]
async fn a_log_that_becomes_too_long_is_turned() {
    let Some(stage) = set("a log that becomes too long").await else { return };
    let mut config = stage.config();
    config.logs.max_bytes = 2000;
    config.logs.max_files = 3;
    let runtime = CriRuntime::open(config).await.unwrap();
    let mut main = container_of("main", POLITE);
    main["command"] =
        json!(["/bin/sh", "-c", "while :; do echo some words for the log; sleep 0.1; done"]);
    let pod = pod("web", &json!({"containers": [main]}));
    run(&runtime, &pod).await;
    let logs = stage.dir.path().join("logs/default_web_uid-web/main");
    eventually("the log turned", || logs.join("0.log.1").exists()).await;
    eventually("a new log was begun", || logs.join("0.log").exists()).await;
    stop(&runtime, &pod, 1).await;
}

#[tokio::test]
async fn a_pod_whose_sandbox_was_killed_gets_a_new_one() {
    let Some(stage) = set("a pod whose sandbox was killed").await else { return };
    let mut config = stage.config();
    config.times.relist = secs(1);
    let runtime = CriRuntime::open(config).await.unwrap();
    let pod = pod("web", &json!({"containers": [container_of("main", POLITE)]}));
    stage.up(&runtime, &pod).await;
    let pause = stage.containerd.pids_of("sleep 1000000");
    assert_eq!(pause.len(), 1);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pause[0]), Signal::SIGKILL).unwrap();
    let seen = sync_until(&runtime, &pod, |c| c[0].restart_count == 1 && is_running(&c[0])).await;
    assert!(seen[0].ready);
    stage.hears(&pod).await;
    assert!(!stop(&runtime, &pod, 20).await.forced());
    forget(&runtime, &pod).await;
    assert_eq!(stage.containerd.containers(), Vec::<String>::new());
}
