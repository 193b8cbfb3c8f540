//! Requests a certificate from the cluster.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout};

use crate::refusal::Refusal;
use crate::{CertificateFacts, CredentialsError};

/// The timeout of one watch, in seconds: shorter than the servers' own limit of ten minutes.
const WATCH_FOR: u32 = 290;
/// The end of a watch that the server does not end, because a proxy on the way swallows it.
const LONGEST_WATCH: Duration = Duration::from_secs(320);

/// After this time without a decision an attempt has failed, as for the kubelet. The next one finds the same request.
const LONGEST_WAIT: Duration = Duration::from_secs(15 * 60);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error("the key cannot be used")]
    Key(#[source] rcgen::Error),
    #[error("certificate signing request {name}: cannot {what} it")]
    Api { name: String, what: &'static str, source: kube::Error },
    #[error(
        "certificate signing request {name} was {how}: {why}; a new one follows in five minutes"
    )]
    Refused { name: String, how: &'static str, why: String },
    #[error("{}", waits(.name))]
    Undecided { name: String },
    #[error("certificate signing request {name} was deleted")]
    Deleted { name: String },
    #[error("certificate signing request {name}: the issued certificate is not for {subject}")]
    Wrong { name: String, subject: String },
    #[error(
        "the new certificate has expired already: compare the clocks of this node and the cluster"
    )]
    Useless,
}

/// The message about a request that has not been decided yet.
pub(super) fn waits(name: &str) -> String {
    format!(
        "certificate signing request {name} waits to be approved: `kubectl certificate approve {name}`"
    )
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestDecision {
    Pending,
    Issued(Vec<u8>),
    Refused { how: &'static str, why: String },
}

#[derive(Clone, Copy)]
pub(super) struct Purpose<'a> {
    signer: &'static str,
    usage: &'static str,
    /// The host names and addresses that it is valid for.
    names: &'a [String],
}

impl<'a> Purpose<'a> {
    /// A client certificate, with which API servers accept the client as the node.
    pub(super) const CLIENT: Self = Self {
        signer: "kubernetes.io/kube-apiserver-client-kubelet",
        usage: "client auth",
        names: &[],
    };

    /// A serving certificate, with which API servers accept the node's own server.
    pub(super) fn serving(names: &'a [String]) -> Self {
        Self { signer: "kubernetes.io/kubelet-serving", usage: "server auth", names }
    }
}

/// Creates the request, waits for the decision, and returns the chain in PEM. Can be repeated: the
/// same key leads to the same request. `waiting` is called if the decision is pending.
pub(super) async fn ask(
    client: &kube::Client,
    key: &KeyPair,
    node: &str,
    purpose: Purpose<'_>,
    waiting: impl Fn(&str),
) -> Result<Vec<u8>, AskError> {
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let subject = format!("system:node:{node}");
    let name = name_of(key, &subject, purpose.names);
    let failed = |what| {
        let name = name.clone();
        move |source| AskError::Api { name, what, source }
    };
    let object = object(&name, &subject, key, purpose)?;
    match api.create(&PostParams::default(), &object).await {
        Err(error) if Refusal::of(&error) == Refusal::AlreadyExists => {}
        created => drop(created.map_err(failed("create"))?),
    }
    let mut told = false;
    let patient_until = Instant::now() + LONGEST_WAIT;
    loop {
        let found = api.get(&name).await.map_err(failed("read"))?;
        let mut decision = decision_of(&found);
        if decision == RequestDecision::Pending {
            if !std::mem::replace(&mut told, true) {
                waiting(&name);
            }
            let version = found.metadata.resource_version.unwrap_or_default();
            let watched = timeout(LONGEST_WATCH, watch(&api, &name, &version)).await;
            decision =
                watched.unwrap_or(Ok(RequestDecision::Pending)).map_err(|error| match error {
                    Some(source) => failed("watch")(source),
                    None => AskError::Deleted { name: name.clone() },
                })?;
        }
        match decision {
            RequestDecision::Pending if Instant::now() >= patient_until => {
                return Err(AskError::Undecided { name });
            }
            RequestDecision::Pending => {}
            RequestDecision::Refused { how, why } => {
                return Err(AskError::Refused { name, how, why });
            }
            RequestDecision::Issued(chain) => {
                let facts = CertificateFacts::of_pem(&chain);
                if facts.is_none_or(|facts| facts.common_name.as_deref() != Some(&subject)) {
                    return Err(AskError::Wrong { name, subject });
                }
                return Ok(chain);
            }
        }
    }
}

/// Returns the next decision, or `Pending` if the watch ended without one.
async fn watch(
    api: &Api<CertificateSigningRequest>,
    name: &str,
    version: &str,
) -> Result<RequestDecision, Option<kube::Error>> {
    let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(WATCH_FOR);
    let mut events = api.watch(&params, version).await?.boxed();
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(found) | WatchEvent::Modified(found) => match decision_of(&found) {
                RequestDecision::Pending => {}
                decided => return Ok(decided),
            },
            WatchEvent::Deleted(_) => return Err(None),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(_) => break,
        }
    }
    // Avoids a busy loop if the server ends each watch immediately.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(RequestDecision::Pending)
}

pub(super) fn decision_of(request: &CertificateSigningRequest) -> RequestDecision {
    let Some(status) = &request.status else {
        return RequestDecision::Pending;
    };
    let said = |kind: &str| status.conditions.iter().flatten().find(|c| c.type_ == kind);
    for (kind, how) in [("Denied", "denied"), ("Failed", "approved, but could not be signed")] {
        if let Some(condition) = said(kind) {
            let texts = [condition.reason.as_deref(), condition.message.as_deref()];
            let texts: Vec<_> =
                texts.into_iter().flatten().filter(|text| !text.is_empty()).collect();
            let why = if texts.is_empty() { "no reason given".into() } else { texts.join(": ") };
            return RequestDecision::Refused { how, why };
        }
    }
    match &status.certificate {
        Some(chain) if !chain.0.is_empty() => RequestDecision::Issued(chain.0.clone()),
        _ => RequestDecision::Pending,
    }
}

/// The same name for the same key, so that a restarted agent finds its request again.
fn name_of(key: &KeyPair, subject: &str, names: &[String]) -> String {
    let mut hash = Sha256::new();
    hash.update(key.public_key_raw());
    hash.update(subject);
    names.iter().for_each(|name| hash.update(name));
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("node-csr-{hex}")
}

fn object(
    name: &str,
    subject: &str,
    key: &KeyPair,
    purpose: Purpose<'_>,
) -> Result<CertificateSigningRequest, AskError> {
    let mut params = CertificateParams::new(purpose.names).map_err(AskError::Key)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, subject);
    let request = params.serialize_request(key).and_then(|request| request.pem());
    let spec = CertificateSigningRequestSpec {
        request: ByteString(request.map_err(AskError::Key)?.into_bytes()),
        signer_name: purpose.signer.into(),
        // Exactly what these signers require for a key that is not RSA.
        usages: Some(vec!["digital signature".to_owned(), purpose.usage.to_owned()]),
        ..Default::default()
    };
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
    Ok(CertificateSigningRequest { metadata, spec, status: None })
}

// === impl AskError ===

impl AskError {
    /// Whether the request was refused, or answered with the wrong certificate.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Wrong { .. })
    }
}
