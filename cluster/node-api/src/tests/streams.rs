//! Tests of streams into containers, with a runtime that has a minimal streaming server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use winddown_host::{PodStream, PodStreams, Stdio, StreamRequest, StreamServer};
use winddown_shared::{PodUid, RuntimeError};

use super::clients::Client;
use super::logs::{append, new_log};
use super::{Bench, client};

pub(super) const SOON: Duration = Duration::from_secs(30);
const EXEC: &str = "/exec/ns/web/main?command=sh&input=1&output=1";
const UPGRADED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
    X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";

/// A fake runtime with a streaming server.
#[derive(Default)]
struct Runtime {
    /// The URL of the server; while it is `None`, no container runs.
    url: Mutex<Option<String>>,
    refuses: bool,
    asked: Mutex<Vec<(PodUid, StreamRequest)>>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl PodStreams for Runtime {
    fn open<'a>(
        &'a self,
        pod: &'a PodUid,
        wanted: StreamRequest,
    ) -> BoxFuture<'a, Result<Option<PodStream>, RuntimeError>> {
        async move {
            self.asked.lock().unwrap().push((pod.clone(), wanted));
            if self.refuses {
                let what = "the runtime is away".to_owned();
                return Err(RuntimeError::Failed { what, source: None });
            }
            let server = |url: &String| PodStream::Served(StreamServer::of_url(url).unwrap());
            Ok(self.url.lock().unwrap().as_ref().map(server))
        }
        .boxed()
    }
}

impl Runtime {
    /// Serves streams: answers each request with `answer`, and then echoes its input.
    async fn serve(&self, answer: &'static str) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        *self.url.lock().unwrap() = Some(format!("http://127.0.0.1:{port}/exec/token?x=1"));
        let heads = Arc::clone(&self.heads);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(converse(stream, answer, Arc::clone(&heads)));
            }
        });
    }
}

/// Serves one connection. `die` resets it, `bye` closes it once it has been echoed.
async fn converse(mut stream: TcpStream, answer: &str, heads: Arc<Mutex<Vec<String>>>) {
    let head = read_head(&mut stream).await;
    heads.lock().unwrap().push(head);
    stream.write_all(answer.as_bytes()).await.unwrap();
    let mut block = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut block).await {
        if block[..read].starts_with(b"die") {
            let _ = nix::sys::socket::setsockopt(
                &stream,
                nix::sys::socket::sockopt::Linger,
                &nix::libc::linger { l_onoff: 1, l_linger: 0 },
            );
            return;
        }
        stream.write_all(&block[..read]).await.unwrap();
        if block[..read].starts_with(b"bye") {
            return;
        }
    }
}

async fn read_head(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

fn bench(runtime: Runtime) -> (Bench, Arc<Runtime>) {
    let mut bench = Bench::new();
    let runtime = Arc::new(runtime);
    Arc::get_mut(&mut bench.context).unwrap().pod_streams = Some(Arc::clone(&runtime) as _);
    bench.pod(Ok(0));
    (bench, runtime)
}

pub(super) async fn api_server(bench: &Bench) -> Client {
    Client::new(bench, Some(&client(&bench.authority, "api-server"))).await
}

pub(super) fn upgrade(method: &str, path: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: v4.channel.k8s.io\r\nAuthorization: Bearer SECRET\r\n\
         Cookie: SECRET\r\n\r\n"
    )
}

/// Opens a stream, and returns it with the head of the response.
async fn opened(client: &Client) -> (TlsStream<TcpStream>, String) {
    let mut stream = client.send(upgrade("POST", EXEC).as_bytes()).await.unwrap();
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    (stream, head)
}

/// Writes `words` and panics unless they are echoed.
async fn echoes(stream: &mut TlsStream<TcpStream>, words: &[u8]) {
    stream.write_all(words).await.unwrap();
    let mut back = vec![0; words.len()];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(back, words);
}

/// Waits until the connection is closed or reset.
pub(super) async fn ends(mut stream: TlsStream<TcpStream>) {
    let mut rest = Vec::new();
    let _ = timeout(SOON, stream.read_to_end(&mut rest)).await.unwrap();
}

