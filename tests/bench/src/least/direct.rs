//! The least that starts pods: requests to the container runtime, as many at once as the agent sends, and nothing else.

use std::collections::HashMap;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tonic::transport::{Channel, Endpoint};
use winddown_shared::error_chain;

use super::Failure;

#[allow(
    clippy::all,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    rust_2018_idioms,
    dead_code
)]
mod api {
    tonic::include_proto!("runtime.v1");
}

pub(super) use api::StatusRequest;
pub(super) type Runtime = api::runtime_service_client::RuntimeServiceClient<Channel>;

/// How many pods the agent starts at once.
const AT_ONCE: usize = 8;

pub(super) async fn connect(socket: &str) -> Result<Runtime, tonic::transport::Error> {
    Ok(Runtime::new(Endpoint::try_from(format!("unix://{socket}"))?.connect().await?))
}

/// Starts the pods of a JSON list of manifests as the bench writes them: of each its name, image, command and mounts.
pub(crate) async fn start(socket: String, manifests: String) -> Result<String, String> {
    let started = start_all(&socket, &manifests).await;
    started.map(|pods| format!("{pods} pods")).map_err(|error| error_chain(&*error))
}

async fn start_all(socket: &str, manifests: &str) -> Result<usize, Failure> {
    let runtime = connect(socket).await?;
    let pods: Vec<serde_json::Value> = serde_json::from_slice(&std::fs::read(manifests)?)?;
    let count = pods.len();
    let starts = pods.into_iter().map(|pod| start_one(runtime.clone(), pod));
    stream::iter(starts).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    Ok(count)
}

async fn start_one(mut runtime: Runtime, pod: serde_json::Value) -> Result<(), tonic::Status> {
    let sandbox = sandbox(text(&pod["metadata"]["name"]));
    let container = container(&pod["spec"]);
    let request = api::RunPodSandboxRequest { config: Some(sandbox.clone()), ..Default::default() };
    let pod_sandbox_id = runtime.run_pod_sandbox(request).await?.into_inner().pod_sandbox_id;
    let request = api::CreateContainerRequest {
        pod_sandbox_id,
        config: Some(container),
        sandbox_config: Some(sandbox),
    };
    let container_id = runtime.create_container(request).await?.into_inner().container_id;
    runtime.start_container(api::StartContainerRequest { container_id }).await?;
    Ok(())
}

fn sandbox(name: String) -> api::PodSandboxConfig {
    let namespaces = api::NamespaceOption {
        network: api::NamespaceMode::Node.into(),
        pid: api::NamespaceMode::Container.into(),
        ..Default::default()
    };
    let security = api::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces),
        ..Default::default()
    };
    api::PodSandboxConfig {
        metadata: Some(api::PodSandboxMetadata {
            uid: name.clone(),
            name,
            namespace: "default".to_owned(),
            attempt: 0,
        }),
        linux: Some(api::LinuxPodSandboxConfig {
            security_context: Some(security),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn container(spec: &serde_json::Value) -> api::ContainerConfig {
    let container = &spec["containers"][0];
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let paths: HashMap<String, String> = list(&spec["volumes"])
        .iter()
        .map(|volume| (text(&volume["name"]), text(&volume["hostPath"]["path"])))
        .collect();
    let mounts = list(&container["volumeMounts"]).into_iter().map(|mount| api::Mount {
        container_path: text(&mount["mountPath"]),
        host_path: paths.get(&text(&mount["name"])).cloned().unwrap_or_default(),
        ..Default::default()
    });
    let namespaces = api::NamespaceOption {
        network: api::NamespaceMode::Node.into(),
        pid: api::NamespaceMode::Container.into(),
        ..Default::default()
    };
    let security = api::LinuxContainerSecurityContext {
        namespace_options: Some(namespaces),
        ..Default::default()
    };
    api::ContainerConfig {
        metadata: Some(api::ContainerMetadata { name: text(&container["name"]), attempt: 0 }),
        image: Some(api::ImageSpec { image: text(&container["image"]), ..Default::default() }),
        command: list(&container["command"]).iter().map(text).collect(),
        mounts: mounts.collect(),
        linux: Some(api::LinuxContainerConfig {
            security_context: Some(security),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
