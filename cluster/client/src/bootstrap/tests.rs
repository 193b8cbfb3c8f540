use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestStatus,
};
use rcgen::{CertificateParams, DnType, KeyPair};
use winddown_apiserver::{ApiServer, Fault};

use super::request::{AskError, Purpose, RequestDecision, ask, decision_of};
use super::step::{BootstrapStep, With, next};
use super::store::{Store, cluster_of};
use crate::CertificateFacts;
use crate::kubeconfig;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn a_certificate_is_renewed_with_itself_and_replaced_when_it_is_of_no_use() {
    let ten_days = |name: &str| CertificateFacts {
        not_before: at("2026-01-01T00:00:00Z"),
        not_after: at("2026-01-11T00:00:00Z"),
        common_name: Some(name.into()),
        organizations: Vec::new(),
    };
    let (ours, theirs) = (ten_days("system:node:n1"), ten_days("system:node:n10"));
    let hour = Duration::from_secs(3600);
    let table = [
        (None, "2026-01-02T00:00:00Z", BootstrapStep::Ask(With::Bootstrap)),
        (Some(&theirs), "2026-01-02T00:00:00Z", BootstrapStep::Ask(With::Bootstrap)),
        (Some(&ours), "2026-01-02T00:00:00Z", BootstrapStep::Wait(hour)),
        (Some(&ours), "2026-01-08T23:59:50Z", BootstrapStep::Wait(hour / 360)),
        (Some(&ours), "2026-01-09T00:00:00Z", BootstrapStep::Ask(With::Own)),
        (Some(&ours), "2026-01-10T23:59:59Z", BootstrapStep::Ask(With::Own)),
        (Some(&ours), "2026-01-11T00:00:00Z", BootstrapStep::Ask(With::Bootstrap)),
        // A clock that is wrong now may be corrected later.
        (Some(&ours), "1970-01-01T00:00:00Z", BootstrapStep::Wait(hour)),
    ];
    for (facts, now, step) in table {
        assert_eq!(next(facts, "n1", at(now), 0.8, None), step, "{now}");
    }
    let made = Some(at("2026-01-10T12:00:00Z"));
    let step = next(Some(&ours), "n1", at("2026-01-10T12:00:00Z"), 0.5, made);
    assert_eq!(
        step,
        BootstrapStep::Wait(hour),
        "a certificate that was dated back is not renewed at once"
    );
    let nameless = CertificateFacts { common_name: None, ..ours };
    let step = next(Some(&nameless), "n1", at("2026-01-02T00:00:00Z"), 0.8, None);
    assert_eq!(step, BootstrapStep::Ask(With::Bootstrap));
}

#[test]
fn a_request_is_decided_by_its_conditions_and_its_certificate() {
    let condition = |kind: &str, reason: &str, message: &str| CertificateSigningRequestCondition {
        type_: kind.into(),
        status: "True".into(),
        reason: Some(reason.into()).filter(|text: &String| !text.is_empty()),
        message: Some(message.into()).filter(|text: &String| !text.is_empty()),
        ..Default::default()
    };
    let refused = |how, why: &str| RequestDecision::Refused { how, why: why.into() };
    let table = [
        (vec![], None, RequestDecision::Pending),
        (vec![condition("Approved", "", "")], None, RequestDecision::Pending),
        (vec![condition("Approved", "", "")], Some(""), RequestDecision::Pending),
        (vec![condition("Approved", "", "")], Some("pem"), RequestDecision::Issued(b"pem".into())),
        (
            vec![condition("Denied", "NotKnown", "who is this")],
            None,
            refused("denied", "NotKnown: who is this"),
        ),
        (vec![condition("Denied", "", "")], None, refused("denied", "no reason given")),
        (
            vec![condition("Approved", "", ""), condition("Failed", "SignerValidation", "")],
            None,
            refused("approved, but could not be signed", "SignerValidation"),
        ),
    ];
    for (conditions, certificate, decision) in table {
        let status = CertificateSigningRequestStatus {
            conditions: Some(conditions.clone()),
            certificate: certificate.map(|text| ByteString(text.into())),
        };
        let request = CertificateSigningRequest { status: Some(status), ..Default::default() };
        assert_eq!(decision_of(&request), decision, "{conditions:?}");
    }
    assert_eq!(decision_of(&CertificateSigningRequest::default()), RequestDecision::Pending);
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_found_although_a_proxy_swallows_the_watch() {
    let server = ApiServer::in_memory().unwrap();
    server.sign_requests(None);
    server.fault(Fault::on("watch", "*").hang());
    let key = KeyPair::generate().unwrap();
    let client = kube::Client::new(server.service(), "default");
    let asked =
        ask(&client, &key, "n1", Purpose::CLIENT, |name| assert!(server.deny_request(name)));
    let error = tokio::time::timeout(Duration::from_secs(3600), asked).await.unwrap().unwrap_err();
    assert!(matches!(error, AskError::Refused { how: "denied", .. }), "{error}");
}

#[tokio::test]
async fn a_key_whose_certificate_has_been_asked_for_outlives_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("pki");
    let store = Store::new(&folder, "client");
    let key = store.pending_key().await.unwrap();
    let again = Store::new(&folder, "client").pending_key().await.unwrap();
    assert_eq!(key.serialize_pem(), again.serialize_pem());

    store.forget_pending().await.unwrap();
    store.forget_pending().await.unwrap();
    assert_ne!(key.serialize_pem(), store.pending_key().await.unwrap().serialize_pem());
}

#[tokio::test]
async fn half_a_key_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path(), "client");
    let key = store.pending_key().await.unwrap().serialize_pem();
    let path = dir.path().join("client-key.pending.pem");
    std::fs::write(&path, &key[..key.len() / 2]).unwrap();
    assert_ne!(store.pending_key().await.unwrap().serialize_pem(), key);
}

#[tokio::test]
async fn what_is_kept_can_be_read_by_its_owner_only_and_names_the_same_server() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("pki");
    let authority =
        CertificateParams::default().self_signed(&KeyPair::generate().unwrap()).unwrap();
    std::fs::write(dir.path().join("ca.crt"), authority.pem()).unwrap();
    let bootstrap = dir.path().join("bootstrap");
    std::fs::write(
        &bootstrap,
        "{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
          clusters: [{name: k, cluster: {server: 'https://api:6443', certificate-authority: ca.crt}}],
          users: [{name: u, user: {token: t}}]}",
    )
    .unwrap();
    let store = Store::new(&folder, "client");
    let key = store.pending_key().await.unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "system:node:n1");
    let chain = params.self_signed(&key).unwrap().pem();
    // Files that a crash left in the middle of an earlier write do no harm.
    std::fs::write(folder.join("client.pem.new"), "half").unwrap();
    store.keep_identity(chain.as_bytes(), &key, "").await.unwrap();
    store.keep_kubeconfig(cluster_of(&bootstrap).await.unwrap()).await.unwrap();

    let mode = |name: &str| folder.join(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!([mode("client.pem"), mode("kubeconfig")], [0o600, 0o600]);
    let draft = kubeconfig::read(&folder.join("kubeconfig"), None).unwrap();
    let material = draft.finish().await.unwrap();
    assert_eq!(material.config.cluster_url, "https://api:6443/");
    assert_eq!(material.certificate.unwrap().common_name.as_deref(), Some("system:node:n1"));
    assert!(material.config.root_cert.is_some());
}
