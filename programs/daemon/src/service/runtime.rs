//! Opens the configured runtime.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use winddown_cri::{CriConfig, CriOpenError, CriRuntime, EnvironmentFacts, RuntimeEndpointError};
use winddown_runtimes::process::{
    CgroupParent, OpenError, ProcessConfig, ProcessRuntime, ShimCommand, Survivors,
};
use winddown_runtimes::systemd::{SystemdOpenError, SystemdRuntime};
use winddown_shared::{WallClock, error_chain};
use winddown_systemd::Bus;
use winddown_systemd::inspect::{InspectError, Inspector};
use winddown_systemd::units::UnitsClient;

use winddown_config::{Config, RuntimeKind};
use winddown_host::machine::is_in_memory;
use winddown_host::{Capacity, Roots};
use winddown_node::{Configured, NodeIdentity};

use super::host::SYSTEMD_PATIENCE;
use super::slices::{SlicesOfPods, units_of_pods};
use super::{cluster, former_runtime};

/// The mount point of the cgroup file system.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Where log shippers look for the links to the containers' logs. The unit makes it.
const LOG_LINKS: &str = "/var/log/containers";

/// The first version of systemd on which services are tested to survive a soft-reboot.
const LEAVES_SERVICES: u32 = 257;
/// The slices that have to survive a soft-reboot for that; both have unit files.
const SLICES: [&str; 2] = ["winddown.slice", "winddown-survivors.slice"];

