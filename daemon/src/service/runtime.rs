//! The runtimes a service can run on, opened as the configuration says.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use winddown_cri::{CriConfig, CriOpenError, CriRuntime, EndpointError};
use winddown_runtimes::process::{
    CgroupParent, OpenError, ProcessConfig, ProcessRuntime, ShimCommand, Survivors,
};
use winddown_runtimes::systemd::{SystemdOpenError, SystemdRuntime};
use winddown_shared::WallClock;
use winddown_systemd::Bus;
use winddown_systemd::inspect::{InspectError, Inspector};
use winddown_systemd::units::UnitsClient;

use winddown_config::Config;
use winddown_machine::host::is_in_memory;
use winddown_node::Identity;

/// Where control groups are.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The first systemd of which it is tested that services survive a soft-reboot.
const LEAVES_SERVICES: u32 = 257;
/// They have to stay for that; both have unit files.
const SLICES: [&str; 2] = ["winddown.slice", "winddown-survivors.slice"];
/// How long systemd may take to say its version.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why the runtime cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeStartError {
    /// The program that holds containers.
    #[error("the program that holds containers cannot be used")]
    Shim(#[source] std::io::Error),
    /// The process runtime.
    #[error("the process runtime cannot start")]
    Process(#[source] OpenError),
    /// The connection to a container runtime.
    #[error("the container runtime cannot be used (containerRuntimeEndpoint)")]
    Cri(#[source] CriOpenError),
    /// The address of the container runtime that a kubelet uses.
    #[error("the kubelet's container runtime cannot be asked (containerRuntimeEndpoint)")]
    Endpoint(#[source] EndpointError),
    /// The runtime of transient services.
    #[error("the systemd runtime cannot start")]
    Systemd(#[source] SystemdOpenError),
}

/// The process runtime in the configured directories.
pub(super) async fn process(
    config: &Config,
    identity: &Identity,
    wall: &WallClock,
) -> Result<ProcessRuntime, RuntimeStartError> {
    let mut process = programs(config, identity, wall, "process")?;
    process.cgroups = CgroupParent::OwnUnit { mount: CGROUPS.into() };
    ProcessRuntime::open(process).await.map_err(RuntimeStartError::Process)
}

/// The container runtime at the configured socket; it need not be there yet.
pub(super) async fn cri(
    config: &Config,
    identity: &Identity,
    wall: &WallClock,
) -> Result<CriRuntime, RuntimeStartError> {
    CriRuntime::open(cri_config(config, identity, wall)).await.map_err(RuntimeStartError::Cri)
}

fn cri_config(config: &Config, identity: &Identity, wall: &WallClock) -> CriConfig {
    let mut cri = CriConfig::new(
        &*config.container_runtime_endpoint,
        config.state_directory.join("cri"),
        &config.pod_logs_dir,
        wall.clone(),
    );
    cri.node.name.clone_from(&identity.name);
    cri.node.address = config.cluster.node_ips.first().copied();
    cri.notice_dir = notice_dir(config);
    cri.made_volumes.push(config.state_directory.join("volumes"));
    cri.resolv_conf.clone_from(&config.resolv_conf);
    cri.cluster_dns.clone_from(&config.cluster.dns);
    cri.cluster_domain.clone_from(&config.cluster.domain);
    cri.log_max_bytes = config.container_log_max_size;
    cri.log_max_files = config.container_log_max_files;
    cri
}

/// Transient services of the system's service manager, which must answer.
pub(super) async fn systemd(
    config: &Config,
    identity: &Identity,
    wall: &WallClock,
) -> Result<SystemdRuntime<UnitsClient>, RuntimeStartError> {
    let mut programs = programs(config, identity, wall, "systemd")?;
    programs.survivors = survivors(config).await;
    SystemdRuntime::open(programs, units_of_pods()).await.map_err(RuntimeStartError::Systemd)
}

/// Which pods may run on through a soft-reboot, and why this systemd lets none.
async fn survivors(config: &Config) -> Survivors {
    let all = config.shutdown.in_place.iter().filter(|one| one.survive);
    let namespaces: BTreeSet<String> = all.map(|one| one.namespace.clone()).collect();
    let impossible = match namespaces.is_empty() {
        true => None,
        false => impossible().await,
    };
    Survivors { namespaces, impossible }
}

/// Why no service survives a soft-reboot; none where they do.
async fn impossible() -> Option<String> {
    let seen = async {
        let inspector = Inspector::connect(&Bus::System, PATIENCE).await?;
        let version = inspector.system().await?.major().unwrap_or(0);
        let mut stopped = None;
        for slice in SLICES {
            stopped = stopped.or(inspector.goes_down_by_default(slice).await?.then_some(slice));
        }
        Ok::<_, InspectError>((version, stopped))
    };
    match seen.await {
        Ok((version, _)) if version < LEAVES_SERVICES => Some(format!(
            "systemd {version} ends all services at a soft-reboot: use {LEAVES_SERVICES} or later"
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

/// The services of pods, as systemd has them. Must be called inside a tokio runtime.
pub fn units_of_pods() -> UnitsClient {
    // As long as a reload of systemd lasts on a slow machine.
    UnitsClient::start(Bus::System, "winddown-pod", Duration::from_secs(10))
}

/// For runtimes whose containers are programs of this host; `kind` names the directory of its records.
fn programs(
    config: &Config,
    identity: &Identity,
    wall: &WallClock,
    kind: &str,
) -> Result<ProcessConfig, RuntimeStartError> {
    let shim = ShimCommand::beside_this_program().map_err(RuntimeStartError::Shim)?;
    let mut programs = ProcessConfig::new(
        config.state_directory.join(kind),
        &config.pod_logs_dir,
        shim,
        wall.clone(),
    );
    // The control socket's directory is in memory, or what must not reach a disk is not kept.
    let volatile = config.control_socket.parent().filter(|directory| is_in_memory(directory));
    programs.volatile_dir = volatile.map(|directory| directory.join(kind));
    programs.notice_dir = notice_dir(config);
    programs.node.name.clone_from(&identity.name);
    programs.node.address = config.cluster.node_ips.first().copied();
    programs.log_max_bytes = config.container_log_max_size;
    programs.log_max_files = config.container_log_max_files;
    Ok(programs)
}

/// Beside the control socket, in memory unless that was moved. Every user may pass through.
fn notice_dir(config: &Config) -> Option<PathBuf> {
    Some(config.control_socket.parent()?.join("end-notices"))
}

#[cfg(test)]
mod tests {
    use winddown_shared::WallTime;

    use super::*;

    #[test]
    fn containers_ask_the_name_servers_that_a_kubelets_configuration_names() {
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                    clusterDNS: [10.96.0.10, 'fd00::a']\nclusterDomain: cluster.local\n";
        let (config, _) = Config::parse("config.yaml".as_ref(), text.as_bytes()).unwrap();
        let identity = Identity { name: "n1".into(), boot_id: "b".into() };
        let cri = cri_config(&config, &identity, &WallClock::fixed(WallTime::UNIX_EPOCH));
        let servers: Vec<String> = cri.cluster_dns.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["10.96.0.10", "fd00::a"]);
        assert_eq!(cri.cluster_domain, "cluster.local");
    }
}
