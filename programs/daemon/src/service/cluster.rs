//! The cluster plug-in as configured: the connection to the API server and the contents of the Node object.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{NodeAddress, NodeSystemInfo, Taint};
use tokio::sync::watch;
use tokio::time::sleep;
use winddown_api_client::{Connection, CredentialsError};
use winddown_cluster::after_boot::AfterBootPolicy;
use winddown_cluster::after_nodes::AfterNodes;
use winddown_cluster::node::{LeaseTimes, LeaseTimesError, NodeFacts, NodeSettings, Registration};
use winddown_cluster::pods::OrphanPolicy;
use winddown_cri::CriRuntime;
use winddown_host::{LocalNode, machine};
use winddown_shared::{Allocatable, WallClock};

use winddown_config::{Config, EndedPods, OrphanedPods, RuntimeKind};
use winddown_node::NodeIdentity;
use winddown_node::cluster::after_nodes::ShutdownAfterNodes;
use winddown_node::cluster::{Cluster, NodeRuntime, PodsParts, connect_early};

/// How many times the lease is renewed within its duration, as by the kubelet.
const RENEWALS_PER_LEASE: u32 = 4;
/// How long to wait after a pull before the images are listed, so that several pulls cost one listing.
const PULL_SETTLE_TIME: Duration = Duration::from_secs(10);
/// How often images are listed regardless: no runtime reports that another program pulled or removed some.
const BY_OTHERS: Duration = Duration::from_secs(5 * 60);

