//! Credentials from a command that outlives its caller's patience.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;

use http::HeaderValue;
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;

use super::*;
use crate::material::base64;

const SECOND: Duration = Duration::from_secs(1);
const V1: &str = "client.authentication.k8s.io/v1";

#[tokio::test]
async fn a_command_goes_on_when_its_caller_has_given_up_and_the_next_one_gets_its_answer() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    assert!(Command::new("mkfifo").arg(path("answer")).status().unwrap().success());
    let authority = CertificateParams::default().self_signed(&KeyPair::generate().unwrap());
    let script = format!("cd '{}' && echo >> runs && cat answer", dir.path().display());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {
            "server": "https://10.0.0.1",
            "certificate-authority-data": base64(authority.unwrap().pem().into_bytes()),
        }}],
        "users": [{"name": "u", "user": {"exec": {
            "apiVersion": V1, "command": "/bin/sh", "args": ["-c", script],
            "interactiveMode": "Never",
        }}}],
    });
    std::fs::write(path("kubeconfig"), kubeconfig.to_string()).unwrap();
    let source = CredentialsSource::Kubeconfig { path: path("kubeconfig"), context: None };
    let transport_config = TransportConfig {
        user_agent: HeaderValue::from_static("agent"),
        connect_timeout: SECOND,
        answer_timeout: SECOND,
    };
    let pauses = Pauses { look_every: 3600 * SECOND, command_again_after: 3600 * SECOND };
    let limits = RequestLimits::new(1, 1, Instant::now());
    let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
    let shared = ConnectionShared::new(source, transport_config, pauses, limits, wall);
    shared.begin().await.unwrap();

    let answer = path("answer");
    // Returns when the command reads.
    let open = tokio::task::spawn_blocking(|| OpenOptions::new().write(true).open(answer));
    let mut answer = tokio::select! {
        _ = shared.current_or_wait() => panic!("the command has not answered"),
        opened = open => opened.unwrap().unwrap(),
    };
    let credentials =
        json!({"apiVersion": V1, "kind": "ExecCredential", "status": {"token": "abc"}});
    answer.write_all(credentials.to_string().as_bytes()).unwrap();
    drop(answer);
    let current = shared.current_or_wait().await.unwrap();
    assert_eq!(current.material.authorization.as_ref().unwrap(), "Bearer abc");
    assert_eq!(std::fs::read_to_string(path("runs")).unwrap().lines().count(), 1);
}
