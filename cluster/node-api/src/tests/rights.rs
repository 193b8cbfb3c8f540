//! Tests of authentication and authorization, one for each rule.

use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue};
use rcgen::{ExtendedKeyUsagePurpose, date_time_ymd};
use tokio::io::AsyncReadExt as _;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use super::clients::Client;
use super::http2::{answered, requests};
use super::{Bench, Cluster, authority, client, signed};
use crate::route::Right;
use crate::server::converse;
use crate::who::RefusedClient;

const LOG: &str = "/containerLogs/ns/web/main";

#[tokio::test]
async fn without_a_certificate_and_without_a_token_nothing_is_answered() {
    let bench = Bench::new();
    let stranger = Client::new(&bench, None).await;
    for path in ["/healthz", "/pods", LOG, "/exec/ns/web/main", "/"] {
        assert_eq!(stranger.get(path, None).await.unwrap(), (401, "Unauthorized\n".to_owned()));
    }
    for wrong in
        ["Basic Z29vZA==", "Bearer", "Bearer ", "Bearer good\r\nAuthorization: Bearer good"]
    {
        let request = format!("GET /pods HTTP/1.1\r\nHost: n\r\nAuthorization: {wrong}\r\n\r\n");
        let answer = stranger.raw(request.as_bytes()).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 401 "), "{wrong:?}: {answer}");
    }
    assert!(bench.cluster.asked().is_empty(), "nothing is asked about strangers");
}

#[tokio::test]
async fn a_client_of_the_clusters_authority_is_known_and_of_any_other_is_not() {
    let bench = Bench::new();
    bench.pod(Ok(0));
    let known = client(&bench.authority, "api-server");
    let known = Client::new(&bench, Some(&known)).await;
    assert_eq!(known.get("/healthz", None).await.unwrap(), (200, "ok".to_owned()));
    let foreign = client(&authority(), "api-server");
    let past = |params: &mut rcgen::CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    let usage = ExtendedKeyUsagePurpose::ClientAuth;
    let expired = signed(&bench.authority, "api-server", usage, past);
    let usage = ExtendedKeyUsagePurpose::ServerAuth;
    let server = signed(&bench.authority, "api-server", usage, |_| {});
    bench.cluster.asked();
    for (what, shown) in [("foreign", foreign), ("expired", expired), ("a server's", server)] {
        let client = Client::of(known.port, &bench.authority, Some(&shown));
        // A valid token does not help: the TLS handshake fails.
        assert!(client.get("/healthz", Some("good")).await.is_err(), "{what}");
    }
    assert!(bench.cluster.asked().is_empty());
}

#[tokio::test]
async fn a_certificate_whose_authority_is_replaced_is_refused_on_a_connection_that_stands() {
    let bench = Bench::new();
    let shown = client(&bench.authority, "api-server");
    let client = Client::new(&bench, Some(&shown)).await;
    let mut sender = requests(&client).await;
    assert_eq!(answered(&mut sender, "/healthz").await.0, 200);
    std::fs::write(bench.directory.path().join("clients.pem"), authority().pem()).unwrap();
    assert_eq!(answered(&mut sender, "/healthz").await.0, 401);
}

#[tokio::test]
async fn a_certificate_is_valid_until_it_expires() {
    let bench = Bench::new();
    let usage = ExtendedKeyUsagePurpose::ClientAuth;
    for (until, is_valid) in [(2100, true), (2020, false)] {
        let end = |params: &mut rcgen::CertificateParams| {
            params.not_after = date_time_ymd(until, 1, 1);
        };
        let pem = signed(&bench.authority, "api-server", usage.clone(), end);
        let chain = CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap);
        assert_eq!(bench.context.tls.trusts(&chain.collect::<Vec<_>>()).await, is_valid, "{until}");
    }
    assert!(!bench.context.tls.trusts(&[]).await);
}

#[tokio::test]
async fn without_an_authority_for_clients_no_certificate_makes_anyone_known() {
    let mut bench = Bench::new();
    let context = std::sync::Arc::get_mut(&mut bench.context).unwrap();
    context.tls = crate::tls::Tls::new(crate::TlsFiles {
        certificate: bench.directory.path().join("server.pem"),
        key: bench.directory.path().join("server.pem"),
        client_authority: None,
    });
    let shown = client(&bench.authority, "api-server");
    let client = Client::new(&bench, Some(&shown)).await;
    assert_eq!(client.get("/healthz", None).await.unwrap().0, 401);
}

