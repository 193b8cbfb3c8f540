//! Authenticates clients by certificate or bearer token, and asks the API server whether they are authorized.

use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use winddown_shared::{ReviewError, Reviews};

use crate::cache::Cache;
use crate::route::Right;

/// How long answers of the API server are cached; the kubelet's defaults.
const TOKEN_HOLDS: Duration = Duration::from_secs(120);
const ALLOWED_HOLDS: Duration = Duration::from_secs(300);
const DENIED_HOLDS: Duration = Duration::from_secs(30);

/// The most cached answers of each kind.
const MAX_CACHED_ANSWERS: usize = 512;
/// The most bytes of a token; longer ones are refused without asking the API server.
const LONGEST_TOKEN: usize = 16 * 1024;
/// The most concurrent requests to the API server, because clients with forged tokens can cause many.
const MAX_CONCURRENT_QUESTIONS: usize = 16;

/// The group of every authenticated user.
const AUTHENTICATED: &str = "system:authenticated";

/// Authenticates and authorizes clients.
pub(crate) struct Gatekeeper {
    reviews: Arc<dyn Reviews>,
    node: String,
    known: Cache<[u8; 32], UserInfo>,
    /// Rejected tokens. They are kept apart so that they cannot evict known users.
    unknown: Cache<[u8; 32], ()>,
    judged: Cache<[u8; 32], bool>,
    questions: Semaphore,
}

#[derive(Debug)]
pub(crate) enum RefusedClient {
    /// The client could not be authenticated.
    Unauthorized,
    /// The client is not authorized for this request.
    Forbidden { user: String, verb: &'static str, subresources: &'static [&'static str] },
    /// The API server cannot be asked.
    Unjudged(ReviewError),
}

impl Gatekeeper {
    pub(crate) fn new(reviews: Arc<dyn Reviews>, node: String) -> Self {
        Self {
            reviews,
            node,
            known: Cache::new(MAX_CACHED_ANSWERS),
            unknown: Cache::new(MAX_CACHED_ANSWERS),
            judged: Cache::new(MAX_CACHED_ANSWERS),
            questions: Semaphore::new(MAX_CONCURRENT_QUESTIONS),
        }
    }

    /// Checks that the client may make its request. `certificate` is the verified one of its connection.
    pub(crate) async fn admit(
        &self,
        certificate: Option<&[u8]>,
        headers: &HeaderMap,
        right: &Right,
    ) -> Result<(), RefusedClient> {
        let user = match certificate.and_then(|der| self.reviews.certificate(der)) {
            Some(user) => user,
            None => self.of_token(headers).await?,
        };
        let user = authenticated(user);
        for subresource in right.subresources {
            if self.may(&user, right.verb, subresource).await.map_err(RefusedClient::Unjudged)? {
                return Ok(());
            }
        }
        let Right { verb, subresources } = *right;
        Err(RefusedClient::Forbidden {
            user: user.username.unwrap_or_default(),
            verb,
            subresources,
        })
    }

    async fn of_token(&self, headers: &HeaderMap) -> Result<UserInfo, RefusedClient> {
        let token = bearer(headers).ok_or(RefusedClient::Unauthorized)?;
        let key = Sha256::digest(token).into();
        if let Some(user) = self.known.get(&key) {
            return Ok(user);
        }
        if self.unknown.get(&key).is_some() {
            return Err(RefusedClient::Unauthorized);
        }
        let _turn = self.questions.acquire().await;
        match self.reviews.token(token.to_owned()).await.map_err(RefusedClient::Unjudged)? {
            Some(user) => {
                self.known.put(key, user.clone(), TOKEN_HOLDS);
                Ok(user)
            }
            None => {
                self.unknown.put(key, (), TOKEN_HOLDS);
                Err(RefusedClient::Unauthorized)
            }
        }
    }

    async fn may(
        &self,
        user: &UserInfo,
        verb: &str,
        subresource: &str,
    ) -> Result<bool, ReviewError> {
        let asked = SubjectAccessReviewSpec {
            user: user.username.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
            resource_attributes: Some(ResourceAttributes {
                version: Some("v1".to_owned()),
                resource: Some("nodes".to_owned()),
                subresource: Some(subresource.to_owned()),
                name: Some(self.node.clone()),
                verb: Some(verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        };
        let text = serde_json::to_vec(&asked).map_err(|error| ReviewError(error.into()))?;
        let key = Sha256::digest(text).into();
        if let Some(allowed) = self.judged.get(&key) {
            return Ok(allowed);
        }
        let _turn = self.questions.acquire().await;
        let allowed = self.reviews.access(asked).await?;
        self.judged.put(key, allowed, if allowed { ALLOWED_HOLDS } else { DENIED_HOLDS });
        Ok(allowed)
    }

    #[cfg(test)]
    pub(crate) fn kept(&self) -> [usize; 3] {
        [self.known.len(), self.unknown.len(), self.judged.len()]
    }
}

fn authenticated(mut user: UserInfo) -> UserInfo {
    let groups = user.groups.get_or_insert_default();
    if !groups.iter().any(|group| group == AUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    user
}

/// The token of `Authorization: Bearer`; `None` if the header occurs more than once.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (Some(one), None) = (all.next(), all.next()) else { return None };
    let (scheme, token) = one.to_str().ok()?.split_once(' ')?;
    let token = token.trim_matches(' ');
    let is_token = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty();
    (is_token && token.len() <= LONGEST_TOKEN).then_some(token)
}
