//! An agent or a supervisor that dies between any two steps: nothing runs twice, nothing is lost.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use winddown_runtimes::process::{ProcessRuntime, ShimCommand};
use winddown_shared::{Pod, Runtime as _, RuntimeError};

use crate::bed::{
    Bed, eventually, exit_of, files_below, host, is_running, sh, skip, stop, sync_until,
};

/// An agent in a process of its own. Killed when dropped, so that a failed test leaves none.
struct Agent(Child);

impl Agent {
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Starts an agent that is killed before this step.
fn agent(bed: &Bed, pod: &Pod, death: &Death) -> Agent {
    let file = bed.path("pod.json");
    std::fs::write(&file, serde_json::to_vec(pod.object()).unwrap()).unwrap();
    Command::new(host())
        .arg("run")
        .args([bed.path("state"), bed.path("logs"), file])
        .envs(death.environment())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map(Agent)
        .unwrap()
}

/// The kill of a program before one of its steps, by `kill_before_step.c`.
struct Death {
    step: u32,
    /// Exists once it has happened.
    note: PathBuf,
}

impl Death {
    fn before(step: u32, bed: &Bed) -> Self {
        Self { step, note: bed.path("killed") }
    }

    fn environment(&self) -> [(&'static str, OsString); 3] {
        static LIBRARY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
        let (_, library) = LIBRARY.get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let library = folder.path().join("kill_before_step.so");
            let source = Path::new(env!("CARGO_MANIFEST_DIR"));
            let source = source.join("tests/process/kill_before_step.c");
            let mut cc = Command::new("cc");
            cc.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).args([&library, &source]);
            assert!(cc.status().unwrap().success(), "{cc:?}");
            (folder, library)
        });
        [
            ("LD_PRELOAD", library.into()),
            ("KILL_BEFORE_STEP", self.step.to_string().into()),
            ("KILLED_BEFORE_STEP", self.note.clone().into()),
        ]
    }

    /// A supervisor that it happens to: a script, because a supervisor executes itself again with the same arguments.
    fn supervisor(&self, bed: &Bed) -> ShimCommand {
        let script = bed.path("supervisor");
        // Not written by this process: while a child of another test holds it open for writing, it cannot be run.
        let mut write = Command::new("/bin/sh");
        write.args(["-c", "printf '%s' \"$1\" >\"$2\" && chmod +x \"$2\"", "sh"]);
        let variables =
            self.environment().map(|(name, value)| format!("{name}={}", value.display()));
        let (variables, program) = (variables.join(" "), host());
        write.arg(format!("#!/bin/sh\n{variables} exec {} \"$@\"\n", program.display()));
        assert!(write.arg(&script).status().unwrap().success());
        ShimCommand::new(script, ["shim".into()])
    }

    fn has_happened(&self) -> bool {
        self.note.exists()
    }
}

