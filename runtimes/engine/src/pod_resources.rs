//! Pod-level resources.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use winddown_shared::ResourceName;

/// Lists the fields of `spec.resources`, relative to `spec`, that no runtime honours, each with what to write instead.
///
/// Requests are honoured: they decide whether the pod fits, which QoS class it has and which pod is evicted first.
/// Pod-level limits would have to be set on a cgroup that the runtimes do not create.
pub(crate) fn unsupported(
    whole: Option<&ResourceRequirements>,
) -> impl Iterator<Item = (String, &'static str)> {
    let limits = whole.and_then(|whole| whole.limits.as_ref()).into_iter().flatten();
    let limits = limits.map(|(name, _)| {
        let why = "limits of a whole pod are not applied: set those of its containers";
        (format!("resources.limits.{name}"), why)
    });
    let requests = whole.and_then(|whole| whole.requests.as_ref()).into_iter().flatten();
    let requests = requests.filter(is_of_containers).map(|(name, _)| {
        let why = "is not counted for a whole pod: set the requests of its containers";
        (format!("resources.requests.{name}"), why)
    });
    let claims = whole.and_then(|whole| whole.claims.as_ref()).is_some_and(|all| !all.is_empty());
    let claims = claims.then(|| ("resources.claims".to_owned(), "devices are not allocated"));
    limits.chain(requests).chain(claims)
}

type Entry<'a> = <&'a BTreeMap<String, Quantity> as IntoIterator>::Item;

fn is_of_containers((name, _): &Entry<'_>) -> bool {
    !ResourceName::from(name.as_str()).is_pod_level()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_of_a_whole_pod_are_honoured_and_all_else_is_named() {
        let fields = |whole: serde_json::Value| -> Vec<String> {
            let whole: ResourceRequirements = serde_json::from_value(whole).unwrap();
            unsupported(Some(&whole)).map(|(field, _)| field).collect()
        };
        let honoured = json!({"requests": {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "2Mi"}});
        assert!(fields(honoured).is_empty());
        assert!(fields(json!({})).is_empty() && unsupported(None).next().is_none());
        let refused = json!({
            "limits": {"cpu": "1", "memory": "1Gi"},
            "requests": {"cpu": "1", "ephemeral-storage": "1Gi", "example.com/card": "1"},
            "claims": [{"name": "card"}],
        });
        assert_eq!(
            fields(refused),
            [
                "resources.limits.cpu",
                "resources.limits.memory",
                "resources.requests.ephemeral-storage",
                "resources.requests.example.com/card",
                "resources.claims",
            ]
        );
    }
}
