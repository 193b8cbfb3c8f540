//! Authenticates and authorizes clients by asking the API server.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PostParams};
use winddown_shared::{ReviewError, Reviews};

use crate::CertificateFacts;

/// Asks the API server. A node's own certificate is allowed to; a ServiceAccount needs the right to
/// create `tokenreviews` and `subjectaccessreviews`.
#[derive(Clone)]
pub struct ApiReviews(kube::Client);

impl ApiReviews {
    /// Creates it without contacting the API server.
    pub fn new(client: kube::Client) -> Self {
        Self(client)
    }
}

impl Reviews for ApiReviews {
    fn certificate(&self, der: &[u8]) -> Option<UserInfo> {
        let facts = CertificateFacts::of_der(der)?;
        let name = facts.common_name.filter(|name| !name.is_empty())?;
        Some(UserInfo {
            username: Some(name),
            groups: Some(facts.organizations),
            ..UserInfo::default()
        })
    }

    fn token(&self, token: String) -> BoxFuture<'_, Result<Option<UserInfo>, ReviewError>> {
        async move {
            let api: Api<TokenReview> = Api::all(self.0.clone());
            let spec = TokenReviewSpec { token, ..TokenReviewSpec::default() };
            let review = TokenReview { metadata: ObjectMeta::default(), spec, status: None };
            let answer = api.create(&PostParams::default(), &review).await.map_err(unsaid)?;
            let status = answer.status.unwrap_or_default();
            let user = status.user.filter(|_| status.authenticated == Some(true));
            Ok(user.filter(|user| user.username.as_ref().is_some_and(|name| !name.is_empty())))
        }
        .boxed()
    }

    fn access(&self, asked: SubjectAccessReviewSpec) -> BoxFuture<'_, Result<bool, ReviewError>> {
        async move {
            let api: Api<SubjectAccessReview> = Api::all(self.0.clone());
            let review =
                SubjectAccessReview { metadata: ObjectMeta::default(), spec: asked, status: None };
            let answer = api.create(&PostParams::default(), &review).await.map_err(unsaid)?;
            let status = answer.status.unwrap_or_default();
            Ok(status.allowed && status.denied != Some(true))
        }
        .boxed()
    }
}

fn unsaid(error: kube::Error) -> ReviewError {
    ReviewError(Box::new(error))
}