/// Why the cluster cannot be joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterStartError {
    /// The connection cannot be prepared. Credentials that are not there yet are no error.
    #[error("cannot query the API server")]
    Credentials(#[from] CredentialsError),
    /// The lease duration cannot be used.
    #[error("nodeLeaseDurationSeconds")]
    Lease(#[from] LeaseTimesError),
}

/// Builds the cluster plug-in for a node that runs the API server's pods itself.
pub(super) async fn parts(
    config: &Config,
    identity: &NodeIdentity,
    wall: &WallClock,
) -> Result<Cluster, ClusterStartError> {
    let settings = &config.cluster;
    let [volumes, secret_volumes] = volumes(config);
    Ok(Cluster {
        connection: connect_early(config, &identity.name, wall).await?,
        node: node_settings(config)?,
        facts: facts(config, identity),
        names: watch::Sender::default(),
        pods: Some(PodsParts {
            state: config.access.state_directory.clone(),
            volatile: volatile(config).to_owned(),
            volumes,
            secret_volumes,
            ended: match settings.ended_pods {
                EndedPods::Delete => AfterBootPolicy::Delete,
                EndedPods::Keep => AfterBootPolicy::Keep,
                EndedPods::Ttl(after) => AfterBootPolicy::After(after),
            },
            runtime: watch::Sender::new(own_runtime(config.node.runtime)).subscribe(),
            orphans: match settings.orphaned_pods {
                OrphanedPods::Stop => OrphanPolicy::Stop,
                OrphanedPods::Adopt => OrphanPolicy::Adopt,
                OrphanedPods::Report => OrphanPolicy::Report,
            },
        }),
    })
}

/// The directories of the volumes that are made for the API server's pods: on disk, and in memory for Secrets.
pub(super) fn volumes(config: &Config) -> [PathBuf; 2] {
    [
        config.access.state_directory.join("cluster").join("volumes"),
        volatile(config).join("volumes"),
    ]
}

/// The directory for what may be lost with the boot: in memory unless the socket was moved.
pub(super) fn volatile(config: &Config) -> &Path {
    config.access.control_socket.parent().unwrap_or(&config.access.state_directory)
}

/// The wait for the nodes that go down before this one; `None` if none are configured.
pub(super) fn after_nodes(config: &Config, connection: &Connection) -> Option<ShutdownAfterNodes> {
    let settings = &config.cluster;
    let settings = AfterNodes {
        selector: settings.after_nodes.clone()?,
        wait: settings.after_nodes_timeout,
        priority: settings.after_nodes_priority,
    };
    Some(ShutdownAfterNodes { connection: connection.clone(), settings })
}

/// How the Node object and its lease are maintained.
fn node_settings(config: &Config) -> Result<NodeSettings, LeaseTimesError> {
    let settings = &config.cluster;
    let lease = settings.node_lease_duration;
    let renew = (lease / RENEWALS_PER_LEASE).max(Duration::from_secs(1));
    Ok(NodeSettings {
        lease: Some(LeaseTimes::new(lease, renew)?),
        update_frequency: config.node.status_update_frequency,
        report_frequency: settings.node_status_report_frequency,
        registration: match (settings.register_node, settings.recreate_node) {
            (false, _) => Registration::Never,
            (true, false) => Registration::AtStart,
            (true, true) => Registration::Always,
        },
        cordon_on_shutdown: settings.cordon_on_shutdown,
        ..NodeSettings::default()
    })
}

/// The facts of the Node object that do not change while the agent runs, and the labels as of the start.
fn facts(config: &Config, identity: &NodeIdentity) -> NodeFacts {
    let view = LocalNode {
        name: identity.name.as_str().into(),
        labels: config.node.labels.clone(),
        ..LocalNode::default()
    }
    .view(Allocatable::default());
    let taint = |taint: &winddown_config::NodeTaint| Taint {
        key: taint.key.clone(),
        value: Some(taint.value.clone()).filter(|value| !value.is_empty()),
        effect: taint.effect.to_owned(),
        time_added: None,
    };
    NodeFacts {
        info: info(config, identity, &view.labels),
        labels: view.labels,
        taints: config.cluster.register_with_taints.iter().map(taint).collect(),
        provider_id: config.cluster.provider_id.clone(),
        addresses: vec![NodeAddress { type_: "Hostname".into(), address: identity.name.clone() }],
        port: config.cluster.node_api_address.map(|address| address.port().into()),
        declared_features: declared_features(config),
        ..NodeFacts::default()
    }
}

/// The features that the Node object declares. Streams that this agent serves itself, without a container runtime,
/// take WebSockets (KEP-4006); to a node that does not declare so the API server speaks SPDY.
fn declared_features(config: &Config) -> Vec<String> {
    let serves =
        config.cluster.node_api_address.is_some() && config.node.runtime != RuntimeKind::Cri;
    serves.then(|| "ExtendWebSocketsToKubelet".to_owned()).into_iter().collect()
}

/// The name of the runtime; a placeholder until a container runtime reports its own.
fn own_runtime(runtime: RuntimeKind) -> NodeRuntime {
    let name = match runtime {
        RuntimeKind::Process => concat!("winddown://", env!("CARGO_PKG_VERSION")),
        RuntimeKind::Systemd => concat!("winddown-systemd://", env!("CARGO_PKG_VERSION")),
        // `with_runtime_facts` replaces this once the runtime answers.
        RuntimeKind::Cri => "cri://unknown",
    };
    NodeRuntime { name: name.to_owned(), images: Vec::new() }
}

/// Keeps the runtime's own name and its images up to date in the Node object, from the runtime's first answer on.
pub(super) fn with_runtime_facts(mut parts: Cluster, cri: Arc<CriRuntime>) -> Cluster {
    let Some(pods) = &mut parts.pods else { return parts };
    let (told, runtime) = watch::channel(pods.runtime.borrow().clone());
    pods.runtime = runtime;
    let mut health = cri.health();
    tokio::spawn(async move {
        loop {
            let name = runtime_name(&health.borrow_and_update().version);
            let images = cri.images().await.ok();
            told.send_if_modified(|known| {
                // What the runtime does not report now stays as it was.
                let now = NodeRuntime {
                    name: name.unwrap_or_else(|| known.name.clone()),
                    images: images.unwrap_or_else(|| known.images.clone()),
                };
                *known != now && {
                    *known = now;
                    true
                }
            });
            let pulled = async {
                cri.images_changed().await;
                sleep(PULL_SETTLE_TIME).await;
            };
            tokio::select! {
                Ok(()) = health.changed() => {}
                () = pulled => {}
                () = sleep(BY_OTHERS) => {}
                () = told.closed() => return,
            }
        }
    });
    parts
}

/// Converts the runtime's version string (`containerd 1.6.20~ds1`, `containerd v1.7.2`) to the form that the
/// kubelet writes, `containerd://1.6.20`. `None` if it has another form.
fn runtime_name(said: &str) -> Option<String> {
    let (name, version) = said.split_once(' ')?;
    let version = version.strip_prefix('v').unwrap_or(version);
    let foreign = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+'));
    let version = version.split(foreign).next().filter(|version| !version.is_empty())?;
    (!name.is_empty()).then(|| format!("{name}://{version}"))
}

fn info(
    config: &Config,
    identity: &NodeIdentity,
    labels: &BTreeMap<String, String>,
) -> NodeSystemInfo {
    let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
    NodeSystemInfo {
        architecture: label("kubernetes.io/arch"),
        operating_system: label("kubernetes.io/os"),
        boot_id: identity.boot_id.clone(),
        machine_id: machine::first_line("/etc/machine-id"),
        system_uuid: machine::first_line("/sys/class/dmi/id/product_uuid"),
        kernel_version: machine::first_line("/proc/sys/kernel/osrelease"),
        os_image: machine::os_image(),
        container_runtime_version: own_runtime(config.node.runtime).name,
        kubelet_version: concat!("v", env!("CARGO_PKG_VERSION"), "-winddown").to_owned(),
        kube_proxy_version: String::new(),
        ..NodeSystemInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_named_as_the_kubelet_names_it() {
        for (said, named) in [
            ("containerd 1.6.20~ds1", Some("containerd://1.6.20")),
            ("containerd v1.7.2", Some("containerd://1.7.2")),
            ("containerd v2.0.0-rc.1", Some("containerd://2.0.0-rc.1")),
            ("cri-o 1.31.0+dev", Some("cri-o://1.31.0+dev")),
            ("containerd ~", None),
            (" 1.6.20", None),
            ("", None),
        ] {
            assert_eq!(runtime_name(said).as_deref(), named, "{said}");
        }
    }
}
