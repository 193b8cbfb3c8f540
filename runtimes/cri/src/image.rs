//! Finds or pulls a container's image.

use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use tokio::time::Instant;
use winddown_engine::pod::{IMAGE_PULL, REGISTRY_UNAVAILABLE, SIGNATURE_INVALID};
use winddown_shared::{PodEventKind, RuntimeError};

use super::client::CallError;
use super::direct::DEFAULT_SIGNAL;
use super::pod::PodEntry;
use super::{CriContext, api, health};

mod name;

/// Why there is no image, as shown in the container's status.
#[derive(Debug)]
pub(super) enum ImageError {
    /// A reason and a message for the container's status.
    Trouble(&'static str, String),
    /// The runtime did not answer.
    Runtime(RuntimeError),
}

/// An image that is present on the node.
pub(super) struct FoundImage {
    pub(super) image: api::Image,
    /// The image's stop signal, if the runtime reports the image's configuration.
    pub(super) stop_signal: Option<String>,
}

/// The image pull policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pull {
    Always,
    IfNotPresent,
    Never,
}

/// Finds the image of a container, or pulls it according to its policy. Records events of the container.
pub(super) async fn ensure(
    context: &CriContext,
    entry: &PodEntry,
    container: &k8s::Container,
    sandbox: &api::PodSandboxConfig,
) -> Result<FoundImage, ImageError> {
    let name = container.image.as_deref().unwrap_or_default();
    let image = || name.to_owned();
    let tell = |what| context.pods.record_event(entry, Some(&container.name), what);
    if let Some(why) = name::fault(name) {
        let error = format!("couldn't parse image name {name:?}: {why}");
        tell(PodEventKind::InspectFailed { image: image(), error: error.clone() });
        let message = format!("Failed to apply default image tag {name:?}: {error}");
        return Err(ImageError::Trouble("InvalidImageName", message));
    }
    let policy = policy(container);
    if policy != Pull::Always {
        let found = find(context, name).await;
        if let Err(ImageError::Trouble(_, error)) = &found {
            tell(PodEventKind::InspectFailed { image: image(), error: error.clone() });
        }
        if let Some(found) = found? {
            tell(PodEventKind::ImagePresent { image: image() });
            return Ok(found);
        }
        if policy == Pull::Never {
            tell(PodEventKind::NeverPulled { image: image() });
            let message =
                format!("Container image {name:?} is not present with pull policy of Never");
            return Err(ImageError::Trouble("ErrImageNeverPull", message));
        }
    }
    let secrets = pull_secrets(entry);
    if !secrets.is_empty() {
        context.pods.record_event(entry, None, PodEventKind::PullSecretsUnused(secrets));
    }
    tell(PodEventKind::Pulling { image: image() });
    let began = Instant::now();
    let pulled = pull(context, name, sandbox).await;
    if let Err(ImageError::Trouble(_, error)) = &pulled {
        tell(PodEventKind::PullFailed { image: image(), error: error.clone() });
    }
    let took = (pulled.map_err(|error| named(name, error))?, began.elapsed());
    let found = find(context, name).await?.ok_or_else(|| {
        let message = format!("image {name} was pulled and the runtime does not find it");
        ImageError::Trouble(IMAGE_PULL, message)
    })?;
    tell(PodEventKind::Pulled { image: image(), took, size: found.image.size });
    Ok(found)
}

/// The pod's pull secrets, which are not read: the runtime has credentials of its own, or pulls without.
fn pull_secrets(entry: &PodEntry) -> Vec<String> {
    let state = entry.lock();
    let spec = state.pod.as_ref().and_then(|pod| pod.spec.as_ref());
    let secrets = spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    secrets.map(|secret| secret.name.clone()).collect()
}

/// Pulls the image. Returns how long that took, without the wait for a slot.
async fn pull(
    context: &CriContext,
    name: &str,
    sandbox: &api::PodSandboxConfig,
) -> Result<Duration, ImageError> {
    // The wait is unlimited: more pulls at once would only slow each down. The semaphore is never closed.
    let _turn = context.images.pulls.acquire().await;
    let began = Instant::now();
    let request =
        api::PullImageRequest { image: Some(spec(name)), sandbox_config: Some(sandbox.clone()) };
    match context.client.pull_image(request).await {
        Ok(()) => {
            context.images.ages.note_pull(name);
            context.images.changed.notify_one();
            Ok(began.elapsed())
        }
        Err(error @ CallError::Refused { .. }) => {
            Err(ImageError::Trouble(IMAGE_PULL, error.in_words_of_pull()))
        }
        Err(error) => Err(unanswered(context, error, format!("pulling image {name}"))),
    }
}

