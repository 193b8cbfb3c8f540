//! The seam to the one who knows the cluster's users and their rights.

use futures_util::future::BoxFuture;
use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;

/// Knows who a client is and what it may do, as the API server does.
///
/// Calls may be repeated and dropped; each bounds its own time. Nothing is kept: who asks often keeps answers.
pub trait Reviews: Send + Sync + 'static {
    /// The user of a client certificate (DER) that was verified already; none where it names none.
    fn certificate(&self, der: &[u8]) -> Option<UserInfo>;

    /// The user of a bearer token; none where the API server does not take it.
    ///
    /// # Errors
    /// The API server did not say.
    fn token(&self, token: String) -> BoxFuture<'_, Result<Option<UserInfo>, ReviewError>>;

    /// Whether this may be done.
    ///
    /// # Errors
    /// The API server did not say.
    fn access(&self, asked: SubjectAccessReviewSpec) -> BoxFuture<'_, Result<bool, ReviewError>>;
}

/// The API server did not say.
#[derive(Debug, thiserror::Error)]
#[error("the API server cannot be asked who may do this")]
pub struct ReviewError(#[source] pub Box<dyn std::error::Error + Send + Sync>);
