//! The way to the API server as the configuration has it, and what the Node object says of this machine.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{NodeAddress, NodeSystemInfo, Taint};
use winddown_cluster::after_boot::AfterBootPolicy;
use winddown_cluster::client::{
    Bootstrap, ClusterConfig, Connection, Credentials, CredentialsError, ServiceAccount,
};
use winddown_cluster::node::{LeaseTimes, LeaseTimesError, NodeFacts, NodeSettings, Registration};
use winddown_cluster::pods::OrphanPolicy;
use winddown_machine::StandAlone;
use winddown_shared::{Allocatable, WallClock};

use super::host;
use crate::cluster::{ClusterParts, PodsParts};
use crate::config::{ClusterSettings, Config, EndedPods, OrphanedPods};
use crate::node::Identity;

/// The lease is renewed so many times in its life, as the kubelet does.
const RENEWALS: u32 = 4;

/// Why the cluster cannot be joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterStartError {
    /// The credentials cannot be used.
    #[error("the API server cannot be asked (kubeconfig, bootstrapKubeconfig)")]
    Credentials(#[from] CredentialsError),
    /// The lease's times cannot be used.
    #[error("nodeLeaseDurationSeconds")]
    Lease(#[from] LeaseTimesError),
}

/// The way to the API server. Nothing is asked of it.
///
/// # Errors
/// The credentials that the configuration names cannot be read.
pub(super) async fn connect(
    config: &Config,
    identity: &Identity,
    wall: &WallClock,
) -> Result<Connection, CredentialsError> {
    let credentials = credentials(config, identity)?;
    Connection::open(ClusterConfig::new(credentials), wall.clone()).await
}

/// What joins a node that runs the API's pods itself.
pub(super) async fn parts(
    config: &Config,
    identity: &Identity,
    wall: &WallClock,
) -> Result<ClusterParts, ClusterStartError> {
    let settings = &config.cluster;
    let volatile = config.control_socket.parent().unwrap_or(&config.state_directory);
    Ok(ClusterParts {
        connection: connect(config, identity, wall).await?,
        node: node_settings(config)?,
        facts: facts(config, identity),
        pods: Some(PodsParts {
            state: config.state_directory.clone(),
            volatile: volatile.to_owned(),
            secret_volumes: volatile.join("volumes"),
            ended: match settings.ended_pods {
                EndedPods::Delete => AfterBootPolicy::Delete,
                EndedPods::Keep => AfterBootPolicy::Keep,
                EndedPods::Ttl(after) => AfterBootPolicy::After(after),
            },
            orphans: match settings.orphaned_pods {
                OrphanedPods::Stop => OrphanPolicy::Stop,
                OrphanedPods::Adopt => OrphanPolicy::Adopt,
                OrphanedPods::Report => OrphanPolicy::Report,
            },
        }),
    })
}

fn credentials(config: &Config, identity: &Identity) -> Result<Credentials, CredentialsError> {
    let ClusterSettings { kubeconfig, bootstrap_kubeconfig, .. } = &config.cluster;
    Ok(match (kubeconfig, bootstrap_kubeconfig) {
        (Some(path), _) => Credentials::Kubeconfig { path: path.clone(), context: None },
        (None, Some(path)) => Credentials::Bootstrap(Bootstrap {
            kubeconfig: path.clone(),
            folder: config.state_directory.join("cluster").join("certificate"),
            node_name: identity.name.clone(),
        }),
        (None, None) => Credentials::InCluster(ServiceAccount::from_environment(|name| {
            std::env::var(name).ok()
        })?),
    })
}

/// What is done with the Node object.
fn node_settings(config: &Config) -> Result<NodeSettings, LeaseTimesError> {
    let settings = &config.cluster;
    let lease = settings.node_lease_duration;
    let renew = (lease / RENEWALS).max(Duration::from_secs(1));
    Ok(NodeSettings {
        lease: Some(LeaseTimes::new(lease, renew)?),
        update_frequency: config.node_status_update_frequency,
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

/// What does not change while the agent runs, and the labels as they are at the start.
fn facts(config: &Config, identity: &Identity) -> NodeFacts {
    let host_name = host::host_name().trim().to_ascii_lowercase();
    let view = StandAlone {
        name: identity.name.as_str().into(),
        host_name: host_name.clone(),
        labels: config.node_labels.clone(),
    }
    .view(Allocatable::default());
    let taint = |taint: &crate::config::NodeTaint| Taint {
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
        addresses: addresses(&config.cluster.node_ips, host_name),
        ..NodeFacts::default()
    }
}

fn addresses(wanted: &[IpAddr], host_name: String) -> Vec<NodeAddress> {
    let address = |kind: &str, text: String| NodeAddress { type_: kind.into(), address: text };
    let own = match wanted {
        [] => winddown_runtimes::host_addresses(),
        wanted => wanted.to_vec(),
    };
    let internal = own.into_iter().map(|ip| address("InternalIP", ip.to_string()));
    internal.chain([address("Hostname", host_name)]).collect()
}

fn info(config: &Config, identity: &Identity, labels: &BTreeMap<String, String>) -> NodeSystemInfo {
    let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
    let runtime = match config.runtime {
        crate::config::RuntimeKind::Process => concat!("winddown://", env!("CARGO_PKG_VERSION")),
        crate::config::RuntimeKind::Systemd => {
            concat!("winddown-systemd://", env!("CARGO_PKG_VERSION"))
        }
        // The runtime says which it is only when it is there.
        _ => "cri://unknown",
    };
    NodeSystemInfo {
        architecture: label("kubernetes.io/arch"),
        operating_system: label("kubernetes.io/os"),
        boot_id: identity.boot_id.clone(),
        machine_id: host::first_line("/etc/machine-id"),
        system_uuid: host::first_line("/sys/class/dmi/id/product_uuid"),
        kernel_version: host::first_line("/proc/sys/kernel/osrelease"),
        os_image: host::os_image(),
        container_runtime_version: runtime.to_owned(),
        kubelet_version: concat!("v", env!("CARGO_PKG_VERSION"), "-winddown").to_owned(),
        kube_proxy_version: String::new(),
        ..NodeSystemInfo::default()
    }
}
