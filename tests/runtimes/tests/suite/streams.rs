//! Streams into containers: what is asked of a runtime, and what `kubectl` gets through the node API and containerd.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Output, Stdio as Pipe};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;
use winddown_runtimes::{PodStream, PodStreams as _, Stdio, StreamRequest};
use winddown_shared::{Pod, PodUid, error_chain};

use crate::bed::{PATIENCE, POLITE, STUBBORN, pod, run, skip, stop};
use crate::faults::{calls, polite};
use crate::front::{Front, read_head};
use crate::real::set;
use crate::stage::Stage as _;
use crate::stages::{Fake, Real, container_of};

fn exec(container: &str) -> StreamRequest {
    let stdio = Stdio { stdout: true, ..Stdio::default() };
    StreamRequest::Exec { container: container.to_owned(), command: vec!["ls".to_owned()], stdio }
}

#[tokio::test]
async fn a_stream_is_opened_into_what_runs_and_at_the_runtimes_own_address_alone() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let web = polite("web");
    run(&runtime, &web).await;
    stage.cri.serve_streams_at("http://127.0.0.1:4000/exec/token");
    assert!(runtime.open(&PodUid::new("other"), exec("main")).await.unwrap().is_none());
    assert!(runtime.open(web.uid(), exec("other")).await.unwrap().is_none());
    assert_eq!(calls(&stage, "Exec"), Vec::<String>::new());
    let stdio = Stdio { stdin: true, ..Stdio::default() };
    let attach = || StreamRequest::Attach { container: "main".to_owned(), stdio };
    let forward = || StreamRequest::PortForward { ports: vec![80, 65_535] };
    for wanted in [exec("main"), attach(), forward()] {
        let stream = runtime.open(web.uid(), wanted).await.unwrap();
        let Some(PodStream::Served(server)) = stream else { panic!("{stream:?}") };
        assert_eq!(server.address(), "127.0.0.1:4000".parse().unwrap());
    }
    assert_eq!(calls(&stage, "Exec"), ["Exec main ls"]);
    assert_eq!(calls(&stage, "Attach"), ["Attach main"]);
    assert_eq!(calls(&stage, "PortForward"), ["PortForward [80, 65535]"]);
    stage.cri.serve_streams_at("http://192.0.2.1:4000/exec/TOKEN");
    let error = error_chain(&runtime.open(web.uid(), exec("main")).await.unwrap_err());
    assert!(error.contains("192.0.2.1:4000") && error.contains("stream_server_address"), "{error}");
    assert!(!error.contains("TOKEN"), "{error}");
    stop(&runtime, &web, 5).await;
    for wanted in [exec("main"), attach(), forward()] {
        assert!(runtime.open(web.uid(), wanted).await.unwrap().is_none());
    }
}

/// containerd with one pod, and the node API before it.
async fn front(
    test: &str,
    main: serde_json::Value,
) -> Option<(Real, Arc<winddown_cri::CriRuntime>, Pod, Arc<Front>)> {
    let stage = set(test).await?;
    let runtime = Arc::new(stage.open_now().await);
    let pod = pod("web", &json!({"containers": [main]}));
    stage.up(&*runtime, &pod).await;
    let front = Front::before(&runtime, &pod, stage.dir.path().join("logs")).await;
    Some((stage, runtime, pod, front))
}

/// Whether there is a `kubectl`; if not, says so.
fn has_kubectl(test: &str) -> bool {
    let is_here = Command::new("kubectl").arg("version").arg("--client").output().is_ok();
    if !is_here {
        skip(test, "needs the package kubernetes-client");
    }
    is_here
}