#[tokio::test]
async fn a_token_that_the_api_server_does_not_take_is_refused_and_asked_about_once() {
    let bench = Bench::new();
    let stranger = Client::new(&bench, None).await;
    for _ in 0..3 {
        assert_eq!(stranger.get("/pods", Some("forged")).await.unwrap().0, 401);
    }
    assert_eq!(bench.cluster.asked(), ["token forged"]);
    let long = "x".repeat(20_000);
    assert_eq!(stranger.get("/pods", Some(&long)).await.unwrap().0, 401);
    assert!(bench.cluster.asked().is_empty(), "what is no token is not passed on");
}

#[tokio::test]
async fn a_right_to_logs_is_one_to_logs_and_to_nothing_else() {
    let bench = Bench::new();
    bench.pod(Ok(0));
    std::fs::write(bench.log("0.log"), "2026-01-01T00:00:00Z stdout F hello\n").unwrap();
    let reader = Client::new(&bench, None).await;
    let (status, body) = reader.get(LOG, Some("good")).await.unwrap();
    assert_eq!(status, 200);
    assert!(body.contains("hello\n"), "{body}");
    for path in ["/healthz", "/pods", "/exec/ns/web/main", "/logs/", "/metrics/resource"] {
        let (status, body) = reader.get(path, Some("good")).await.unwrap();
        assert_eq!(status, 403, "{path}");
        let verb = if path.starts_with("/exec") { "create" } else { "get" };
        let why = format!("Forbidden (user=reader, verb={verb}, resource=nodes");
        assert!(body.starts_with(&why), "{body}");
    }
}

#[tokio::test]
async fn who_has_no_right_is_refused_whatever_is_there() {
    let bench = Bench::new();
    bench.pod(Ok(0));
    let shown = client(&bench.authority, "outsider");
    let outsider = Client::new(&bench, Some(&shown)).await;
    for path in ["/healthz", "/pods", LOG, "/containerLogs/ns/other/main", "/nothing"] {
        assert_eq!(outsider.get(path, None).await.unwrap().0, 403, "{path}");
    }
    let scraper = Client::of(outsider.port, &bench.authority, None);
    assert_eq!(scraper.get("/pods", Some("figures")).await.unwrap().0, 403);
}

#[tokio::test]
async fn while_the_api_server_is_away_no_client_is_let_in_and_nothing_is_kept_of_that() {
    let bench = Bench::new();
    let stranger = Client::new(&bench, None).await;
    let known = client(&bench.authority, "api-server");
    let known = Client::of(stranger.port, &bench.authority, Some(&known));
    *bench.cluster.is_silent.lock().unwrap() = true;
    assert_eq!(stranger.get("/pods", Some("good")).await.unwrap().0, 503);
    let (status, body) = known.get("/pods", None).await.unwrap();
    assert_eq!((status, &*body), (503, "cannot ask the API server who may do this\n"));
    *bench.cluster.is_silent.lock().unwrap() = false;
    assert_eq!(known.get("/pods", None).await.unwrap().0, 200);
}

fn with(token: &str) -> HeaderMap {
    let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
    HeaderMap::from_iter([(AUTHORIZATION, value)])
}

const LOGS: Right = Right { verb: "get", subresources: &["log"] };
const PODS: Right = Right { verb: "get", subresources: &["pods", "proxy"] };

