use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use winddown_runtimes::process::ProcessRuntime;
use winddown_shared::{Event, Mutex, Pod, PodEvent, PodEventKind, Recorder};

use crate::bed::{Bed, eventually, host, is_running, sh, status_until, stop, sync_until};

/// The outputs of failed probes, why others could not be asked, and the last lines of containers that exited.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<String>>);

impl Told {
    fn by(runtime: &ProcessRuntime) -> Arc<Self> {
        let told = Arc::new(Self::default());
        let recorder: Arc<dyn Recorder> = told.clone();
        winddown_shared::Runtime::record_to(runtime, &recorder);
        told
    }
}

impl Recorder for Told {
    fn record(&self, event: &Event) {
        match event {
            Event::Pod(PodEvent { what: PodEventKind::Unhealthy { output, .. }, .. }) => {
                self.0.lock().push(output.clone());
            }
            Event::Pod(PodEvent { what: PodEventKind::ProbeErrored { error, .. }, .. }) => {
                self.0.lock().push(format!("not asked: {error}"));
            }
            Event::ContainerExited { failed, last_line, .. } => {
                self.0.lock().push(format!("{failed:?} {last_line:?}"));
            }
            _ => {}
        }
    }
}

fn file_probe(path: &str, more: &Value) -> Value {
    let mut probe = json!({"exec": {"command": ["test", "-e", path]}, "periodSeconds": 1,
        "failureThreshold": 1});
    probe.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    probe
}

fn probed(bed: &Bed, kind: &str, probe: &Value) -> Pod {
    let mut container = sh("main", "exec sleep 1000");
    container[kind] = probe.clone();
    bed.pod_of(&json!({"containers": [container]}))
}

#[tokio::test]
async fn a_startup_probe_holds_up_what_comes_after_a_sidecar() {
    let (bed, runtime) = Bed::with_runtime().await;
    let mark = bed.path("up");
    let mut sidecar = sh("side", "exec sleep 1000");
    sidecar["restartPolicy"] = json!("Always");
    sidecar["startupProbe"] = file_probe(mark.to_str().unwrap(), &json!({"failureThreshold": 100}));
    let pod = bed.pod_of(
        &json!({"initContainers": [sidecar], "containers": [sh("main", "exec sleep 1000")]}),
    );
    let seen = sync_until(&runtime, &pod, |c| is_running(&c[0])).await;
    assert!(!seen[0].started && !is_running(&seen[1]));
    std::fs::write(&mark, "").unwrap();
    let seen = sync_until(&runtime, &pod, |c| is_running(&c[1])).await;
    assert!(seen[0].started && seen[0].ready);
    // The app runs: nothing waits for the sidecar any more.
    drop(runtime);
    std::fs::remove_file(&mark).unwrap();
    let next = bed.open().await;
    let synced = winddown_shared::Runtime::sync_pod(&next, &pod).await.unwrap();
    let side = &synced.status.containers[0];
    assert!(side.started && side.ready, "{side:?}");
    stop(&next, &pod, 5000).await;
    bed.nothing_left().await;
}

#[tokio::test]
async fn an_http_probe_takes_the_status_for_an_answer() {
    let (bed, runtime) = Bed::with_runtime().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answers = ["503 Busy", "200 OK", "200 OK"];
    let server = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 1024];
            let n = stream.read(&mut request).await.unwrap();
            assert!(request[..n].starts_with(b"GET /health HTTP/1.1\r\n"));
            stream.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).await.unwrap();
        }
    });
    let probe = json!({"httpGet": {"port": port, "path": "/health"}, "periodSeconds": 1,
        "successThreshold": 2});
    let pod = probed(&bed, "readinessProbe", &probe);
    sync_until(&runtime, &pod, |c| is_running(&c[0]) && !c[0].ready).await;
    status_until(&runtime, &pod, |c| c[0].ready).await;
    server.await.unwrap();
    stop(&runtime, &pod, 5000).await;
}

#[tokio::test]
async fn a_container_whose_post_start_hook_fails_is_restarted() {
    let (bed, runtime) = Bed::with_runtime().await;
    let told = Told::by(&runtime);
    let mark = bed.path("second");
    let mut container = sh("main", "exec sleep 1000");
    let hook = format!(
        "if [ -e {m} ]; then exit 0; fi; touch {m}; echo no table; exit 1",
        m = mark.display()
    );
    container["lifecycle"] = json!({"postStart": {"exec": {"command": ["/bin/sh", "-c", hook]}}});
    let pod = bed.pod_of(&json!({"containers": [container]}));
    let seen = sync_until(&runtime, &pod, |c| c[0].restart_count == 1 && c[0].started).await;
    assert!(seen[0].ready);
    eventually("the exit was reported", || !told.0.lock().is_empty()).await;
    assert_eq!(*told.0.lock(), ["Some(PostStart) Some(\"no table\")"]);
    stop(&runtime, &pod, 5000).await;
    bed.nothing_left().await;
}

