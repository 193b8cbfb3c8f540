//! The configured runtime as one type, so that a node is compiled once and not once for each runtime.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use winddown_api_client::ConnectionState;
use winddown_companion::KubeletRuntime;
use winddown_cri::CriRuntime;
use winddown_node::ApiServerUse;
use winddown_runtimes::process::ProcessRuntime;
use winddown_runtimes::systemd::SystemdRuntime;
use winddown_shared::{
    EvictionConstraints, Freed, Garbage, Grace, KillReason, MemoryFigure, NodeEnding, Pod,
    PodRuntimeStatus, PodStats, PodStopped, PodUid, Recorder, Runtime, RuntimeError, RuntimePlaces,
    RuntimePod, SyncedPod,
};
use winddown_systemd::units::UnitsClient;

use super::companion::KubeletNode;

/// The runtime of a node. Each call goes to the chosen runtime, and has its errors and its cancel-safety.
#[derive(Debug)]
pub enum ConfiguredRuntime {
    /// Pods as processes of this host.
    Process(Arc<ProcessRuntime>),
    /// Pods as containers of containerd or CRI-O.
    Cri(Arc<CriRuntime>),
    /// Pods as transient services of systemd.
    Systemd(Arc<SystemdRuntime<UnitsClient>>),
    /// Pods that a kubelet runs and this agent ends.
    Kubelet(KubeletRuntime<KubeletNode>),
}

/// Evaluates the call on the chosen runtime.
macro_rules! each {
    ($self:ident, $runtime:ident => $call:expr) => {
        match $self {
            Self::Process($runtime) => $call,
            Self::Cri($runtime) => $call,
            Self::Systemd($runtime) => $call,
            Self::Kubelet($runtime) => $call,
        }
    };
}

/// As `each!`, with a boxed future: otherwise each pod's task has room for the largest of the futures, which
/// took 1.4 MB for a hundred pods.
macro_rules! boxed {
    ($self:ident, $runtime:ident => $call:expr) => {
        each!($self, $runtime => Box::pin($call).await)
    };
}

impl ConfiguredRuntime {
    /// Checks whether the runtime can be reached and works.
    ///
    /// # Errors
    /// The problem, for display.
    pub fn health(&self) -> Result<(), String> {
        match self {
            Self::Process(_) => Ok(()),
            Self::Cri(cri) => cri.health().borrow().trouble().map_or(Ok(()), Err),
            Self::Systemd(systemd) if systemd.units().is_connected() => Ok(()),
            Self::Systemd(_) => Err("systemd cannot be reached over the bus".to_owned()),
            Self::Kubelet(kubelet) => kubelet.trouble().map_or(Ok(()), Err),
        }
    }

    /// What use the API server, whose connection is in this `state`, would be to a shutdown now. One that is away comes back by
    /// itself; credentials do not.
    pub(super) fn api_server_use(&self, state: &ConnectionState) -> ApiServerUse {
        let Self::Kubelet(kubelet) = self else { return ApiServerUse::Usable };
        if kubelet.awaits_api_server() {
            return ApiServerUse::Awaited;
        }
        use_of(state, kubelet.is_refused())
    }
}

/// What use an API server is that is not awaited, and that refuses to list this node's pods or not.
fn use_of(state: &ConnectionState, refuses_list: bool) -> ApiServerUse {
    use ConnectionState as State;
    match state {
        State::Unsigned { .. } | State::Unauthorized { .. } | State::Untrusted { .. } => {
            ApiServerUse::Unusable
        }
        State::Connected if refuses_list => ApiServerUse::Unusable,
        _ => ApiServerUse::Usable,
    }
}

impl Runtime for ConfiguredRuntime {
    async fn sync_pod(&self, pod: &Pod) -> Result<SyncedPod, RuntimeError> {
        boxed!(self, runtime => runtime.sync_pod(pod))
    }

    fn pod_logs(&self) -> Option<&Path> {
        each!(self, runtime => runtime.pod_logs())
    }

    async fn stop_pod(
        &self,
        uid: &PodUid,
        pod: Option<&Pod>,
        grace: Grace,
    ) -> Result<PodStopped, RuntimeError> {
        boxed!(self, runtime => runtime.stop_pod(uid, pod, grace))
    }

