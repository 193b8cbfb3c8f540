use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

use crate::client::Client;
use crate::{PODS, pod, started};

const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

#[tokio::test]
async fn a_service_account_gets_a_token_that_works_until_it_expires() {
    let (server, client) = started().await;
    let asked = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": ["x"], "expirationSeconds": 600},
    });
    let answer = client.post(ACCOUNT, &asked).await;
    assert_eq!(answer.code, 201);
    assert_eq!(answer.body["spec"]["audiences"], json!(["x"]));
    assert!(answer.body["status"]["expirationTimestamp"].as_str().unwrap().ends_with('Z'));
    let token = answer.body["status"]["token"].as_str().unwrap();
    let holder = Client::with_token(&server, token);
    assert_eq!(holder.get(PODS).await.code, 200);
    assert_eq!(server.requests().pop().unwrap().user, "system:serviceaccount:default:default");

    let review = json!({"spec": {"token": token}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    assert_eq!(client.post(path, &review).await.body["status"]["authenticated"], true);
    server.set_clock_skew(jiff::SignedDuration::from_mins(11));
    assert_eq!(holder.get(PODS).await.code, 401);
    assert_eq!(client.post(path, &review).await.body["status"]["authenticated"], false);
}

#[tokio::test]
async fn a_token_for_another_pod_of_the_same_name_is_a_conflict() {
    let (server, client) = started().await;
    let uid = server.apply(pod("web")).unwrap()["metadata"]["uid"].clone();
    let bound = |uid| {
        json!({"spec": {"boundObjectRef": {
            "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": uid,
        }}})
    };
    assert_eq!(client.post(ACCOUNT, &bound(uid)).await.code, 201);
    assert_eq!(client.post(ACCOUNT, &bound(json!("other"))).await.code, 409);
    let short = json!({"spec": {"expirationSeconds": 10}});
    assert_eq!(client.post(ACCOUNT, &short).await.code, 422);
    let nobody = ACCOUNT.replace("/default/token", "/nobody/token");
    assert_eq!(client.post(&nobody, &json!({"spec": {}})).await.code, 404);
}

#[tokio::test]
async fn one_can_ask_what_one_may_do() {
    let (server, client) = started().await;
    server.deny("create", "pods/eviction");
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (subresource, allowed) in [("eviction", false), ("status", true)] {
        let review = json!({"spec": {"resourceAttributes": {
            "verb": "create", "group": "", "resource": "pods", "subresource": subresource,
        }}});
        assert_eq!(client.post(path, &review).await.body["status"]["allowed"], allowed);
    }
}

/// A request for a node's certificate, and its key.
fn request() -> (serde_json::Value, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:n7");
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "csr"},
        "spec": {
            "request": base64(pem.as_bytes()), "usages": ["client auth"],
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        },
    });
    (object, key.serialize_pem())
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| usize::from(*chunk.get(i).unwrap_or(&0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let letter = char::from(LETTERS[bits >> (18 - 6 * place) & 63]);
            text.push(if place > chunk.len() { '=' } else { letter });
        }
    }
    text
}

fn unbase64(text: &str) -> String {
    let pem = format!("-----BEGIN X-----\n{text}\n-----END X-----\n");
    let pem = pem.replace("BEGIN X", "BEGIN CERTIFICATE").replace("END X", "END CERTIFICATE");
    String::from_utf8(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn a_certificate_request_is_signed_and_the_certificate_lets_its_node_in() {
    let (server, client) = started().await;
    let (object, key) = request();
    let made = client.post(REQUESTS, &object).await;
    assert_eq!((made.code, made.body["spec"]["username"].as_str()), (201, Some("test-admin")));
    let signed = client.get(&format!("{REQUESTS}/csr")).await.body;
    assert_eq!(signed["status"]["conditions"][0]["type"], "Approved");
    let certificate = unbase64(signed["status"]["certificate"].as_str().unwrap());
    let node = Client::with_pem(&server, &format!("{certificate}{key}"));
    assert_eq!(node.get(PODS).await.code, 200);
    assert_eq!(server.requests().pop().unwrap().user, "system:node:n7");
}

#[tokio::test]
async fn a_certificate_request_waits_until_it_is_signed_or_denied() {
    let (server, client) = started().await;
    server.sign_requests(None);
    let (object, _) = request();
    client.post(REQUESTS, &object).await;
    let path = format!("{REQUESTS}/csr");
    assert_eq!(client.get(&path).await.body.get("status"), None);
    assert!(server.deny_request("csr"));
    assert_eq!(client.get(&path).await.body["status"]["conditions"][0]["type"], "Denied");
    assert!(server.sign("csr", Duration::from_secs(60)));
    assert!(client.get(&path).await.body["status"]["certificate"].is_string());
    assert!(!server.sign("none", Duration::from_secs(60)));
}