#[tokio::test]
async fn a_stream_is_passed_on_byte_for_byte_and_who_the_client_is_is_not() {
    let (bench, runtime) = bench(Runtime::default());
    runtime.serve(UPGRADED).await;
    let client = api_server(&bench).await;
    let (mut stream, head) = opened(&client).await;
    for line in ["connection: Upgrade", "upgrade: SPDY/3.1", "x-stream-protocol-version: v4."] {
        assert!(head.to_lowercase().contains(&line.to_lowercase()), "{head}");
    }
    assert!(!head.contains("close"), "{head}");
    let all_bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    for block in all_bytes.chunks(4096) {
        echoes(&mut stream, block).await;
    }
    let heads = runtime.heads.lock().unwrap().clone();
    assert!(heads[0].starts_with("POST /exec/token?x=1 HTTP/1.1\r\n"), "{}", heads[0]);
    assert!(heads[0].contains("upgrade: SPDY/3.1"), "{}", heads[0]);
    assert!(heads[0].contains("x-stream-protocol-version: v4.channel.k8s.io"), "{}", heads[0]);
    assert!(!heads[0].contains("SECRET"), "{}", heads[0]);
    let container = "main".to_owned();
    let stdio = Stdio { stdin: true, stdout: true, ..Stdio::default() };
    let wanted = StreamRequest::Exec { container, command: vec!["sh".to_owned()], stdio };
    assert_eq!(*runtime.asked.lock().unwrap(), [(PodUid::new("u1"), wanted)]);
    echoes(&mut stream, b"bye").await;
    ends(stream).await;
    assert_eq!(bench.context.streams.available_permits(), crate::MAX_OPEN_STREAMS);
}

#[tokio::test]
async fn a_client_that_has_closed_its_half_of_the_connection_gets_its_answer() {
    let bench = Bench::new();
    bench.pod(Ok(0));
    append(&mut new_log(&bench.log("0.log")), "the last line");
    let client = api_server(&bench).await;
    let half = async |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\n\r\n");
        let mut stream = client.send(request.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = timeout(SOON, stream.read_to_end(&mut answer)).await.expect("it ends");
        String::from_utf8_lossy(&answer).into_owned()
    };
    for (path, has) in [
        ("/healthz", "ok"),
        ("/pods", "PodList"),
        ("/containerLogs/ns/web/main", "the last line\n"),
        ("/containerLogs/ns/web/main?follow=true", "the last line\n"),
    ] {
        let answer = half(path).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(has), "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_runtime_the_client_and_the_pod() {
    let (bench, runtime) = bench(Runtime::default());
    runtime.serve(UPGRADED).await;
    let client = api_server(&bench).await;
    let (mut stream, _) = opened(&client).await;
    stream.write_all(b"die").await.unwrap();
    ends(stream).await;
    let (stream, _) = opened(&client).await;
    drop(stream);
    let (mut stream, _) = opened(&client).await;
    let pod = bench.pod(Ok(0));
    echoes(&mut stream, b"it goes on, whatever else changes").await;
    bench.statuses.set(pod, serde_json::from_value(json!({"phase": "Failed"})).unwrap());
    echoes(&mut stream, b"last words").await;
    ends(stream).await;
    let all_are_free = async {
        let all = u32::try_from(crate::MAX_OPEN_STREAMS).unwrap();
        drop(bench.context.streams.acquire_many(all).await.unwrap());
    };
    timeout(SOON, all_are_free).await.unwrap();
}

#[tokio::test]
async fn who_takes_nothing_holds_up_no_other_and_there_are_only_so_many_streams() {
    let (bench, runtime) = bench(Runtime::default());
    runtime.serve(UPGRADED).await;
    let client = api_server(&bench).await;
    let (mut stuck, _) = opened(&client).await;
    // Writes more than all buffers hold, and reads nothing of what comes back.
    let flood = async { while stuck.write_all(&[b'x'; 65_536]).await.is_ok() {} };
    let others = async {
        for _ in 0..3 {
            let (mut stream, _) = opened(&client).await;
            echoes(&mut stream, b"hello").await;
        }
    };
    tokio::select! {
        () = flood => panic!("the connection ended"),
        () = others => {}
    }
    // All streams but the stuck one, as soon as the others are released.
    let rest = u32::try_from(crate::MAX_OPEN_STREAMS - 1).unwrap();
    let _taken = timeout(SOON, bench.context.streams.acquire_many(rest)).await.unwrap().unwrap();
    let answer = client.raw(upgrade("POST", EXEC).as_bytes()).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("try again later"), "{answer}");
}

