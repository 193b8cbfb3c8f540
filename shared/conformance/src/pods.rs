//! Pods that are ready to be run.

use winddown_shared::Pod;
use winddown_shared::k8s_openapi::api::core::v1::{Container, PodSpec};
use winddown_shared::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::PodBehaviour;

/// The annotation with the behaviour, for a runtime that runs no commands.
const BEHAVIOUR: &str = "conformance.winddown.dev/behaviour";

impl PodBehaviour {
    /// A pod in `default` whose container `main` behaves so wherever `/bin/sh` and `sleep` are; on a runtime with images,
    /// in busybox. On the host's network, so that nothing of the node is needed.
    #[allow(clippy::expect_used, reason = "name, namespace and UID are set")]
    pub fn pod(self, name: &str) -> Pod {
        let container = Container {
            name: "main".to_owned(),
            image: Some("docker.io/library/busybox:stable".to_owned()),
            command: Some(vec!["/bin/sh".to_owned(), "-c".to_owned(), self.script()]),
            ..Container::default()
        };
        let spec = PodSpec {
            containers: vec![container],
            restart_policy: Some(self.restart_policy().to_owned()),
            host_network: Some(true),
            ..PodSpec::default()
        };
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("default".to_owned()),
            uid: Some(format!("uid-{name}")),
            annotations: Some([(BEHAVIOUR.to_owned(), format!("{self:?}"))].into()),
            ..ObjectMeta::default()
        };
        let object = winddown_shared::k8s_openapi::api::core::v1::Pod {
            metadata,
            spec: Some(spec),
            status: None,
        };
        Pod::new(object).expect("a pod with an identity")
    }

    /// The behaviour of a pod that [`pod`](Self::pod) made; `None` for another. A runtime in memory acts by it.
    pub fn of(pod: &Pod) -> Option<Self> {
        let text = pod.metadata.annotations.as_ref()?.get(BEHAVIOUR)?;
        let code = |kind: &str| {
            text.strip_prefix(kind)?.strip_prefix('(')?.strip_suffix(')')?.parse().ok()
        };
        match &**text {
            "UntilStopped" => Some(Self::UntilStopped),
            "IgnoresSigterm" => Some(Self::IgnoresSigterm),
            _ => code("Exits").map(Self::Exits).or(code("Crashes").map(Self::Crashes)),
        }
    }

    fn script(self) -> String {
        match self {
            Self::UntilStopped => {
                "trap 'kill $!; exit 0' TERM; while :; do sleep 1 & wait $!; done".to_owned()
            }
            Self::IgnoresSigterm => "trap '' TERM; while :; do sleep 1; done".to_owned(),
            Self::Exits(code) | Self::Crashes(code) => format!("sleep 1; exit {code}"),
        }
    }

    fn restart_policy(self) -> &'static str {
        match self {
            Self::Exits(_) => "Never",
            Self::UntilStopped | Self::IgnoresSigterm | Self::Crashes(_) => "Always",
        }
    }
}
