//! Creates and refreshes the volumes of a pod.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use winddown_host::PodFiles;
use winddown_shared::{Mutex, Pod, WallTime};

use super::allowance::Allowance;
use super::downward::NodeAmounts;
use super::object::{FoundObject, Hidden, ObjectKey};
use super::payload::{self, Payload, TokenKey};
use super::places::{PodDirectories, is_safe};
use super::problem::ReferenceProblem;
use super::tokens::{self, Token};
use super::{ResolverConfig, needs};
use winddown_cluster::events::{EventDraft, Subject};

/// The lock on a pod's directories: one writer at a time, off the async threads. False once they
/// have been removed for good.
pub(super) type VolumeLock = Arc<Mutex<bool>>;

/// A volume to write.
pub(super) struct Making {
    pub(super) name: String,
    path: PathBuf,
    files: Payload,
}

/// Returns the tokens of a pod, with those that are due replaced by new ones, and the last failed
/// request.
///
/// A token that is due but cannot be renewed stays in use until it can be: at least a fifth of its
/// life is left.
pub(super) async fn tokens(
    client: &Client,
    config: &ResolverConfig,
    pod: &Pod,
    mut have: HashMap<TokenKey, Token>,
) -> (HashMap<TokenKey, Token>, Option<ReferenceProblem>) {
    let mut problem = None;
    for key in needs::made_here(pod).flat_map(|(_, volume)| payload::tokens(volume)) {
        let is_good = have.get(&key).is_some_and(|token| token.renew_at > config.boot_clock.now());
        if is_good {
            continue;
        }
        match tokens::request(client, pod, &key, config).await {
            Ok(token) => drop(have.insert(key, token)),
            Err(error) => problem = Some(error),
        }
    }
    (have, problem)
}

/// Computes the files of each volume of the pod that is made here, or the first problem of that volume.
pub(super) fn plan(
    node: Option<NodeAmounts>,
    places: &PodDirectories,
    pod: &Pod,
    objects: &HashMap<ObjectKey, FoundObject>,
    tokens: &HashMap<TokenKey, Token>,
) -> Vec<Result<Making, (String, ReferenceProblem)>> {
    let tokens: HashMap<TokenKey, Hidden> =
        tokens.iter().map(|(key, token)| (key.clone(), token.value.clone())).collect();
    let known = payload::PayloadInputs { pod, objects, tokens: &tokens, node };
    let mut allowance = Allowance::of_volumes();
    let one = |(index, volume): (usize, &k8s_openapi::api::core::v1::Volume)| {
        let failed = |problem| (volume.name.clone(), problem);
        let safe = [("metadata.uid", pod.uid().as_str()), ("name", volume.name.as_str())];
        if let Some((field, _)) = safe.into_iter().find(|(_, text)| !is_safe(text)) {
            let why = "cannot be the name of a directory".to_owned();
            let field = match field {
                "name" => format!("spec.volumes[{index}].name"),
                other => other.to_owned(),
            };
            return Err(failed(ReferenceProblem::Invalid { field, why }));
        }
        let files = payload::files(&known, index, volume, &mut allowance).map_err(failed)?;
        Ok(Making { name: volume.name.clone(), path: places.of(pod.uid(), volume), files })
    };
    needs::made_here(pod).map(one).collect()
}

/// Writes the volumes, unless the pod is gone. Returns where they are, and how many changed.
///
/// # Errors
/// When a volume cannot be written: the first such problem. Other volumes that existed are written all the same, and no
/// new one stays: its pod waits, and takes nothing while it does.
pub(super) async fn write(
    places: &PodDirectories,
    pod: &Pod,
    volume_lock: &VolumeLock,
    volumes: Vec<Making>,
    now: WallTime,
) -> Result<(HashMap<String, PathBuf>, usize), ReferenceProblem> {
    if volumes.is_empty() {
        return Ok((HashMap::new(), 0));
    }
    let (places, volume_lock, group) =
        (places.clone(), Arc::clone(volume_lock), payload::group(pod));
    let work = move || {
        let stands = volume_lock.lock();
        if !*stands {
            return Ok((HashMap::new(), 0));
        }
        let (mut paths, mut changed, mut failed) = (HashMap::new(), 0, None);
        let mut new: Vec<PathBuf> = Vec::new();
        for Making { name, path, files } in volumes {
            if !path.exists() {
                new.push(path.clone());
            }
            match places.write(&path, &files, group, now) {
                Ok(is_new) => changed += usize::from(is_new),
                Err(error) => {
                    let message =
                        format!("cannot write volume {name:?}: {}: {error}", path.display());
                    failed = failed.or(Some(ReferenceProblem::Unreadable { message, after: None }));
                }
            }
            paths.insert(name, path);
        }
        let Some(problem) = failed else { return Ok((paths, changed)) };
        new.iter().for_each(|volume| places.take_back(volume));
        Err(problem)
    };
    let done = PodFiles::Make.work(work).await;
    done.unwrap_or_else(|error| {
        let message = format!("cannot write volumes: {error}");
        Err(ReferenceProblem::Unreadable { message, after: None })
    })
}

/// The event about a volume that cannot be made.
pub(super) fn to_event(pod: &Pod, volume: &str, problem: &ReferenceProblem) -> EventDraft {
    let why = match problem {
        ReferenceProblem::Missing { message, .. }
        | ReferenceProblem::Unreadable { message, .. } => message.clone(),
        ReferenceProblem::Invalid { field, why } | ReferenceProblem::Unfit { field, why } => {
            format!("{field}: {why}")
        }
    };
    let message = format!("MountVolume.SetUp failed for volume {volume:?} : {why}");
    EventDraft::warning(Subject::pod(pod.pod_ref()), "FailedMount", message)
}