/// With few file descriptors the agent may fail to start; running containers must not be killed as orphans.
#[tokio::test]
async fn an_agent_that_is_short_of_descriptors_at_its_start_kills_nothing() {
    let bed = Bed::new();
    let runs = bed.path("runs");
    let script = format!("echo run >> {}; exec sleep 1000", runs.display());
    let pod = bed.pod(&script);
    let first = bed.open().await;
    first.sync_pod(&pod).await.unwrap();
    eventually("it runs", || lines(&runs) == 1).await;
    drop(first);
    let before = bed.processes();
    let file = bed.path("pod.json");
    std::fs::write(&file, serde_json::to_vec(pod.object()).unwrap()).unwrap();
    let mut came_up = 0;
    for descriptors in 6..40 {
        let mut agent = Command::new("/bin/sh")
            .args(["-c", &format!("ulimit -n {descriptors}; exec \"$@\"")])
            .arg("sh")
            .arg(host())
            .arg("run")
            .args([bed.path("state"), bed.path("logs"), file.clone()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map(Agent)
            .unwrap();
        // The first byte of its output, or the end of it.
        let mut word = [0];
        let said = agent.0.stdout.as_mut().unwrap().read(&mut word).unwrap();
        came_up += usize::from(said > 0);
        agent.kill();
        assert_eq!(bed.processes(), before, "with {descriptors} descriptors");
        assert_eq!(lines(&runs), 1, "with {descriptors} descriptors");
    }
    assert!(came_up > 0 && came_up < 34, "{came_up} of 34 came up");
    let last = bed.open().await;
    stop(&last, &pod, 5000).await;
    bed.nothing_left().await;
}

#[tokio::test]
async fn an_exit_record_that_cannot_be_read_yet_is_no_unknown_exit() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let (bed, runtime) = Bed::with_runtime().await;
    let gate = bed.path("gate");
    let script = format!("while [ ! -e {} ]; do sleep 0.01; done; exit 3", gate.display());
    let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": [sh("main", &script)]}));
    runtime.sync_pod(&pod).await.unwrap();
    let attempt = bed.path("state/pods").join(pod.uid().as_str()).join("main/0");
    let (record, reserve) = (attempt.join("exit.json"), attempt.join("exit.reserve"));
    // A directory cannot be read like a file, and the supervisor cannot replace it.
    std::fs::create_dir(&record).unwrap();
    std::fs::write(&gate, "").unwrap();
    bed.settled("main", 0).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let status = runtime.pod_status(pod.uid()).await.unwrap();
    assert!(is_running(&status.containers[0]), "{:?}", status.containers[0]);
    renameat_with(CWD, &reserve, CWD, &record, RenameFlags::EXCHANGE).unwrap();
    let seen = crate::bed::status_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    assert_eq!(exit_of(&seen[0]).unwrap().exit_code, 3);
}

#[tokio::test]
async fn what_a_failed_start_could_not_remove_does_not_keep_its_container_from_starting() {
    let (bed, runtime) = Bed::with_runtime().await;
    let pod = bed.pod("exec sleep 1000");
    let left = bed.path("state/pods").join(pod.uid().as_str()).join("main/0");
    std::fs::create_dir_all(left.join("more")).unwrap();
    runtime.sync_pod(&pod).await.unwrap();
    assert!(!left.join("more").exists());
    stop(&runtime, &pod, 5000).await;
    bed.nothing_left().await;
}

#[tokio::test]
async fn a_supervisor_that_does_not_read_its_order_holds_up_a_start_no_longer_than_any_other() {
    let bed = Bed::new();
    let mut config = bed.config();
    config.shim = ShimCommand::new("/bin/sh", ["-c".into(), "exec sleep 1000".into()]);
    config.start_timeout = Duration::from_millis(100);
    let runtime = ProcessRuntime::open(config).await.unwrap();
    // More than a pipe holds.
    let mut main = sh("main", "true");
    main["env"] = json!([{"name": "LARGE", "value": "x".repeat(200_000)}]);
    let pod = bed.pod_of(&json!({"containers": [main]}));
    let error = runtime.sync_pod(&pod).await.unwrap_err();
    assert!(matches!(error, RuntimeError::Timeout { .. }), "{error:?}");
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn an_agent_that_dies_before_any_step_of_a_start_leaves_a_pod_that_runs_exactly_once() {
    let mut kills = 0;
    loop {
        let bed = Bed::new();
        let death = Death::before(kills + 1, &bed);
        let runs = bed.path("runs");
        let pod = bed.pod(&format!("echo run >> {}; exec sleep 1000", runs.display()));
        let mut agent = agent(&bed, &pod, &death);
        // It says that it has started the pod, or is gone.
        let said = agent.0.stdout.as_mut().unwrap().read(&mut [0]).unwrap();
        assert_eq!(said == 0, death.has_happened(), "step {}", death.step);
        agent.kill();
        let runtime = bed.open().await;
        let seen = sync_until(&runtime, &pod, |c| is_running(&c[0])).await;
        assert_eq!(seen[0].restart_count, 0, "step {}", death.step);
        eventually("it runs", || lines(&runs) > 0).await;
        assert_eq!((lines(&runs), bed.supervisors().len()), (1, 1), "step {}", death.step);
        stop(&runtime, &pod, 5000).await;
        bed.nothing_left().await;
        assert_eq!(lines(&runs), 1, "step {}", death.step);
        if !death.has_happened() {
            break;
        }
        kills += 1;
    }
    println!("{kills} agents were killed");
    // Its directories and those of the pod, the attempt's, its record, its lock, the supervisor, the order.
    assert!(kills >= 12, "only {kills} agents were killed");
}

#[tokio::test]
async fn a_supervisor_that_dies_before_any_step_leaves_no_process_and_no_start_undone() {
    let (mut not_started, mut exits) = (0, Vec::new());
    loop {
        let bed = Bed::new();
        let death = Death::before(not_started + u32::try_from(exits.len()).unwrap() + 1, &bed);
        let mut config = bed.config();
        config.shim = death.supervisor(&bed);
        let runtime = ProcessRuntime::open(config).await.unwrap();
        let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": [
            sh("main", "(setsid sleep 1000 &); exit 3")]}));
        let started = runtime.sync_pod(&pod).await;
        if started.is_ok() {
            bed.settled("main", 0).await;
        }
        bed.nothing_left().await;
        drop(runtime);
        let runtime = bed.open().await;
        if started.is_err() {
            let listed = runtime.list_pods().await.unwrap();
            assert!(listed.len() == 1 && !listed[0].running, "step {}: {listed:?}", death.step);
            sync_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
            not_started += 1;
        }
        let status = runtime.pod_status(pod.uid()).await.unwrap();
        let code = exit_of(&status.containers[0]).unwrap().exit_code;
        bed.nothing_left().await;
        match &started {
            Ok(_) => exits.push(code),
            Err(_) => assert_eq!(code, 3, "step {}: the next start works", death.step),
        }
        if !death.has_happened() {
            assert!(
                started.is_ok() && exits.pop() == Some(3),
                "{}, {started:?}, {code}",
                death.step
            );
            break;
        }
    }
    println!("{not_started} starts failed; exits: {exits:?}");
    assert!(not_started >= 5, "only {not_started} starts failed");
    // It died before its record of the exit was there, and after that.
    assert!(exits.contains(&137) && exits.ends_with(&[3]), "{exits:?}");
}

