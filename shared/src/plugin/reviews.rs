//! The interface to whatever knows the cluster's users and their rights.

use futures_util::future::BoxFuture;
use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;

/// Authenticates and authorizes clients, as the API server does.
///
/// Calls may be repeated and dropped; each bounds its own time. Nothing is cached: a frequent caller caches answers.
pub trait Reviews: Send + Sync + 'static {
    /// The user of a client certificate (DER) that was already verified; `None` if it names none.
    fn certificate(&self, der: &[u8]) -> Option<UserInfo>;

    /// The user of a bearer token; `None` if the API server does not accept it.
    ///
    /// # Errors
    /// The API server did not answer.
    fn token(&self, token: String) -> BoxFuture<'_, Result<Option<UserInfo>, ReviewError>>;

    /// Whether the access is allowed.
    ///
    /// # Errors
    /// The API server did not answer.
    fn access(&self, asked: SubjectAccessReviewSpec) -> BoxFuture<'_, Result<bool, ReviewError>>;
}

/// The API server did not answer.
#[derive(Debug, thiserror::Error)]
#[error("cannot ask the API server who may do this")]
pub struct ReviewError(#[source] pub Box<dyn std::error::Error + Send + Sync>);
