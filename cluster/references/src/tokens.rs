//! Service account tokens, bound to their pod.

use std::time::Duration;

use k8s_openapi::api::authentication::v1 as auth;
use k8s_openapi::api::core::v1 as api;
use kube::api::PostParams;
use kube::{Api, Client};
use winddown_shared::Pod;

use super::ResolverConfig;
use super::object::Hidden;
use super::payload::TokenKey;
use super::problem::ReferenceProblem;
use super::reader::bounded;

#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) value: Hidden,
    /// The time since boot at which 80 % of its life is over, or a day.
    pub(crate) renew_at: Duration,
}

/// The longest time after which a token is renewed, however long it lives.
const MAX_RENEWAL_DELAY: Duration = Duration::from_secs(24 * 3600);

/// Requests a token of the pod's service account that is valid for as long as the pod exists.
///
/// # Errors
/// When the API server does not give one.
pub(crate) async fn request(
    client: &Client,
    pod: &Pod,
    key: &TokenKey,
    config: &ResolverConfig,
) -> Result<Token, ReferenceProblem> {
    let account = pod.spec.as_ref().and_then(|s| s.service_account_name.as_deref());
    let account = account.filter(|name| !name.is_empty()).unwrap_or("default");
    let audiences = if key.audience.is_empty() { Vec::new() } else { vec![key.audience.clone()] };
    let request = auth::TokenRequest {
        spec: Some(auth::TokenRequestSpec {
            audiences: Some(audiences),
            expiration_seconds: Some(key.seconds),
            bound_object_ref: Some(auth::BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.name().to_string()),
                uid: Some(pod.uid().to_string()),
            }),
            ..auth::TokenRequestSpec::default()
        }),
        ..auth::TokenRequest::default()
    };
    let accounts = Api::<api::ServiceAccount>::namespaced(client.clone(), pod.namespace());
    let asked_at = config.boot_clock.now();
    let params = PostParams::default();
    let made =
        bounded(config.request, accounts.create_token_request(account, &params, &request)).await;
    let failed = |error: &str, after| ReferenceProblem::Unreadable {
        message: format!("failed to fetch token of service account {account:?}: {error}"),
        after,
    };
    let made = made.map_err(|unread| failed(&unread.error, unread.after))?;
    let lives = made.spec.and_then(|spec| spec.expiration_seconds).unwrap_or(key.seconds);
    let token = made.status.and_then(|status| status.token).unwrap_or_default();
    if token.is_empty() {
        return Err(failed("the answer has none", None));
    }
    Ok(Token {
        value: Hidden::from(token.into_bytes()),
        renew_at: asked_at + renew_after(Duration::from_secs(lives.max(0).unsigned_abs())),
    })
}

/// How long a token with this lifetime is used. Only the length of its life matters, because the
/// node's clock and the server's may differ.
fn renew_after(lives: Duration) -> Duration {
    (lives.max(Duration::from_secs(60)) * 4 / 5).min(MAX_RENEWAL_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_at_four_fifths_of_its_life_and_after_a_day_at_the_latest() {
        for (lives, after) in [(3600, 2880), (600, 480), (3607, 2885), (0, 48), (864_000, 86_400)] {
            let renewed = renew_after(Duration::from_secs(lives));
            assert_eq!(renewed.as_secs(), after, "{lives} s");
        }
    }
}