#[tokio::test]
async fn a_full_disk_costs_log_lines_and_not_the_container_nor_its_exit_code() {
    let mut bed = Bed::new();
    let Some(_small) = SmallDisk::mount(&mut bed) else {
        return skip("a full disk", "cannot mount a tmpfs");
    };
    let runtime = bed.open().await;
    let (gate, filler) = (bed.path("gate"), bed.path("state/filler"));
    // Far more output than a pipe holds: the container would block if the output were not read.
    let script = format!(
        "echo before; while [ ! -e {gate} ]; do sleep 0.01; done; \
         i=0; while [ $i -lt 20000 ]; do echo a line of output that is lost $i; i=$((i+1)); done; \
         touch {gate}.done; while [ ! -e {gate}.more ]; do sleep 0.01; done; \
         echo after; while [ ! -e {gate}.exit ]; do sleep 0.01; done; exit 42",
        gate = gate.display()
    );
    let pod = bed.pod_of(&json!({"restartPolicy": "Never", "containers": [sh("main", &script)]}));
    runtime.sync_pod(&pod).await.unwrap();
    bed.logged("main", 0, "before").await;
    // As logrotate's `copytruncate` does.
    for log in files_below(&bed.path("state/logs")) {
        std::fs::File::options().write(true).open(log).unwrap().set_len(0).unwrap();
    }
    fill(&filler);
    std::fs::write(&gate, "").unwrap();
    let touch = |suffix: &str| {
        let mut path = gate.clone().into_os_string();
        path.push(suffix);
        std::fs::write(path, "").unwrap();
    };
    let done = gate.with_extension("done");
    eventually("the container went on", || done.exists()).await;
    std::fs::remove_file(&filler).unwrap();
    touch(".more");
    bed.logged("main", 0, "after").await;
    let log = bed.log("main", 0);
    assert!(log.contains("of output are missing here: No space left"), "{}", &log[..300]);
    assert!(!log.contains('\0'), "{log:?}");
    fill(&filler);
    touch(".exit");
    let seen = crate::bed::status_until(&runtime, &pod, |c| exit_of(&c[0]).is_some()).await;
    assert_eq!(exit_of(&seen[0]).unwrap().exit_code, 42, "the room for the record was kept");
    bed.nothing_left().await;
    let error = {
        let other = bed.pod_named("other", "exec sleep 1000");
        runtime.sync_pod(&other).await.unwrap_err()
    };
    let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(text.contains("cannot prepare container main of pod default/other"), "{text}");
}

