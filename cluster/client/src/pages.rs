//! A list that may be long, page by page.

use std::error::Error;
use std::fmt::Debug;
use std::iter::successors;

use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;

use crate::bounded_body::TooMuch;

/// The most objects of one answer, as in other clients of Kubernetes: more of them are a load of their own for the server.
pub(crate) const PAGE: u32 = 500;

/// How many objects to ask for where the answer with `page` of them was too long. Whoever may create pods can make them
/// as long as etcd takes them; one by itself is never too long.
pub(crate) fn smaller(page: u32, error: &kube::Error) -> Option<u32> {
    let mut causes = successors(Some(error as &(dyn Error + 'static)), |&error| error.source());
    let is_too_long = causes.any(|cause| matches!(cause.downcast_ref(), Some(TooMuch::Answer)));
    (is_too_long && page > 1).then_some((page / 8).max(1))
}

/// Lists all objects that `wanted` selects. All pages show the same version of them.
///
/// # Errors
/// A page was refused, or there was no answer. Or the pages took so long that the server has forgotten their version
/// ([`Expired`](crate::refusal::Refusal::Expired)).
pub async fn list_in_pages<K>(api: &Api<K>, wanted: ListParams) -> Result<Vec<K>, kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let (mut all, mut wanted, mut most) = (Vec::new(), wanted, PAGE);
    loop {
        wanted.limit = Some(most);
        let page = match api.list(&wanted).await {
            Ok(page) => page,
            Err(error) => {
                most = smaller(most, &error).ok_or(error)?;
                continue;
            }
        };
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            None => return Ok(all),
            Some(token) => wanted.continue_token = Some(token),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;
    use winddown_apiserver::ApiServer;

    use super::*;

    #[tokio::test]
    async fn a_long_list_is_whole_and_comes_in_pages() {
        let server = ApiServer::in_memory().unwrap();
        let maps =
            Api::<ConfigMap>::default_namespaced(kube::Client::new(server.service(), "default"));
        for number in 0..2 * PAGE + 1 {
            let name = format!("map-{number:04}");
            let map = json!({"metadata": {"name": name}});
            maps.create(&kube::api::PostParams::default(), &serde_json::from_value(map).unwrap())
                .await
                .unwrap();
        }
        let listed = list_in_pages(&maps, ListParams::default()).await.unwrap();
        assert_eq!(listed.len(), 1001);
        assert_eq!(server.count("list", "configmaps"), 3);
    }
}
