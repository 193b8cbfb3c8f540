//! The fake's images and image file system.

use std::collections::HashMap;

use tonic::{Request, Status};

use super::service::{Answer, Service};
use crate::api::image_service_server::ImageService;
use crate::api::*;

/// The reported size of an image, in bytes.
const IMAGE_SIZE: u64 = 1_000_000;

fn image(name: &str) -> Image {
    Image {
        id: format!("sha256:{name}"),
        repo_tags: vec![name.to_owned()],
        size: IMAGE_SIZE,
        uid: Some(Int64Value { value: 0 }),
        pinned: name.contains("pause"),
        ..Image::default()
    }
}

#[tonic::async_trait]
impl ImageService for Service {
    async fn list_images(&self, _: Request<ListImagesRequest>) -> Answer<ListImagesResponse> {
        let deed = async {
            let images = self.world().images().map(|name| image(name)).collect();
            Ok(ListImagesResponse { images })
        };
        self.answer("ListImages", "", deed).await
    }

    async fn image_status(
        &self,
        request: Request<ImageStatusRequest>,
    ) -> Answer<ImageStatusResponse> {
        let name = request.into_inner().image.unwrap_or_default().image;
        let deed = async {
            let found = self.world().has_image(&name).then(|| Image {
                id: name.clone(),
                uid: Some(Int64Value { value: 0 }),
                ..Image::default()
            });
            Ok(ImageStatusResponse { image: found, info: HashMap::default() })
        };
        self.answer("ImageStatus", &name, deed).await
    }

    async fn pull_image(&self, request: Request<PullImageRequest>) -> Answer<PullImageResponse> {
        let name = request.into_inner().image.unwrap_or_default().image;
        let deed = async {
            if !name.starts_with("registry/") {
                return Err(Status::not_found(format!("{name}: not found")));
            }
            self.world().set_image(&name, true);
            Ok(PullImageResponse { image_ref: name.clone() })
        };
        self.answer("PullImage", &name, deed).await
    }

    async fn remove_image(
        &self,
        request: Request<RemoveImageRequest>,
    ) -> Answer<RemoveImageResponse> {
        let id = request.into_inner().image.unwrap_or_default().image;
        let name = id.trim_start_matches("sha256:");
        let deed = async {
            self.world().set_image(name, false);
            Ok(RemoveImageResponse {})
        };
        self.answer("RemoveImage", name, deed).await
    }

    async fn image_fs_info(&self, _: Request<ImageFsInfoRequest>) -> Answer<ImageFsInfoResponse> {
        let deed = async {
            let fs_id = Some(FilesystemIdentifier { mountpoint: "/".to_owned() });
            let images = FilesystemUsage { fs_id, ..FilesystemUsage::default() };
            Ok(ImageFsInfoResponse {
                image_filesystems: vec![images],
                container_filesystems: Vec::new(),
            })
        };
        self.answer("ImageFsInfo", "", deed).await
    }
}
