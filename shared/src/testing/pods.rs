//! Pods for tests.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::Pod;

/// Creates an ordinary pod in the namespace `default`, with one container, `main`, and a grace period of 30 s. Its name
/// is its UID.
pub fn pod(uid: &str) -> Pod {
    pod_with(uid, uid, |_| {})
}

/// Creates such a pod with its own name and a change to the object.
///
/// # Panics
/// The change removes the pod's name, namespace or UID.
#[allow(clippy::expect_used, reason = "a test that asks for a pod without a name is wrong")]
pub fn pod_with(uid: &str, name: &str, change: impl FnOnce(&mut api::Pod)) -> Pod {
    let mut object = api::Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("default".to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(api::PodSpec {
            containers: vec![api::Container { name: "main".into(), ..api::Container::default() }],
            termination_grace_period_seconds: Some(30),
            ..api::PodSpec::default()
        }),
        status: None,
    };
    change(&mut object);
    Pod::new(object).expect("a pod has a name, a namespace and a UID")
}

/// Creates a static pod.
pub fn static_pod(uid: &str, name: &str) -> Pod {
    pod_with(uid, name, |pod| {
        let source = (crate::CONFIG_SOURCE_ANNOTATION.to_owned(), "file".to_owned());
        pod.metadata.annotations = Some([source].into());
    })
}
