//! The stand-in's images: whatever is asked for is there.

use std::collections::HashMap;

use tonic::Request;

use super::{Answer, Crio, answer};
use crate::api::image_service_server::ImageService;
use crate::api::*;

#[tonic::async_trait]
impl ImageService for Crio {
    async fn list_images(&self, _: Request<ListImagesRequest>) -> Answer<ListImagesResponse> {
        answer(ListImagesResponse::default())
    }

    async fn image_status(
        &self,
        request: Request<ImageStatusRequest>,
    ) -> Answer<ImageStatusResponse> {
        let id = request.into_inner().image.unwrap_or_default().image;
        let image = Image { id, uid: Some(Int64Value { value: 0 }), ..Image::default() };
        // Its stop signal is the usual one.
        let info = ("info".to_owned(), r#"{"imageSpec": {"config": {}}}"#.to_owned());
        answer(ImageStatusResponse { image: Some(image), info: HashMap::from([info]) })
    }

    async fn pull_image(&self, request: Request<PullImageRequest>) -> Answer<PullImageResponse> {
        let image_ref = request.into_inner().image.unwrap_or_default().image;
        answer(PullImageResponse { image_ref })
    }

    async fn remove_image(&self, _: Request<RemoveImageRequest>) -> Answer<RemoveImageResponse> {
        answer(RemoveImageResponse {})
    }

    async fn image_fs_info(&self, _: Request<ImageFsInfoRequest>) -> Answer<ImageFsInfoResponse> {
        answer(ImageFsInfoResponse::default())
    }
}
