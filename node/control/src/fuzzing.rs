//! Properties of a connection to the control socket that must hold for any input. Called by tests/fuzz.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::fake::FakeAgent;
use super::{Limits, Peer, Server};
use crate::api::ErrorBody;

/// Sends the bytes to a server with a fake agent: as a user with read access only, as root, and from the network.
/// Panics if a property is violated. No task waits for real time: the clock advances while all are idle.
pub fn conversation(request: &[u8]) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    if let Ok(runtime) = runtime.enable_time().start_paused(true).build() {
        runtime.block_on(conversations(request));
    }
}

async fn conversations(request: &[u8]) {
    for may_change in [false, true] {
        said(request, Peer::Local { uid: 1000, pid: None, may_change }).await;
    }
    said(request, Peer::Network(Ipv4Addr::LOCALHOST.into())).await;
}

async fn said(request: &[u8], peer: Peer) {
    let agent = Arc::new(FakeAgent::new());
    // Commands that wait for a pod, and watches, end when the server stops.
    let stop = CancellationToken::new();
    let server = Server::new(Arc::clone(&agent), Limits::default(), stop.clone());
    let (mut client, ours) = tokio::io::duplex(1 << 16);
    let served = server.serve_connection(ours, peer);
    let talked = async {
        let _ = client.write_all(request).await;
        let _ = client.shutdown().await;
        let mut answer = Vec::new();
        let read = client.read_to_end(&mut answer);
        if tokio::time::timeout(Duration::from_secs(1), read).await.is_err() {
            stop.cancel();
        }
        let _ = client.read_to_end(&mut answer).await;
        answer
    };
    let ((), answer) = tokio::join!(served, talked);
    laws(&answer, &agent, peer);
}

fn laws(answer: &[u8], agent: &FakeAgent, peer: Peer) {
    let killed = !agent.kills.lock().is_empty();
    let drained = !agent.drains.lock().is_empty();
    let noticed = agent.notice.lock().is_some();
    assert!(peer.may_change() || !(killed || drained || noticed), "{peer} may not change anything");
    if answer.is_empty() {
        return;
    }
    let text = String::from_utf8_lossy(answer);
    let text = text.strip_prefix("HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(&text);
    assert!(text.starts_with("HTTP/1.1 ") || text.starts_with("HTTP/1.0 "), "{text}");
    let status: Option<u16> = text.get(9..12).and_then(|code| code.parse().ok());
    assert!(status.is_some_and(|code| (200..=503).contains(&code) && code != 500), "{text}");
    assert_eq!(text.matches("\r\nwinddown-version: ").count().min(2), usize::from(is_ours(text)));
    let failed = status.is_some_and(|code| code >= 400);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    if failed && is_ours(text) && body.starts_with('{') {
        let told = serde_json::from_str::<ErrorBody>(body);
        assert!(told.is_ok_and(|told| !told.error.is_empty()), "a refusal says why: {text}");
    }
}

/// Whether the response is from this server: hyper itself answers requests that are not HTTP.
fn is_ours(text: &str) -> bool {
    text.contains("\r\nwinddown-version: ")
}

#[test]
fn any_request_keeps_the_laws() {
    winddown_fuzz::short("control_requests", conversation);
}