fn fill(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    for size in [65536, 4096, 512, 1] {
        while std::io::Write::write_all(&mut file, &vec![0; size]).is_ok() {}
    }
}

/// A tmpfs on `state`, with the logs in it too.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(bed: &mut Bed) -> Option<Self> {
        let at = bed.path("state");
        std::fs::create_dir_all(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=2m", "winddown-test"]).arg(&at);
        let mounted = mount.stderr(Stdio::null()).status().is_ok_and(|s| s.success());
        if !mounted {
            return None;
        }
        std::fs::create_dir_all(at.join("logs")).unwrap();
        bed.disk = Some(at.clone());
        Some(Self(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_hundred_pods_are_asked_to_end_before_the_first_of_them_has() {
    let (bed, runtime) = Bed::with_runtime().await;
    let (ready, asked, go) = (bed.path("ready"), bed.path("asked"), bed.path("go"));
    // On SIGTERM each waits for a word to be written to `go`, without using a CPU.
    let script = format!(
        "trap 'kill $!; echo >>{}; read -r word <{}; exit 0' TERM; sleep 1000 & echo >>{}; wait",
        asked.display(),
        go.display(),
        ready.display(),
    );
    let made = Command::new("mkfifo").arg(&go).status().unwrap();
    assert!(made.success());
    let pods: Vec<Pod> = (0..100).map(|i| bed.pod_named(&format!("p{i}"), &script)).collect();
    let began = tokio::time::Instant::now();
    futures_util::future::try_join_all(pods.iter().map(|p| runtime.sync_pod(p))).await.unwrap();
    println!("100 pods started in {:?}", began.elapsed());
    let supervisors = bed.supervisors();
    assert_eq!(supervisors.len(), 100);
    let are = |file: &Path| std::fs::read_to_string(file).is_ok_and(|text| text.len() == 100);
    eventually("all pods wait", || are(&ready)).await;
    let begun = tokio::time::Instant::now();
    let stops = pods.iter().map(|pod| stop(&runtime, pod, 60_000));
    let all_are_asked = async {
        eventually("all pods are asked", || are(&asked)).await;
        // For reading too: so opening does not wait for a reader, and no reader gets an end of file.
        std::fs::File::options().read(true).write(true).open(&go).unwrap()
    };
    let (stopped, word) = tokio::join!(futures_util::future::join_all(stops), async {
        let mut word = all_are_asked.await;
        std::io::Write::write_all(&mut word, "go\n".repeat(100).as_bytes()).unwrap();
        word
    });
    drop(word);
    let after = |at: Option<tokio::time::Instant>| at.unwrap().duration_since(begun);
    let first = stopped.iter().map(|s| after(s.signalled_at)).min().unwrap();
    let last = stopped.iter().map(|s| after(s.signalled_at)).max().unwrap();
    let gone = stopped.iter().map(|s| after(s.stopped_at)).max().unwrap();
    println!(
        "first SIGTERM after {first:?}, the hundredth after {last:?}, all gone after {gone:?}"
    );
    assert!(stopped.iter().all(|s| !s.forced()));
    bed.nothing_left().await;
    let is_there = |pid: &i32| Path::new(&format!("/proc/{pid}")).exists();
    eventually("no zombie", || !supervisors.iter().any(is_there)).await;
}

/// A pod that has the directory above as a volume may have made it: it kept all others from being started.
#[tokio::test]
async fn a_link_in_place_of_the_directory_of_logs_costs_a_pod_its_lines_and_nothing_else() {
    let bed = Bed::new();
    let elsewhere = bed.path("elsewhere");
    for (n, target) in [&*elsewhere, Path::new("nowhere"), Path::new("logs")].iter().enumerate() {
        let _ = std::fs::remove_file(bed.path("logs"));
        let _ = std::fs::create_dir(&elsewhere);
        std::os::unix::fs::symlink(target, bed.path("logs")).unwrap();
        let runtime = bed.open().await;
        let pod = bed.pod_named(&n.to_string(), "echo lost; exec sleep 1000");
        sync_until(&runtime, &pod, |all| all.iter().any(is_running)).await;
        stop(&runtime, &pod, 100).await;
    }
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0, "nothing is made there");
}