#[tokio::test]
async fn what_is_wrong_is_said_in_the_kubelets_words() {
    let (bench, runtime) = bench(Runtime::default());
    let client = api_server(&bench).await;
    for (path, status, text) in [
        (
            "/exec/ns/web/main?command=ls",
            400,
            "you must specify at least 1 of stdin, stdout, stderr",
        ),
        ("/exec/ns/other/main?output=1", 404, "pod does not exist"),
        ("/exec/ns/web/main?output=1", 500, "container not found (\"main\")"),
        ("/exec/ns/web/u2/main?output=1", 500, "container not found (\"main\")"),
        ("/attach/ns/web/main?output=1", 500, "container main not found in pod web_ns"),
        ("/portForward/ns/web/u2", 404, "pod not found"),
        ("/portForward/ns/web", 500, "pod not found (\"web_ns\")"),
        ("/portForward/ns/web?port=0", 400, "port \"0\" must be > 0"),
    ] {
        let answer = client.raw(upgrade("POST", path).as_bytes()).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        assert!(answer.ends_with(&format!("\r\n\r\n{text}\n")), "{path}: {answer}");
    }
    // The runtime is not asked for a pod of another UID.
    assert_eq!(runtime.asked.lock().unwrap().len(), 3);
    let (status, text) = client.get(EXEC, None).await.unwrap();
    assert_eq!((status, &*text), (400, "Upgrade request required\n"));
}

#[tokio::test]
async fn a_runtime_that_refuses_is_heard_and_followed_nowhere() {
    let (away, _) = bench(Runtime { refuses: true, ..Runtime::default() });
    let client = api_server(&away).await;
    let answer = client.raw(upgrade("POST", EXEC).as_bytes()).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 500 ") && answer.contains("the runtime is away"));
    for (said, status, text) in [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 8\r\n\r\nno token", 404, "no token"),
        (
            "HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n",
            500,
            "invalid upgrade response: status code 302",
        ),
        ("no HTTP\r\n\r\n", 500, "the container runtime does not serve the stream"),
    ] {
        let (bench, runtime) = bench(Runtime::default());
        runtime.serve(said).await;
        let client = api_server(&bench).await;
        let answer = client.raw(upgrade("GET", EXEC).as_bytes()).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains(text) && !answer.contains("Location"), "{answer}");
    }
    let (gone, runtime) = bench(Runtime::default());
    *runtime.url.lock().unwrap() = Some("http://127.0.0.1:1/exec/token".to_owned());
    let client = api_server(&gone).await;
    let answer = client.raw(upgrade("POST", EXEC).as_bytes()).await.unwrap();
    assert!(answer.contains("Connection refused"), "{answer}");
}

#[tokio::test]
async fn a_runtime_without_streams_says_so_to_who_may_have_them_alone() {
    let bench = Bench::new();
    bench.pod(Ok(0));
    let client = api_server(&bench).await;
    let text = "this node does not serve exec, attach and port-forward\n".to_owned();
    assert_eq!(client.get(EXEC, None).await.unwrap(), (501, text));
    assert_eq!(client.get(EXEC, Some("good")).await.unwrap().0, 501, "the certificate counts");
    let reader = Client::of(client.port, &bench.authority, None);
    assert_eq!(reader.get(EXEC, Some("good")).await.unwrap().0, 403);
}
