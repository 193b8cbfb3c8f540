//! Clients that are malicious, or idle and do not go away.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{PATIENCE, Running, read_all, serve, until};
use crate::api::Status;
use crate::fake::FakeAgent;
use crate::{ClientError, Limits, Peer, Server};

/// Short timeouts, so that the tests are short.
fn strict() -> Limits {
    Limits {
        root: 8,
        users: 8,
        per_user: 8,
        watchers: 2,
        read: Duration::from_millis(150),
        write: Duration::from_millis(150),
        ..Limits::default()
    }
}

/// Requests a server must survive, each answered or cut off.
#[tokio::test]
async fn what_is_no_http_is_refused_and_the_next_client_is_served() {
    let running = serve(strict()).await;
    let huge_head = [b"GET / HTTP/1.1\r\nx: ".as_slice(), &[b'a'; 100_000]].concat();
    let many_headers = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(2000));
    let big_body = [
        b"POST /v1/drain HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n".as_slice(),
        &[b' '; 100_000],
    ]
    .concat();
    let cases: Vec<Vec<u8>> = vec![
        b"\0\0\0\0\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc".repeat(40),
        b"GET\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n".to_vec(),
        b"POST /v1/drain HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz"
            .to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        huge_head,
        many_headers.into_bytes(),
        big_body,
    ];
    for case in cases {
        let answer = running.raw(&case).await;
        let shown = String::from_utf8_lossy(case.get(..case.len().min(60)).unwrap()).into_owned();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{shown:?}: {answer}");
    }
    assert!(running.agent.drains.lock().is_empty(), "nothing was begun");
    assert!(running.client.status().await.is_ok());
}