#[tokio::test]
async fn the_next_container_starts_when_the_hook_of_the_one_before_is_done() {
    let (bed, runtime) = Bed::with_runtime().await;
    let file = bed.path("order").display().to_string();
    let mut first = sh("first", "exec sleep 1000");
    // It gives the other the time to be first.
    let hook =
        format!("for i in 1 2 3 4 5; do [ -s {file} ] || sleep 0.1; done; echo hook >> {file}");
    first["lifecycle"] = json!({"postStart": {"exec": {"command": ["/bin/sh", "-c", hook]}}});
    let second = sh("second", &format!("echo second >> {file}; exec sleep 1000"));
    let pod = bed.pod_of(&json!({"containers": [first, second]}));
    winddown_shared::Runtime::sync_pod(&runtime, &pod).await.unwrap();
    let written = || std::fs::read_to_string(&file).unwrap_or_default();
    eventually("both have written", || written().lines().count() == 2).await;
    assert_eq!(written(), "hook\nsecond\n");
    stop(&runtime, &pod, 5000).await;
}

#[tokio::test]
async fn a_post_start_hook_that_an_agent_does_not_see_end_is_run_by_the_next_one() {
    let bed = Bed::new();
    let (begun, go) = (bed.path("begun"), bed.path("go"));
    let hook =
        format!("echo >> {}; until [ -e {} ]; do sleep 0.05; done", begun.display(), go.display());
    let mut container = sh("main", "exec sleep 1000");
    container["lifecycle"] = json!({"postStart": {"exec": {"command": ["/bin/sh", "-c", hook]}}});
    let pod = bed.pod_of(&json!({"containers": [container]}));
    let note = bed.path(&format!("state/pods/{}/main/0/hook", pod.uid()));
    let hooks = || std::fs::read(&begun).unwrap_or_default().len();
    let first = bed.open().await;
    tokio::select! {
        synced = winddown_shared::Runtime::sync_pod(&first, &pod) => panic!("{synced:?}"),
        () = eventually("the hook runs", || hooks() == 1 && note.exists()) => {}
    }
    drop(first);
    let second = bed.open().await;
    let seen = winddown_shared::Runtime::pod_status(&second, pod.uid()).await.unwrap().containers;
    assert!(is_running(&seen[0]) && !seen[0].started && !seen[0].ready, "{seen:?}");
    std::fs::write(&go, "").unwrap();
    sync_until(&second, &pod, |c| c[0].started && c[0].ready).await;
    assert_eq!(hooks(), 2);
    eventually("its end is noted", || !note.exists()).await;
    stop(&second, &pod, 5000).await;
    bed.nothing_left().await;
}

#[tokio::test]
async fn an_adopted_container_stays_ready_and_is_probed_again() {
    let bed = Bed::new();
    let mark = bed.path("ready");
    std::fs::write(&mark, "").unwrap();
    let pod = probed(&bed, "readinessProbe", &file_probe(mark.to_str().unwrap(), &json!({})));
    let first = bed.open().await;
    sync_until(&first, &pod, |c| c[0].ready).await;
    drop(first);
    let second = bed.open().await;
    let synced = winddown_shared::Runtime::sync_pod(&second, &pod).await.unwrap();
    assert!(
        synced.status.containers[0].ready,
        "an agent's restart does not take it out of service"
    );
    std::fs::remove_file(&mark).unwrap();
    status_until(&second, &pod, |c| !c[0].ready).await;
    stop(&second, &pod, 5000).await;
    bed.nothing_left().await;
}

#[tokio::test]
async fn an_adopted_container_that_was_not_ready_is_not_ready_before_its_probe_says_so() {
    let bed = Bed::new();
    let mark = bed.path("ready");
    std::fs::write(&mark, "").unwrap();
    let pod = probed(&bed, "readinessProbe", &file_probe(mark.to_str().unwrap(), &json!({})));
    let note = bed.path(&format!("state/pods/{}/main/0/unready", pod.uid()));
    let first = bed.open().await;
    sync_until(&first, &pod, |c| c[0].ready).await;
    eventually("it is noted as ready", || !note.exists()).await;
    std::fs::remove_file(&mark).unwrap();
    status_until(&first, &pod, |c| !c[0].ready).await;
    eventually("it is noted as not ready", || note.exists()).await;
    drop(first);
    let second = bed.open().await;
    let status = winddown_shared::Runtime::pod_status(&second, pod.uid()).await.unwrap();
    let found = status.containers;
    assert!(is_running(&found[0]) && !found[0].ready, "before any probe has run");
    std::fs::write(&mark, "").unwrap();
    sync_until(&second, &pod, |c| c[0].ready).await;
    stop(&second, &pod, 5000).await;
    bed.nothing_left().await;
}