/// Runs a command with this input to its end.
async fn done(mut command: Command, input: &'static str) -> Output {
    let work = tokio::task::spawn_blocking(move || {
        let mut child = command.stdin(Pipe::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    });
    timeout(PATIENCE, work).await.unwrap().unwrap()
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_execs_attaches_forwards_ports_and_reads_logs_of_a_container_of_containerd() {
    let test = "kubectl on a container of containerd";
    if !has_kubectl(test) {
        return;
    }
    let mut main = container_of("main", POLITE);
    main["stdin"] = json!(true);
    main["command"] =
        json!(["/bin/sh", "-c", "echo up; while read x; do echo \"heard $x\"; done; sleep 1000"]);
    let Some((_stage, _runtime, _pod, front)) = front(test, main).await else { return };
    let sh = ["exec", "web", "--", "/bin/sh", "-c", "echo out; echo err >&2; exit 7"];
    let (code, out, err) = said(&done(front.kubectl(&sh), "").await);
    assert_eq!((code, &*out), (Some(7), "out\n"), "{err}");
    assert!(err.starts_with("err\n"), "{err}");
    let cat = ["exec", "-i", "web", "--", "/bin/cat"];
    let (code, out, err) = said(&done(front.kubectl(&cat), "some words\n").await);
    assert_eq!((code, &*out), (Some(0), "some words\n"), "{err}");
    let (code, _, err) =
        said(&done(front.kubectl(&["exec", "web", "--", "/bin/nothing"]), "").await);
    assert!(code != Some(0) && err.contains("/bin/nothing"), "{err}");

    let mut attach = front.kubectl(&["attach", "-i", "web"]).stdin(Pipe::piped()).spawn().unwrap();
    attach.stdin.as_mut().unwrap().write_all(b"hello\n").unwrap();
    let mut lines = BufReader::new(attach.stdout.take().unwrap()).lines();
    let heard = tokio::task::spawn_blocking(move || {
        lines.find(|line| line.as_deref().is_ok_and(|l| l == "heard hello"))
    });
    assert!(timeout(PATIENCE, heard).await.unwrap().unwrap().is_some());
    attach.kill().unwrap();
    attach.wait().unwrap();

    let (code, out, err) = said(&done(front.kubectl(&["logs", "web"]), "").await);
    assert_eq!((code, &*out), (Some(0), "up\nheard hello\n"), "{err}");

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!(":{}", listener.local_addr().unwrap().port());
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut words = [0; 5];
        stream.read_exact(&mut words).unwrap();
        stream.write_all(&words).unwrap();
    });
    let mut forward = front.kubectl(&["port-forward", "web", &port]).spawn().unwrap();
    let mut lines = BufReader::new(forward.stdout.take().unwrap()).lines();
    let first = move || (lines.next().unwrap().unwrap(), lines);
    // Who does not listen to it ends it.
    let (line, _lines) = tokio::task::spawn_blocking(first).await.unwrap();
    let local = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let mut stream = std::net::TcpStream::connect(format!("127.0.0.1:{local}")).unwrap();
    stream.write_all(b"ports").unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"ports");
    echo.join().unwrap();
    forward.kill().unwrap();
    forward.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_ends_with_its_pod_and_a_connection_with_containerd() {
    let test = "a command ends with its pod";
    if !has_kubectl(test) {
        return;
    }
    let Some((mut stage, runtime, web, front)) = front(test, container_of("main", STUBBORN)).await
    else {
        return;
    };
    let cat = ["exec", "-i", "web", "--", "/bin/cat"];
    let spawn = || {
        let mut child = front.kubectl(&cat).stdin(Pipe::piped()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"x\n").unwrap();
        let mut one = [0; 2];
        child.stdout.as_mut().unwrap().read_exact(&mut one).unwrap();
        child
    };
    let ended = |mut child: std::process::Child| {
        let stdin = child.stdin.take();
        let work = tokio::task::spawn_blocking(move || {
            let code = child.wait().unwrap().code();
            drop(stdin);
            code
        });
        timeout(PATIENCE, work)
    };
    let child = spawn();
    stage.containerd.kill();
    // It takes the end of the connection for that of the command.
    ended(child).await.unwrap().unwrap();
    stage.containerd.resume().await;
    let child = spawn();
    stop(&*runtime, &web, 1).await;
    assert_ne!(ended(child).await.unwrap().unwrap(), Some(0));
    let (_, _, err) = said(&done(front.kubectl(&cat), "").await);
    assert!(err.contains("container not found (\"main\")"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_server_reads_what_a_container_of_containerd_uses() {
    let test = "figures of a container of containerd";
    let Some((_stage, _runtime, _pod, front)) = front(test, container_of("main", POLITE)).await
    else {
        return;
    };
    let head = "GET /metrics/resource HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer any\r\n\r\n";
    let (mut stream, mut text) = (front.ask(head).await, Vec::new());
    let _ = timeout(PATIENCE, stream.read_to_end(&mut text)).await.unwrap();
    let text = String::from_utf8(text).unwrap();
    let value = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split(' ').nth(1).unwrap().parse().unwrap()
    };
    let of = r#"{container="main",namespace="default",pod="web"}"#;
    assert!(value(&format!("container_cpu_usage_seconds_total{of}")) > 0.0, "{text}");
    assert!(value(&format!("container_memory_working_set_bytes{of}")) > 0.0, "{text}");
    assert_eq!(value("resource_scrape_error"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_is_passed_on_as_it_is() {
    let test = "a websocket to a container of containerd";
    let Some((_stage, _runtime, _pod, front)) = front(test, container_of("main", POLITE)).await
    else {
        return;
    };
    let mut stream = front
        .ask(
            "GET /exec/default/web/main?command=/bin/echo&command=hello&output=1 HTTP/1.1\r\n\
             Host: node\r\nAuthorization: Bearer any\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Origin: http://node\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n",
        )
        .await;
    let head = read_head(&mut stream).await.unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    // The answer to that key, of RFC 6455.
    assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    let mut frames = Vec::new();
    let _ = timeout(Duration::from_secs(20), stream.read_to_end(&mut frames)).await.unwrap();
    let text = String::from_utf8_lossy(&frames);
    assert!(text.contains("\u{1}hello\n") && text.contains("\"status\":\"Success\""), "{text:?}");
}