/// Why the runtime cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeStartError {
    /// The shim program cannot be used.
    #[error("cannot use the containers' supervisor (winddown-shim)")]
    Shim(#[source] std::io::Error),
    /// The process runtime cannot start.
    #[error("the process runtime cannot start")]
    Process(#[source] OpenError),
    /// The container runtime cannot be used.
    #[error("the container runtime cannot be used (containerRuntimeEndpoint)")]
    Cri(#[source] CriOpenError),
    /// The endpoint of the kubelet's container runtime is invalid.
    #[error("cannot query the kubelet's container runtime (containerRuntimeEndpoint)")]
    Endpoint(#[source] RuntimeEndpointError),
    /// The systemd runtime cannot start.
    #[error("the systemd runtime cannot start")]
    Systemd(#[source] SystemdOpenError),
}

/// Opens the process runtime in the configured directories.
pub(super) async fn process(
    configured: &Configured,
    identity: &NodeIdentity,
    wall: &WallClock,
) -> Result<ProcessRuntime, RuntimeStartError> {
    let process = programs(configured, identity, wall, "process")?;
    ProcessRuntime::open(process).await.map_err(RuntimeStartError::Process)
}

/// Opens the container runtime at the configured socket, which need not exist yet.
pub(super) async fn cri(
    configured: &Configured,
    identity: &NodeIdentity,
    wall: &WallClock,
) -> Result<CriRuntime, RuntimeStartError> {
    CriRuntime::open(cri_config(configured, identity, wall)).await.map_err(RuntimeStartError::Cri)
}

fn cri_config(configured: &Configured, identity: &NodeIdentity, wall: &WallClock) -> CriConfig {
    let config = configured.configuration().config;
    let mut cri = CriConfig::new(
        &*config.node.container_runtime_endpoint,
        former_runtime::records(&config, RuntimeKind::Cri),
        &config.access.pod_logs_dir,
        wall.clone(),
    );
    tell_facts(&mut cri.node, configured, identity);
    cri.paths.notices = notice_dir(&config);
    cri.made_volumes = cluster::volumes(&config).into();
    cri.dns.resolv_conf.clone_from(&config.cluster.resolv_conf);
    cri.dns.servers.clone_from(&config.cluster.dns);
    cri.dns.domain.clone_from(&config.cluster.domain);
    cri.logs.links = Some(LOG_LINKS.into());
    cri.logs.max_bytes = config.access.container_log_max_size;
    cri.logs.max_files = config.access.container_log_max_files;
    cri.cgroups.slices = Some(Arc::new(SlicesOfPods::default()));
    cri
}

/// Opens the runtime of transient systemd services. systemd must answer.
pub(super) async fn systemd(
    configured: &Configured,
    identity: &NodeIdentity,
    wall: &WallClock,
) -> Result<SystemdRuntime<UnitsClient>, RuntimeStartError> {
    let mut programs = programs(configured, identity, wall, "systemd")?;
    programs.survivors = survivors(&configured.configuration().config).await;
    SystemdRuntime::open(programs, units_of_pods()).await.map_err(RuntimeStartError::Systemd)
}

/// The pods that may survive a soft-reboot, and the reason if this systemd does not support that.
async fn survivors(config: &Config) -> Survivors {
    let all = config.shutdown.in_place.iter().filter(|one| one.survive);
    let namespaces: BTreeSet<String> = all.map(|one| one.namespace.clone()).collect();
    let impossible = match namespaces.is_empty() {
        true => None,
        false => impossible().await,
    };
    Survivors { namespaces, impossible }
}

/// The reason why no service survives a soft-reboot; `None` if services do.
async fn impossible() -> Option<String> {
    let seen = async {
        let inspector = Inspector::connect_to_systemd(&Bus::System, SYSTEMD_PATIENCE).await?;
        let version = inspector.system().await?.major().unwrap_or(0);
        let mut stopped = None;
        for slice in SLICES {
            stopped = stopped.or(inspector.has_default_dependencies(slice).await?.then_some(slice));
        }
        Ok::<_, InspectError>((version, stopped))
    };
    match seen.await {
        Ok((version, _)) if version < LEAVES_SERVICES => Some(format!(
            "systemd {version} stops all services at a soft-reboot: use {LEAVES_SERVICES} or later"
        )),
        Ok((_, Some(slice))) => {
            Some(format!("{slice} is stopped at a soft-reboot: run `winddown install` once more"))
        }
        Ok(_) => None,
        Err(error) => Some(format!(
            "systemd did not say whether services survive a soft-reboot ({error}): restart winddown"
        )),
    }
}

/// The settings of runtimes whose containers are programs of this host; `kind` names their directory of records.
fn programs(
    configured: &Configured,
    identity: &NodeIdentity,
    wall: &WallClock,
    kind: &str,
) -> Result<ProcessConfig, RuntimeStartError> {
    let config = configured.configuration().config;
    let shim = ShimCommand::beside_this_program().map_err(RuntimeStartError::Shim)?;
    let mut programs = ProcessConfig::new(
        config.access.state_directory.join(kind),
        &config.access.pod_logs_dir,
        shim,
        wall.clone(),
    );
    // Data that must not reach a disk is kept next to the control socket, or nowhere if that is not in memory.
    let volatile =
        config.access.control_socket.parent().filter(|directory| is_in_memory(directory));
    programs.volatile_dir = volatile.map(|directory| directory.join(kind));
    programs.notice_dir = notice_dir(&config);
    programs.cgroups = CgroupParent::OwnUnit { mount: CGROUPS.into() };
    tell_facts(&mut programs.node, configured, identity);
    programs.log_links = Some(LOG_LINKS.into());
    programs.log_max_bytes = config.access.container_log_max_size;
    programs.log_max_files = config.access.container_log_max_files;
    Ok(programs)
}

/// Adds to the facts of this host what the configuration says, and what it leaves for pods.
fn tell_facts(facts: &mut EnvironmentFacts, configured: &Configured, identity: &NodeIdentity) {
    let config = configured.configuration().config;
    facts.name.clone_from(&identity.name);
    facts.addresses.clone_from(&config.cluster.node_ips);
    match Capacity::read(&Roots::of_host(&config.access.state_directory)) {
        Ok(capacity) => facts.allocatable = configured.allocatable(capacity),
        Err(error) => tracing::warn!(
            error = error_chain(&error),
            "containers without limits are told what the machine has, not what is left for pods"
        ),
    }
}

/// The directory of the pods' notice files, next to the control socket: in memory unless the socket was moved, and
/// traversable by every user.
fn notice_dir(config: &Config) -> Option<PathBuf> {
    Some(config.access.control_socket.parent()?.join("termination-notices"))
}

#[cfg(test)]
mod tests {
    use winddown_node::Configuration;
    use winddown_shared::{ResourceName, WallTime};

    use super::*;

    #[test]
    fn containers_ask_the_name_servers_that_a_kubelets_configuration_names() {
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                    clusterDNS: [10.96.0.10, 'fd00::a']\nclusterDomain: cluster.local\n";
        let (config, _) = Config::parse("config.yaml".as_ref(), text.as_bytes()).unwrap();
        let identity = NodeIdentity { name: "n1".into(), boot_id: "b".into() };
        let configured = Configured::of(config, WallTime::UNIX_EPOCH);
        let cri = cri_config(&configured, &identity, &WallClock::fixed(WallTime::UNIX_EPOCH));
        let servers: Vec<String> = cri.dns.servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["10.96.0.10", "fd00::a"]);
        assert_eq!(cri.dns.domain, "cluster.local");
    }

    #[test]
    fn the_volumes_that_are_made_for_pods_of_the_api_server_may_get_labels() {
        let identity = NodeIdentity { name: "n1".into(), boot_id: "b".into() };
        let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
        let configured = Configured::of(Config::default(), WallTime::UNIX_EPOCH);
        let cri = cri_config(&configured, &identity, &wall);
        let made = ["/var/lib/winddown/cluster/volumes", "/run/winddown/volumes"];
        assert_eq!(cri.made_volumes, made.map(PathBuf::from));
    }

    #[test]
    fn what_is_left_for_pods_is_that_of_the_configuration_in_force() {
        let of = |cpu: &str| {
            let text = format!(
                "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                 systemReserved: {{cpu: {cpu}}}\n"
            );
            let (mut config, _) = Config::parse("config.yaml".as_ref(), text.as_bytes()).unwrap();
            // Its file system is a part of the capacity.
            config.access.state_directory = "/".into();
            config
        };
        let identity = NodeIdentity { name: "n1".into(), boot_id: "b".into() };
        let configured = Configured::of(of("100m"), WallTime::UNIX_EPOCH);
        let cri = cri_config(&configured, &identity, &WallClock::fixed(WallTime::UNIX_EPOCH));
        let cpu = || cri.node.allocatable.borrow().get(&ResourceName::Cpu);
        let before = cpu();
        let config = Arc::new(of("300m"));
        configured.replace(Configuration { config, ..configured.configuration() });
        assert_eq!(before - cpu(), 200);
    }
}