#[tokio::test]
async fn a_client_that_sends_nothing_or_half_a_request_is_cut_off() {
    let running = serve(strict()).await;
    for half in [
        b"".as_slice(),
        b"GET /v1/status HT",
        b"POST /v1/drain HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{",
    ] {
        let mut stream = UnixStream::connect(&running.path).await.unwrap();
        stream.write_all(half).await.unwrap();
        let answer = read_all(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert!(running.agent.drains.lock().is_empty(), "nothing was begun");
}

/// A client that starts a watch and never reads. The first status is larger than a socket's buffers, so that the
/// response must wait for the client.
async fn stuck_watcher(running: &Running) -> UnixStream {
    running.agent.change(|status| status.config.warnings = vec!["w".repeat(1 << 20)]);
    let mut stream = UnixStream::connect(&running.path).await.unwrap();
    stream.write_all(b"GET /v1/status?watch HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    stream
}

#[tokio::test]
async fn watchers_that_do_not_read_hold_up_neither_commands_nor_more_places_than_there_are() {
    let running = serve(Limits { write: Duration::from_secs(3600), ..strict() }).await;
    let stuck = [stuck_watcher(&running).await, stuck_watcher(&running).await];
    until("both watch", || running.agent.watchers() == 2).await;
    let error = running.client.watch().await.unwrap_err();
    assert_eq!(error.to_string(), "too many clients watch the status already");
    assert!(running.client.status().await.is_ok(), "others are served meanwhile");
    drop(stuck);
    until("both are forgotten", || running.agent.watchers() == 0).await;
    let mut lines = running.client.watch().await.unwrap();
    assert!(lines.next::<Status>().await.unwrap().is_some());
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_cut_off_and_its_place_is_free_again() {
    let running = serve(strict()).await;
    let stuck = stuck_watcher(&running).await;
    until("it watches and is cut off", || {
        running.agent.asked_to_watch() == 1 && running.agent.watchers() == 0
    })
    .await;
    drop(stuck);
}

#[tokio::test]
async fn a_log_whose_reader_pauses_is_read_to_its_end() {
    let running = serve(strict()).await;
    running.agent.log_bytes.store(4 << 20, Ordering::SeqCst);
    let request = b"GET /v1/pods/default/web/log HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut paused = UnixStream::connect(&running.path).await.unwrap();
    paused.write_all(request).await.unwrap();
    // A watcher that does not read, from the same moment on, shows when the limit is over.
    let stuck = stuck_watcher(&running).await;
    until("the watcher is cut off", || {
        running.agent.asked_to_watch() == 1 && running.agent.watchers() == 0
    })
    .await;
    drop(stuck);
    let answer = read_all(&mut paused).await;
    assert!(answer.len() > 4 << 20 && answer.contains("the disk is gone"), "{}", answer.len());
}

#[tokio::test]
async fn too_many_connections_are_told_so_and_then_closed() {
    // As root, where the shares of single users do not apply, and as another user, where they do.
    let limits = Limits { read: Duration::from_secs(60), ..strict() };
    let running = serve(limits).await;
    let mut idle = Vec::new();
    for _ in 0..8 {
        idle.push(UnixStream::connect(&running.path).await.unwrap());
    }
    let told = eventually_refused(&running).await;
    assert_eq!(told.to_string(), "the agent has too many control connections");
    assert!(!told.hint().is_empty());
    for _ in 0..4 {
        idle.push(UnixStream::connect(&running.path).await.unwrap());
    }
    let mut last = idle.pop().expect("one");
    let mut byte = [0];
    let read = tokio::time::timeout(PATIENCE, last.read(&mut byte)).await.expect("it is closed");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    drop(idle);
    let deadline = Instant::now() + PATIENCE;
    while running.client.status().await.is_err() {
        assert!(Instant::now() < deadline, "the places are never free again");
    }
}

/// Connections are counted when the server takes them, a moment after they were made.
async fn eventually_refused(running: &Running) -> ClientError {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match running.client.status().await {
            Err(error @ ClientError::Agent { .. }) => return error,
            _ => assert!(Instant::now() < deadline, "never refused"),
        }
    }
}

#[tokio::test]
async fn a_second_request_on_the_same_connection_is_not_read() {
    let running = serve(strict()).await;
    let one = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    let answer = running.raw(one.repeat(3).as_bytes()).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
}

/// Opens connections to the metrics port and sends nothing.
async fn idle_guests(port: SocketAddr, many: usize) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for _ in 0..many {
        open.push(TcpStream::connect(port).await.unwrap());
    }
    open
}

async fn healthz(port: SocketAddr) -> String {
    let mut stream = TcpStream::connect(port).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    tokio::time::timeout(PATIENCE, read).await.expect("it is answered").unwrap();
    answer
}

#[tokio::test]
async fn idle_connections_silence_no_health_check() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let hour = Duration::from_secs(3600);
    let limits = Limits { read: hour, network_head: hour, ..Limits::default() };
    let server = Server::new(Arc::new(FakeAgent::new()), limits, stop.clone());
    let task = tokio::spawn(server.serve_metrics(listener));
    let _idle = idle_guests(port, 100).await;
    assert!(healthz(port).await.starts_with("HTTP/1.1 200"), "beside those of its own address");
    stop.cancel();
    tokio::time::timeout(PATIENCE, task).await.expect("it stops").unwrap();
}

#[tokio::test]
async fn a_guest_that_sends_no_head_is_cut_off_before_a_local_client_is() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let limits = Limits {
        read: Duration::from_secs(3600),
        network_head: Duration::from_millis(150),
        ..Limits::default()
    };
    let server = Server::new(Arc::new(FakeAgent::new()), limits, stop.clone());
    let task = tokio::spawn(server.serve_metrics(listener));
    let mut idle = idle_guests(port, 1).await.pop().unwrap();
    let mut answer = Vec::new();
    let read = idle.read_to_end(&mut answer);
    let _ = tokio::time::timeout(PATIENCE, read).await.expect("it is cut off");
    stop.cancel();
    task.await.unwrap();
}

