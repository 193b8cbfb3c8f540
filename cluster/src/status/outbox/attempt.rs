//! One attempt to send one pod's status to the API server.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use winddown_shared::{Pod, PodRef, WallClock};

use super::entry::LastReported;
use crate::status::patch::{ReportedStatus, patch, undoes};
use winddown_api_client::refusal::{self, Refusal};
use winddown_api_client::within;

#[cfg(test)]
mod tests;

/// Patches of one attempt: the second one is for a pod that needs more changes than was known.
const MOST_PATCHES: u64 = 2;
/// The wait for a busy server that does not name one.
const BUSY_SERVER_DELAY: Duration = Duration::from_secs(1);
const TOO_MANY_REQUESTS: u16 = 429;

/// Why a request failed.
#[derive(Clone, Debug)]
pub(super) enum SendFault {
    /// The pod does not exist.
    Gone,
    /// The pod is not as it was thought to be.
    Stale,
    /// The server rejects the status.
    Refused(String),
    /// The request may be retried, after the time that the server named, if any.
    Later { after: Option<Duration>, error: String },
}

/// A status to send.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) ticket: u64,
    pub(super) pod: PodRef,
    pub(super) said: LastReported,
    /// Whether the API does not have it yet; otherwise it is only checked.
    pub(super) news: bool,
    pub(super) in_api: Option<Pod>,
    /// The pod as the API had it after the last attempt.
    pub(super) as_written: Option<Pod>,
    pub(super) not_taken: Option<Value>,
    pub(super) host_ips: Arc<[String]>,
}

/// A status that the API has.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) in_api: Pod,
    /// The patch that the server accepted but did not apply.
    pub(super) not_taken: Option<Value>,
    pub(super) patches: u64,
    /// Whether others had changed what was written.
    pub(super) is_disputed: bool,
}

pub(super) type Outcome = Result<Told, SendFault>;

/// Sends the status, if there is anything to send. Cancel-safe: the next attempt sees in the API
/// what this one has done.
pub(super) async fn attempt(
    client: &kube::Client,
    job: &Job,
    deadline: Duration,
    wall: &WallClock,
) -> Outcome {
    let mut in_api = match &job.in_api {
        Some(pod) => pod.clone(),
        None => the_same(job, in_time(deadline, get(client, &job.pod)).await?)?,
    };
    let (mut patches, mut is_disputed) = (0, false);
    loop {
        let reported = ReportedStatus {
            status: &job.said.status,
            last: job.said.last,
            generation: job.said.generation,
            host_ips: &job.host_ips,
            now: wall.now(),
        };
        let needed = patch(in_api.object(), &reported);
        // A patch that the server does not apply is not sent forever.
        let refused = needed.is_some() && needed == job.not_taken;
        match needed {
            Some(needed) if !refused && patches < MOST_PATCHES => {
                let written = job.as_written.as_ref();
                is_disputed |= written.is_some_and(|written| undoes(&needed, written, &in_api));
                in_api = the_same(job, in_time(deadline, send(client, &job.pod, &needed)).await?)?;
                patches += 1;
            }
            not_taken => return Ok(Told { in_api, not_taken, patches, is_disputed }),
        }
    }
}

/// Rejects a later pod with the same name, which is a different one.
fn the_same(job: &Job, answer: Pod) -> Result<Pod, SendFault> {
    if *answer.uid() == job.pod.uid { Ok(answer) } else { Err(SendFault::Gone) }
}

async fn in_time<T>(
    deadline: Duration,
    request: impl Future<Output = Result<T, SendFault>>,
) -> Result<T, SendFault> {
    let late = |late| SendFault::Later { after: None, error: refusal::text(&late) };
    within(deadline, request).await.map_err(late)?
}

/// Reads the pod with this name.
async fn get(client: &kube::Client, pod: &PodRef) -> Result<Pod, SendFault> {
    let pods = Api::<api::Pod>::namespaced(client.clone(), &pod.namespace);
    match pods.get(&pod.name).await {
        Err(error) if Refusal::of(&error) == Refusal::NotAllowed => probe(&pods, pod).await,
        answer => read(answer),
    }
}

/// Patches the pod's status. Returns the pod as it is then.
async fn send(client: &kube::Client, pod: &PodRef, patch: &Value) -> Result<Pod, SendFault> {
    let pods = Api::<api::Pod>::namespaced(client.clone(), &pod.namespace);
    read(pods.patch_status(&pod.name, &PatchParams::default(), &Patch::Strategic(patch)).await)
}

/// NodeRestriction's message about the status of a pod that is bound to another node.
const ANOTHER_NODES: &str = "spec.nodeName set to itself";

/// Checks on a pod that may not be read, with a patch that changes nothing.
///
/// The node authorizer lets a node read only pods that are bound to it, so reading a pod that is gone
/// is forbidden, not a 404. Writing is allowed, and the server's answer then shows what exists.
async fn probe(pods: &Api<api::Pod>, pod: &PodRef) -> Result<Pod, SendFault> {
    let nothing = Patch::Strategic(json!({ "metadata": { "uid": pod.uid.as_str() } }));
    match pods.patch_status(&pod.name, &PatchParams::default(), &nothing).await {
        Err(error) if Refusal::of(&error).is_gone() || is_another_nodes(&error) => {
            Err(SendFault::Gone)
        }
        answer => read(answer),
    }
}

/// Whether the pod with this name is on another node, so that it is a different pod: pods never move.
fn is_another_nodes(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.message.contains(ANOTHER_NODES))
}

fn read(answer: Result<api::Pod, kube::Error>) -> Result<Pod, SendFault> {
    let error = match answer {
        Ok(object) => {
            let nameless =
                |error| SendFault::Later { after: None, error: format!("the answer: {error}") };
            return Pod::new(object).map_err(nameless);
        }
        Err(error) => error,
    };
    Err(match Refusal::of(&error) {
        Refusal::NotFound => SendFault::Gone,
        // Reading it again shows whether it is a different pod.
        Refusal::OtherUid | Refusal::Conflict | Refusal::AlreadyExists | Refusal::Expired => {
            SendFault::Stale
        }
        Refusal::Invalid | Refusal::NotAllowed | Refusal::Denied => {
            SendFault::Refused(error_text(&error))
        }
        Refusal::Busy { after } => {
            let busy = matches!(&error, kube::Error::Api(s) if s.code == TOO_MANY_REQUESTS);
            SendFault::Later {
                after: after.or(busy.then_some(BUSY_SERVER_DELAY)),
                error: error_text(&error),
            }
        }
        Refusal::NoAnswer => SendFault::Later { after: None, error: error_text(&error) },
    })
}

/// The server's own message, if there is one.
fn error_text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        error => refusal::text(error),
    }
}
