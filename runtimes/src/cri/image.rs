//! Finds or pulls a container's image.

use k8s_openapi::api::core::v1 as k8s;
use winddown_shared::RuntimeError;

use super::client::CallError;
use super::{Context, api, health};

/// Why there is no image, as a status says it.
#[derive(Debug)]
pub(super) enum ImageError {
    /// A reason for the container's status, and a message.
    Trouble(&'static str, String),
    /// The runtime did not answer.
    Runtime(RuntimeError),
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pull {
    Always,
    IfNotPresent,
    Never,
}

/// The image of a container, pulled if its policy says so.
pub(super) async fn ensure(
    context: &Context,
    container: &k8s::Container,
    sandbox: &api::PodSandboxConfig,
) -> Result<api::Image, ImageError> {
    let name = container.image.as_deref().unwrap_or_default();
    let policy = policy(container);
    if policy != Pull::Always {
        if let Some(image) = find(context, name).await? {
            return Ok(image);
        }
        if policy == Pull::Never {
            let message = format!(
                "image {name} is not on this node and imagePullPolicy is Never: import it, or write \
                 `imagePullPolicy: IfNotPresent`"
            );
            return Err(ImageError::Trouble("ErrImageNeverPull", message));
        }
    }
    pull(context, name, sandbox).await?;
    find(context, name).await?.ok_or_else(|| {
        let message = format!("image {name} was pulled and the runtime does not find it");
        ImageError::Trouble("ErrImagePull", message)
    })
}

async fn pull(
    context: &Context,
    name: &str,
    sandbox: &api::PodSandboxConfig,
) -> Result<(), ImageError> {
    // Never closed.
    let _turn = context.pulls.acquire().await;
    let request =
        api::PullImageRequest { image: Some(spec(name)), sandbox_config: Some(sandbox.clone()) };
    match context.client.pull_image(request).await {
        Ok(_) => Ok(()),
        Err(error @ CallError::Refused { .. }) => {
            let message = format!("cannot pull image {name}: {error}");
            Err(ImageError::Trouble("ErrImagePull", message))
        }
        Err(error) => Err(unanswered(context, error, format!("pulling image {name}"))),
    }
}

async fn find(context: &Context, name: &str) -> Result<Option<api::Image>, ImageError> {
    let request = api::ImageStatusRequest { image: Some(spec(name)), verbose: false };
    match context.client.image_status(request).await {
        Ok(answer) => Ok(answer.image),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error @ CallError::Refused { .. }) => {
            let message = format!("cannot look for image {name}: {error}");
            Err(ImageError::Trouble("ImageInspectError", message))
        }
        Err(error) => Err(unanswered(context, error, format!("looking for image {name}"))),
    }
}

fn unanswered(context: &Context, error: CallError, what: String) -> ImageError {
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

/// Whether a name may mean another image tomorrow: no tag, or `latest`, and no digest.
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
