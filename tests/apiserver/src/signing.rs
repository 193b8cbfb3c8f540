//! Approval, signing and denial of certificate signing requests.

use std::time::Duration;

use serde_json::{Value, json};

use crate::clock;
use crate::core::Core;
use crate::kinds;
use crate::pki::base64;
use crate::pki::csr::CertificateRequest;
use crate::store::Key;
use crate::strategic;
use crate::write::text;

/// Approves and signs the request with this name, for its `expirationSeconds` or for `lifetime`, whichever is shorter.
/// Returns false if the request does not exist or cannot be parsed.
pub(crate) fn sign(core: &mut Core, name: &str, lifetime: Duration) -> bool {
    let Some(key) = key(name) else { return false };
    let Some(object) = core.store.get(&key).cloned() else { return false };
    let asked = object.pointer("/spec/expirationSeconds").and_then(Value::as_u64);
    let lifetime = asked.map_or(lifetime, |asked| lifetime.min(Duration::from_secs(asked)));
    let pem = base64::decode(text(&object, "/spec/request")).unwrap_or_default();
    let Some(request) = CertificateRequest::of_pem(&String::from_utf8_lossy(&pem)) else {
        return false;
    };
    let now = core.clock.now();
    let signed = core.authority.client_for(&request, &request.user, now, lifetime);
    let Ok((certificate, der)) = signed else { return false };
    core.access.know_certificate(der, request.user);
    let certificate = base64::encode(certificate.as_bytes());
    settle(core, key, &object, "Approved", &json!({"certificate": certificate}));
    true
}

/// Denies the request with this name. Returns false if it does not exist.
pub(crate) fn deny(core: &mut Core, name: &str) -> bool {
    let Some(key) = key(name) else { return false };
    let Some(object) = core.store.get(&key).cloned() else { return false };
    settle(core, key, &object, "Denied", &json!({}));
    true
}

fn key(name: &str) -> Option<Key> {
    Some(Key::new(kinds::called("certificatesigningrequests")?, None, name))
}

fn settle(core: &mut Core, key: Key, object: &Value, verdict: &str, status: &Value) {
    let now = clock::seconds(core.clock.now());
    let condition = json!({
        "type": verdict, "status": "True", "reason": "ByTheTest", "message": "",
        "lastUpdateTime": now, "lastTransitionTime": now,
    });
    let mut settled = object.clone();
    strategic::merge(&mut settled, &json!({"status": status}));
    strategic::merge(&mut settled, &json!({"status": {"conditions": [condition]}}));
    core.store.put(key, settled);
}
