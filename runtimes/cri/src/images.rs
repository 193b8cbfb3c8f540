//! The node's images, for the status of its Node object.

use k8s_openapi::api::core::v1::ContainerImage;
use winddown_shared::RuntimeError;

use super::{CriRuntime, api};

/// Maximum number of images that are reported, the kubelet's `nodeStatusMaxImages`.
const MAX_REPORTED_IMAGES: usize = 50;
/// Maximum number of names per image.
const MAX_NAMES_PER_IMAGE: usize = 5;

impl CriRuntime {
    /// The largest images on the node: the scheduler prefers nodes that have a pod's image. Cancel-safe.
    ///
    /// # Errors
    /// The runtime did not answer, or refused.
    pub async fn images(&self) -> Result<Vec<ContainerImage>, RuntimeError> {
        let listed = self.context.client.list_images(api::ListImagesRequest {}).await;
        Ok(largest(listed.map_err(|error| error.during("listing images"))?.images))
    }

    /// Resolves when an image was pulled or removed since the last call. Supports one caller at a time. Cancel-safe.
    pub async fn images_changed(&self) {
        self.context.images.changed.notified().await;
    }
}

/// The largest images first, each with its digests before its tags.
fn largest(mut images: Vec<api::Image>) -> Vec<ContainerImage> {
    images.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.id.cmp(&b.id)));
    let told = images.into_iter().take(MAX_REPORTED_IMAGES).map(|image| ContainerImage {
        names: Some(
            image
                .repo_digests
                .into_iter()
                .chain(image.repo_tags)
                .take(MAX_NAMES_PER_IMAGE)
                .collect(),
        ),
        size_bytes: i64::try_from(image.size).ok(),
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_images_are_told_with_at_most_five_names_digests_first() {
        let image = |n: u64| api::Image {
            id: format!("sha256:{n}"),
            repo_digests: vec![format!("app@sha256:{n}")],
            repo_tags: (0..n).map(|tag| format!("app:{tag}")).collect(),
            size: 100 + n,
            ..api::Image::default()
        };
        let told = largest((0..60).map(image).collect());
        assert_eq!((told.len(), told[0].size_bytes), (50, Some(159)));
        let names = ["app@sha256:59", "app:0", "app:1", "app:2", "app:3"];
        assert_eq!(told[0].names.as_deref().unwrap(), names);
        assert_eq!(told[49].names.as_ref().unwrap()[0], "app@sha256:10");
    }
}