/// A hundred megabytes: in one piece, in endless chunks, and announced but never sent.
#[tokio::test]
async fn a_request_of_a_hundred_megabytes_is_refused_and_kept_nowhere() {
    let running = serve(Limits { read: Duration::from_millis(500), ..Limits::default() }).await;
    let before = resident();
    let megabyte = vec![b' '; 1 << 20];
    let chunk = [b"100000\r\n".as_slice(), &megabyte, b"\r\n"].concat();
    let head = "POST /v1/drain HTTP/1.1\r\nHost: x\r\n";
    for (header, piece) in [
        ("Content-Length: 104857600\r\n\r\n", &megabyte),
        ("Transfer-Encoding: chunked\r\n\r\n", &chunk),
    ] {
        let mut stream = UnixStream::connect(&running.path).await.unwrap();
        stream.write_all(format!("{head}{header}").as_bytes()).await.unwrap();
        let mut sent = 0;
        while sent < 100 && stream.write_all(piece).await.is_ok() {
            sent += 1;
        }
        assert!(sent < 100, "all of it was taken");
        let answer = read_all(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    let announced = format!("{head}Content-Length: 104857600\r\n\r\n{{}}");
    let answer = running.raw(announced.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(running.agent.drains.lock().is_empty(), "nothing was begun");
    // Other tests of this process use descriptors too.
    assert!(resident() < before + (64 << 20), "{} MiB more", (resident() - before) >> 20);
}

#[tokio::test]
async fn a_body_that_comes_byte_by_byte_keeps_no_buffer_for_each() {
    let limits = Limits { read: Duration::from_secs(3600), ..Limits::default() };
    let server = Server::new(Arc::new(FakeAgent::new()), limits, CancellationToken::new());
    // Each byte has to be read before the next is written.
    let (mut client, ours) = tokio::io::duplex(1);
    let before = resident();
    let sent = async move {
        let size = limits.body_bytes;
        let head = format!("POST /v1/drain HTTP/1.1\r\nContent-Length: {size}\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(&vec![b' '; size - 1]).await.unwrap();
        let more = resident().saturating_sub(before);
        drop(client);
        more
    };
    let root = Peer::Local { uid: 0, pid: None, may_change: true };
    let ((), more) = tokio::join!(server.serve_connection(ours, root), sent);
    // Other tests of this process use memory too.
    assert!(more < 64 << 20, "{} MiB more", more >> 20);
}

#[tokio::test]
async fn manifests_that_nobody_can_read_in_time_are_told_so() {
    let running = serve(Limits { manifests: 0, ..strict() }).await;
    let asked = running.client.preemption_plan(Some(b"kind: Pod".to_vec()), None);
    let error = asked.await.unwrap_err();
    assert!(matches!(error, ClientError::Agent { status: 503, .. }), "{error:?}");
    assert_eq!(error.to_string(), "the agent has too many manifests to read already");
    assert!(running.client.preemption_plan(None, None).await.is_ok(), "what sends none is served");
}

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test]
async fn ten_thousand_connections_take_no_more_descriptors_than_there_are_places() {
    let limits = Limits { read: Duration::from_secs(60), ..Limits::default() };
    let running = serve(limits).await;
    let mut open = std::collections::VecDeque::new();
    for _ in 0..10_000 {
        match UnixStream::connect(&running.path).await {
            Ok(stream) => open.push_back(stream),
            // The accept queue is full.
            Err(_) => tokio::task::yield_now().await,
        }
        if open.len() > 300 {
            open.pop_front();
        }
    }
    // Each descriptor of the server's is the other end of one of ours, or of one that is just being closed.
    let ours = open.len();
    let most = ours + limits.root + limits.users + (limits.root + limits.users) / 4;
    until("the rest is closed", || sockets() <= most + OTHERS).await;
    drop(open);
    let deadline = Instant::now() + PATIENCE;
    while running.client.status().await.is_err() {
        assert!(Instant::now() < deadline, "the places are never free again");
    }
}

/// Sockets of tests that run at the same time.
const OTHERS: usize = 100;

fn sockets() -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    links
        .filter(|fd| {
            std::fs::read_link(fd.path())
                .is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
        })
        .count()
}