/// What CRI-O says of registries and signatures, as a reason of its own.
fn named(image: &str, error: ImageError) -> ImageError {
    let ImageError::Trouble(reason, said) = error else { return error };
    let known = [
        (REGISTRY_UNAVAILABLE, "the registry is unavailable"),
        (SIGNATURE_INVALID, "the signature validation failed"),
    ];
    let found = known.into_iter().find_map(|known| Some((known, said.strip_prefix(known.0)?)));
    match found {
        Some(((reason, why), more)) => {
            let message = format!("image pull failed for {image} because {why}{more}");
            ImageError::Trouble(reason, message)
        }
        None => ImageError::Trouble(reason, said),
    }
}

async fn find(context: &CriContext, name: &str) -> Result<Option<FoundImage>, ImageError> {
    let request = api::ImageStatusRequest { image: Some(spec(name)), verbose: true };
    match context.client.image_status(request).await {
        Ok(answer) => {
            let stop_signal = answer.info.get("info").and_then(|json| stop_signal(json));
            Ok(answer.image.map(|image| FoundImage { image, stop_signal }))
        }
        Err(error) if error.is_not_found() => Ok(None),
        Err(error @ CallError::Refused { .. }) => {
            Err(ImageError::Trouble("ImageInspectError", error.in_grpc_words()))
        }
        Err(error) => Err(unanswered(context, error, format!("looking for image {name}"))),
    }
}

/// The stop signal in the verbose answer of containerd and CRI-O, which contains the image's
/// configuration.
pub(super) fn stop_signal(json: &str) -> Option<String> {
    let info: serde_json::Value = serde_json::from_str(json).ok()?;
    let config = info.get("imageSpec")?.get("config")?;
    let named = config.get("StopSignal").and_then(serde_json::Value::as_str);
    Some(named.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_SIGNAL).to_owned())
}

fn unanswered(context: &CriContext, error: CallError, what: String) -> ImageError {
    health::note_unreachable(context, &error);
    ImageError::Runtime(error.during(what))
}

fn spec(name: &str) -> api::ImageSpec {
    api::ImageSpec { image: name.to_owned(), ..api::ImageSpec::default() }
}

fn policy(container: &k8s::Container) -> Pull {
    match container.image_pull_policy.as_deref() {
        Some("Always") => Pull::Always,
        Some("Never") => Pull::Never,
        Some("IfNotPresent") => Pull::IfNotPresent,
        _ if is_moving(container.image.as_deref().unwrap_or_default()) => Pull::Always,
        _ => Pull::IfNotPresent,
    }
}

/// Whether a name may refer to another image tomorrow: it has no digest, and no tag or the tag `latest`.
fn is_moving(name: &str) -> bool {
    if name.contains('@') {
        return false;
    }
    // A colon before the last slash is a registry's port.
    let last = name.rsplit('/').next().unwrap_or(name);
    match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stop_signal_is_the_images_or_the_usual_one_or_not_known() {
        let of = |config: &str| stop_signal(&format!(r#"{{"imageSpec":{{"config":{config}}}}}"#));
        assert_eq!(of(r#"{"StopSignal":"SIGQUIT"}"#).as_deref(), Some("SIGQUIT"));
        assert_eq!(of("{}").as_deref(), Some("SIGTERM"));
        assert_eq!(stop_signal("{}"), None);
        assert_eq!(stop_signal("?"), None);
    }

    #[test]
    fn the_pull_policy_follows_the_tag_unless_it_is_given() {
        for (image, given, expected) in [
            ("app:1.2", None, Pull::IfNotPresent),
            ("app", None, Pull::Always),
            ("app:latest", None, Pull::Always),
            ("registry:5000/app", None, Pull::Always),
            ("registry:5000/app:1", None, Pull::IfNotPresent),
            ("app@sha256:0123", None, Pull::IfNotPresent),
            ("app:latest", Some("Never"), Pull::Never),
            ("app:1", Some("Always"), Pull::Always),
            ("app", Some("IfNotPresent"), Pull::IfNotPresent),
        ] {
            let container = k8s::Container {
                image: Some(image.to_owned()),
                image_pull_policy: given.map(str::to_owned),
                ..k8s::Container::default()
            };
            assert_eq!(policy(&container), expected, "{image} {given:?}");
        }
    }
}
