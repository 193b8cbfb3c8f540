//! Measures the memory that a thousand followers of one log take over TLS. In a process of its own for that reason.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use winddown_node_api::{NodeApi, NodeUsageStats, StatsProvider, TlsFiles};
use winddown_shared::status::StatusStore;
use winddown_shared::testing::{FakeKiller, pod};
use winddown_shared::{
    GateReasons, NodeHandle, NodeHandleParts, Plugin as _, PluginName, PluginStatusLines,
    ReviewError, Reviews, RuntimeError, VictimLock, WallClock, WallTime,
};

const FOLLOWERS: usize = 1000;
/// The most memory of both ends of one connection, in bytes.
const MOST: usize = 200 * 1024;
const PATIENCE: Duration = Duration::from_secs(120);
const HEAD: &[u8] = b"GET /containerLogs/default/web/main?follow=true HTTP/1.1\r\nHost: n\r\n\
    Authorization: Bearer t\r\n\r\n";

/// A fake that authorizes every token for everything, and measures nothing.
struct Anyone;

impl Reviews for Anyone {
    fn certificate(&self, _: &[u8]) -> Option<UserInfo> {
        None
    }

    fn token(&self, token: String) -> BoxFuture<'_, Result<Option<UserInfo>, ReviewError>> {
        async { Ok(Some(UserInfo { username: Some(token), ..UserInfo::default() })) }.boxed()
    }

    fn access(&self, _: SubjectAccessReviewSpec) -> BoxFuture<'_, Result<bool, ReviewError>> {
        async { Ok(true) }.boxed()
    }
}

impl StatsProvider for Anyone {
    fn measure(&self, _: bool) -> BoxFuture<'_, Result<NodeUsageStats, RuntimeError>> {
        async { Ok(NodeUsageStats::default()) }.boxed()
    }
}

/// Starts a node API with one pod, whose logs are in `dir`, and returns how to connect to it.
async fn serve(dir: &Path) -> (SocketAddr, TlsConnector) {
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let file = dir.join("node.pem");
    std::fs::write(&file, issued.cert.pem() + &issued.signing_key.serialize_pem()).unwrap();
    let statuses = StatusStore::default();
    let status = json!({"containerStatuses": [{
        "name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 0,
        "containerID": "cri://1", "state": {"running": {}},
    }]});
    statuses.set(pod("web"), serde_json::from_value(status).unwrap());
    let parts = NodeHandleParts {
        killer: Arc::new(FakeKiller::with([])),
        victims: VictimLock::new(),
        gate: watch::Sender::new(GateReasons::default()).subscribe(),
        statuses,
        recorder: Arc::new(()),
        wall: WallClock::fixed(WallTime::UNIX_EPOCH),
        notes: PluginStatusLines::default(),
    };
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let api = NodeApi {
        address,
        node_name: "n1".to_owned(),
        log_dir: dir.to_owned(),
        log_max_bytes: 10 * 1024 * 1024,
        tls: TlsFiles { certificate: file.clone(), key: file, client_authority: None },
        waits_for: watch::Sender::new(String::new()).subscribe(),
        reviews: Arc::new(Anyone),
        figures: Arc::new(Anyone),
        streams: None,
    };
    tokio::spawn(Box::new(api).run(NodeHandle::new(PluginName::new("node-api"), parts)));
    while TcpStream::connect(address).await.is_err() {
        sleep(Duration::from_millis(5)).await;
    }
    let mut roots = RootCertStore::empty();
    roots.add(issued.cert.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (address, TlsConnector::from(Arc::new(config)))
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

async fn hears(stream: &mut TlsStream<TcpStream>, words: &[u8]) {
    let mut heard = Vec::new();
    while !heard.windows(words.len()).any(|heard| heard == words) {
        heard.push(stream.read_u8().await.unwrap());
    }
}

#[tokio::test]
async fn a_thousand_followers_over_tls_hear_of_a_line_and_take_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("default_web_web/main");
    std::fs::create_dir_all(&folder).unwrap();
    let mut log = std::fs::File::create(folder.join("0.log")).unwrap();
    let mut write = |line: &str| writeln!(log, "2026-01-01T00:00:00Z stdout F {line}").unwrap();
    write("one");
    let (address, connector) = serve(dir.path()).await;
    let follow = async || {
        let stream = TcpStream::connect(address).await.unwrap();
        // As clients do; without, each waits 40 ms for the server's acknowledgement.
        stream.set_nodelay(true).unwrap();
        let mut stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        stream.write_all(HEAD).await.unwrap();
        hears(&mut stream, b"one\n").await;
        stream
    };
    let work = async {
        let mut followers = vec![follow().await];
        let before = resident();
        while followers.len() <= FOLLOWERS {
            followers.push(follow().await);
        }
        let each = (resident() - before) / FOLLOWERS;
        println!("{} KiB for each follower, both ends of its connection", each / 1024);
        assert!(each < MOST, "{each} bytes for each");
        write("two");
        join_all(followers.iter_mut().map(|one| hears(one, b"two\n"))).await;
    };
    timeout(PATIENCE, work).await.unwrap();
}