#[tokio::test(start_paused = true)]
async fn answers_of_the_api_server_hold_as_long_as_with_a_kubelet() {
    let bench = Bench::new();
    let gatekeeper = &bench.context.gatekeeper;
    let admit = async |right: &Right| gatekeeper.admit(None, &with("good"), right).await;
    admit(&LOGS).await.unwrap();
    assert!(matches!(admit(&PODS).await, Err(RefusedClient::Forbidden { .. })));
    assert_eq!(
        bench.cluster.asked(),
        ["token good", "reader get log", "reader get pods", "reader get proxy"]
    );
    let _ = (admit(&LOGS).await, admit(&PODS).await);
    assert!(bench.cluster.asked().is_empty());
    tokio::time::advance(Duration::from_secs(31)).await;
    let _ = (admit(&LOGS).await, admit(&PODS).await);
    assert_eq!(bench.cluster.asked(), ["reader get pods", "reader get proxy"]);
    tokio::time::advance(Duration::from_secs(90)).await;
    admit(&LOGS).await.unwrap();
    assert_eq!(bench.cluster.asked(), ["token good"]);
    tokio::time::advance(Duration::from_secs(180)).await;
    admit(&LOGS).await.unwrap();
    assert_eq!(bench.cluster.asked(), ["token good", "reader get log"]);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_strangers_fill_no_memory_and_push_out_no_one_who_is_known() {
    let bench = Bench::new();
    let gatekeeper = &bench.context.gatekeeper;
    gatekeeper.admit(None, &with("good"), &LOGS).await.unwrap();
    for n in 0..10_000 {
        let refused = gatekeeper.admit(None, &with(&format!("forged-{n}")), &LOGS).await;
        assert!(matches!(refused, Err(RefusedClient::Unauthorized)));
    }
    assert_eq!(gatekeeper.kept(), [1, 512, 1]);
    bench.cluster.asked();
    gatekeeper.admit(None, &with("good"), &LOGS).await.unwrap();
    assert!(bench.cluster.asked().is_empty());
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let bench = Bench::with(Cluster::default());
    let stranger = Client::new(&bench, None).await;
    let head = format!("GET / HTTP/1.1\r\nHost: n\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let answer = stranger.raw(head.as_bytes()).await;
    assert!(answer.is_err() || answer.unwrap().starts_with("HTTP/1.1 431 "));
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_cut_off() {
    let bench = Bench::with(Cluster::default());
    let from = "192.0.2.1:1".parse().unwrap();
    let (mut client, server) = tokio::io::duplex(4096);
    let seat = bench.context.places.guests.take_slot(std::net::IpAddr::from([192, 0, 2, 1]));
    let begun = tokio::time::Instant::now();
    tokio::spawn(converse(std::sync::Arc::clone(&bench.context), server, from, seat));
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
    assert!(begun.elapsed() < Duration::from_secs(11));
}

#[tokio::test]
async fn a_certificate_that_is_replaced_is_shown_from_then_on() {
    let bench = Bench::new();
    let shown = client(&bench.authority, "api-server");
    let known = Client::new(&bench, Some(&shown)).await;
    assert_eq!(known.get("/healthz", None).await.unwrap().0, 200);
    let at = |name: &str| bench.directory.path().join(name);
    let other = authority();
    let server = signed(&other, "node", ExtendedKeyUsagePurpose::ServerAuth, |_| {});
    std::fs::write(at("new.pem"), server).unwrap();
    std::fs::rename(at("new.pem"), at("server.pem")).unwrap();
    assert!(known.get("/healthz", None).await.is_err(), "it is another authority's");
    let new = Client::of(known.port, &other, Some(&shown));
    assert_eq!(new.get("/healthz", None).await.unwrap().0, 200);
    // The time and the size of the file may be the same when it can be read again.
    let last = signed(&bench.authority, "node", ExtendedKeyUsagePurpose::ServerAuth, |_| {});
    let modified = std::time::SystemTime::UNIX_EPOCH;
    for text in [".".repeat(last.len()), last] {
        assert_eq!(new.get("/healthz", None).await.unwrap().0, 200, "what was there goes on");
        std::fs::write(at("server.pem"), text).unwrap();
        let file = std::fs::File::options().write(true).open(at("server.pem")).unwrap();
        file.set_modified(modified).unwrap();
    }
    assert_eq!(known.get("/healthz", None).await.unwrap().0, 200, "it is read again");
}

#[tokio::test]
async fn no_value_of_a_variable_is_in_the_list_of_pods() {
    let bench = Bench::new();
    bench.pod(Ok(0));
    let shown = client(&bench.authority, "api-server");
    let known = Client::new(&bench, Some(&shown)).await;
    let (status, body) = known.get("/pods", None).await.unwrap();
    assert_eq!(status, 200);
    assert!(body.contains(r#""kind":"PodList""#) && body.contains(r#""name":"web""#), "{body}");
    assert!(body.contains(r#""env":[{"name":"A"}]"#) && body.contains(r#""running":{}"#), "{body}");
    assert!(!body.contains("SECRET"), "{body}");
}