    async fn clean_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        boxed!(self, runtime => runtime.clean_pod(uid))
    }

    async fn forget_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        boxed!(self, runtime => runtime.forget_pod(uid))
    }

    async fn pod_status(&self, uid: &PodUid) -> Result<PodRuntimeStatus, RuntimeError> {
        boxed!(self, runtime => runtime.pod_status(uid))
    }

    async fn list_pods(&self) -> Result<Vec<RuntimePod>, RuntimeError> {
        boxed!(self, runtime => runtime.list_pods())
    }

    async fn mounts(&self, uid: &PodUid) -> Result<Vec<String>, RuntimeError> {
        boxed!(self, runtime => runtime.mounts(uid))
    }

    async fn eviction_constraints(
        &self,
        pods: &[Pod],
    ) -> Result<Vec<(PodUid, EvictionConstraints)>, RuntimeError> {
        boxed!(self, runtime => runtime.eviction_constraints(pods))
    }

    fn announce(&self, ending: Option<Arc<NodeEnding>>) {
        each!(self, runtime => runtime.announce(ending));
    }

    fn changes(&self) -> broadcast::Receiver<PodUid> {
        each!(self, runtime => runtime.changes())
    }

    fn record_to(&self, recorder: &Arc<dyn Recorder>) {
        each!(self, runtime => runtime.record_to(recorder));
    }

    fn identify_as(&self, program: &str) {
        each!(self, runtime => runtime.identify_as(program));
    }

    fn survives_soft_reboot(&self, uid: &PodUid) -> bool {
        each!(self, runtime => runtime.survives_soft_reboot(uid))
    }

    fn supports(&self, pod: &Pod) -> Result<(), RuntimeError> {
        each!(self, runtime => runtime.supports(pod))
    }

    fn has_completed(&self, pod: &Pod) -> bool {
        each!(self, runtime => runtime.has_completed(pod))
    }

    fn applies_strict_groups(&self) -> bool {
        each!(self, runtime => runtime.applies_strict_groups())
    }

    fn refuses_stop(&self, uid: &PodUid, reason: KillReason) -> Option<Arc<str>> {
        each!(self, runtime => runtime.refuses_stop(uid, reason))
    }

    async fn pod_stats(
        &self,
        disk_age: Option<Duration>,
    ) -> Result<Option<Vec<(PodUid, PodStats)>>, RuntimeError> {
        boxed!(self, runtime => runtime.pod_stats(disk_age))
    }

    async fn places(&self) -> Result<RuntimePlaces, RuntimeError> {
        boxed!(self, runtime => runtime.places())
    }

    async fn collect_garbage(&self, what: Garbage) -> Result<Freed, RuntimeError> {
        boxed!(self, runtime => runtime.collect_garbage(what))
    }

    async fn reclaim_memory(
        &self,
        uid: &PodUid,
        figure: MemoryFigure,
        bytes: u64,
        time: Duration,
    ) -> Result<Freed, RuntimeError> {
        boxed!(self, runtime => runtime.reclaim_memory(uid, figure, bytes, time))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_api_server_is_of_no_use_once_it_refuses_something_and_not_while_it_is_away() {
        let why: Arc<str> = "it says so".into();
        let unreachable = ConnectionState::Unreachable { why: Arc::clone(&why) };
        let unauthorized = ConnectionState::Unauthorized { why };
        for (state, refuses_list, wanted) in [
            (&ConnectionState::Connected, false, ApiServerUse::Usable),
            (&ConnectionState::Connected, true, ApiServerUse::Unusable),
            (&ConnectionState::Unknown, false, ApiServerUse::Usable),
            (&unreachable, false, ApiServerUse::Usable),
            (&unreachable, true, ApiServerUse::Usable),
            (&unauthorized, false, ApiServerUse::Unusable),
        ] {
            assert_eq!(use_of(state, refuses_list), wanted, "{state:?}, {refuses_list}");
        }
    }

    /// The methods of the first block after `head`.
    fn methods(source: &'static str, head: &str) -> BTreeSet<&'static str> {
        let (_, block) = source.split_once(head).unwrap();
        let (block, _) = block.split_once("\n}\n").unwrap();
        let lines = block.lines().filter_map(|line| line.strip_prefix("    "));
        let named = lines.filter_map(|line| {
            let line = line.strip_prefix("async ").unwrap_or(line);
            line.strip_prefix("fn ")?.split(['(', '<']).next()
        });
        named.collect()
    }

    #[test]
    fn what_a_runtime_is_asked_goes_to_the_chosen_one_and_never_to_a_default() {
        let trait_ = include_str!("../../../../shared/src/runtime.rs");
        let asked = methods(trait_, "pub trait Runtime: Send + Sync + 'static {");
        assert!(asked.len() > 15, "{asked:?}");
        let passed_on =
            methods(include_str!("configured.rs"), "impl Runtime for ConfiguredRuntime {");
        assert_eq!(asked, passed_on);
    }
}
