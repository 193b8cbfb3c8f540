//! Facts about the host that the agent runs on.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use nix::time::{ClockId, clock_gettime};
use winddown_config::{Config, Mode};
use winddown_control::api::DirectoryUse;
use winddown_doctor::KubeletLook;
use winddown_host::{UsagePaths, machine::boot_clock};
use winddown_node::{DiskRoom, KubeletFacts};
use winddown_shared::BootClock;
use winddown_systemd::Bus;
use winddown_systemd::inspect::{InspectError, Inspector};

/// The variable that names the cgroup whose limits bound the node, for an agent in a container and for tests.
const NODE_CGROUP: &str = "WINDDOWN_NODE_CGROUP";

/// The places where the machine's usage is measured. Logs and volumes are on the file system of the state
/// directory.
pub(super) fn usage_places(config: &Config) -> UsagePaths {
    let host = UsagePaths::of_host(&config.access.state_directory);
    match std::env::var(NODE_CGROUP) {
        Ok(cgroup) if cgroup.starts_with('/') => UsagePaths { node_cgroup: cgroup, ..host },
        _ => host,
    }
}

/// Shows how full the disks are that the agent and its pods write to. Beside a kubelet, the pods' logs are the kubelet's.
pub(super) fn disk_room(config: &Config) -> DiskRoom {
    let access = &config.access;
    let state = (DirectoryUse::State, access.state_directory.clone());
    let logs = (config.node.mode != Mode::Companion)
        .then(|| (DirectoryUse::Logs, access.pod_logs_dir.clone()));
    let run = access.control_socket.parent().map(|run| (DirectoryUse::Run, run.to_owned()));
    DiskRoom::new([Some(state), logs, run].into_iter().flatten())
}

/// How long the parts of a look at the kubelet may take each.
const KUBELET_LOOK_PART_TIMEOUT: Duration = Duration::from_millis(800);

/// Looks at the kubelet of the machine, as the doctor does.
pub(super) fn look_at_kubelet(
    root: &Path,
    config: &Config,
) -> impl Fn() -> BoxFuture<'static, KubeletFacts> + Send + Sync + use<> {
    let kubelet = Arc::new(KubeletLook::new(root, config, Bus::System, KUBELET_LOOK_PART_TIMEOUT));
    move || {
        let kubelet = Arc::clone(&kubelet);
        async move { kubelet.look().await }.boxed()
    }
}

/// For how long the agent's start asks systemd, which answers within milliseconds unless the machine is busy.
pub(super) const SYSTEMD_PATIENCE: Duration = Duration::from_secs(8);

/// The boot clock, with the time when user space was last started, which a soft reboot does again. Where the kind
/// of a shutdown is unknown, this distinguishes a soft reboot from the others.
pub(super) async fn boot_clock_of_user_space() -> BootClock {
    let clock = boot_clock();
    match Inspector::soft_rebooted_at(&Bus::System, SYSTEMD_PATIENCE).await {
        Ok(Some(at)) => {
            // systemd's monotonic clock does not count the time that the machine is suspended.
            let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(at, Duration::from);
            let started = clock.now().saturating_sub(monotonic.saturating_sub(at));
            let started = started.max(clock.system_start());
            clock.with_system_start(started)
        }
        Ok(None) => clock,
        // Nothing else soft-reboots.
        Err(error @ InspectError::Absent { .. }) => {
            tracing::debug!(
                "there is no systemd that could have soft-rebooted the system: {error}"
            );
            clock
        }
        Err(error) => {
            tracing::warn!(
                "it is unknown whether the system was soft-rebooted, and taken for the one that the kernel started: a \
                 drain or notice from before may be in effect; `winddown undrain` withdraws it: {error}"
            );
            clock
        }
    }
}