#[tokio::test]
async fn readiness_is_probed_until_the_container_is_gone_and_the_others_only_until_the_request() {
    let (bed, runtime) = Bed::with_runtime().await;
    let (ready, alive, let_go) = (bed.path("ready"), bed.path("alive"), bed.path("go"));
    // Not before the trap: a signal that comes before it ends the container.
    let script = format!(
        "trap : TERM; : > {}; while ! [ -e {} ]; do sleep 0.05; done",
        ready.display(),
        let_go.display()
    );
    let mut container = sh("main", &script);
    container["readinessProbe"] = file_probe(ready.to_str().unwrap(), &json!({}));
    let count = format!("echo >> {}", alive.display());
    container["livenessProbe"] =
        json!({"exec": {"command": ["/bin/sh", "-c", count]}, "periodSeconds": 1});
    let pod = bed.pod_of(&json!({"containers": [container]}));
    sync_until(&runtime, &pod, |c| c[0].ready).await;
    let asked = || std::fs::read(&alive).unwrap_or_default().len();
    eventually("the liveness probe was asked", || asked() > 0).await;
    let ending = async {
        sleep(Duration::from_millis(300)).await;
        std::fs::remove_file(&ready).unwrap();
        status_until(&runtime, &pod, |c| is_running(&c[0]) && !c[0].ready).await;
        // What was asked just before the request has written its line by now, and the next round takes a second.
        let before = asked();
        std::fs::write(&ready, "").unwrap();
        status_until(&runtime, &pod, |c| is_running(&c[0]) && c[0].ready).await;
        assert_eq!(asked(), before, "liveness is not asked after the request");
        std::fs::write(&let_go, "").unwrap();
    };
    tokio::join!(stop(&runtime, &pod, 30_000), ending);
    bed.nothing_left().await;
}

#[tokio::test]
async fn a_probe_that_fails_says_what_its_command_wrote() {
    let (bed, runtime) = Bed::with_runtime().await;
    let told = Told::by(&runtime);
    // Why, and then more than a pipe holds.
    let script = "echo no database >&2; head -c 100000 /dev/zero | tr '\\0' x; exit 3";
    let probe = json!({"exec": {"command": ["/bin/sh", "-c", script]}, "periodSeconds": 1});
    let pod = probed(&bed, "readinessProbe", &probe);
    winddown_shared::Runtime::sync_pod(&runtime, &pod).await.unwrap();
    eventually("the probe failed", || !told.0.lock().is_empty()).await;
    let said = told.0.lock().remove(0);
    assert!(said.starts_with("no database\nxxx") && said.len() <= 1000, "{said}");
    stop(&runtime, &pod, 5000).await;
}

/// As with a kubelet.
#[tokio::test]
async fn a_probe_whose_command_does_not_exist_says_nothing_about_its_container() {
    let (bed, runtime) = Bed::with_runtime().await;
    let told = Told::by(&runtime);
    let probe = json!({"exec": {"command": ["/bin/nothing"]}, "periodSeconds": 1,
        "failureThreshold": 1});
    let pod = probed(&bed, "livenessProbe", &probe);
    sync_until(&runtime, &pod, |c| is_running(&c[0])).await;
    eventually("it was probed twice", || told.0.lock().len() > 1).await;
    let seen = sync_until(&runtime, &pod, |c| is_running(&c[0])).await;
    assert_eq!(seen[0].restart_count, 0);
    let why = "not asked: cannot run /bin/nothing: No such file or directory (os error 2)";
    assert!(told.0.lock().iter().all(|said| said == why), "{:?}", told.0.lock());
    stop(&runtime, &pod, 5000).await;
}

/// Its exit code would be taken for the command's.
#[test]
fn a_supervisor_that_cannot_run_a_hook_ends_without_an_exit_code() {
    let mut shim = std::process::Command::new(host());
    let shim = shim.args(["shim", "hook"]).stdin(std::process::Stdio::null());
    assert_eq!(shim.status().unwrap().code(), None);
}
