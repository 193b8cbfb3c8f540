//! The runtime that the configuration names, as one type: a node is compiled once, and not once for each
//! runtime there is.

use std::sync::Arc;

use tokio::sync::broadcast;
use winddown_companion::KubeletRuntime;
use winddown_cri::CriRuntime;
use winddown_runtimes::process::ProcessRuntime;
use winddown_runtimes::systemd::SystemdRuntime;
use winddown_shared::{
    Consent, Grace, NodeEnding, Pod, PodRuntimeStatus, PodStopped, PodUid, Recorder, Runtime,
    RuntimeError, RuntimePod, SyncedPod,
};
use winddown_systemd::units::UnitsClient;

use super::companion::KubeletNode;

/// What runs the pods of a node. Each call is the named runtime's own, with its errors and its
/// cancel-safety.
#[derive(Debug)]
pub enum ConfiguredRuntime {
    /// Processes of this host.
    Process(Arc<ProcessRuntime>),
    /// Containers of containerd or CRI-O.
    Cri(Arc<CriRuntime>),
    /// Transient services of the service manager.
    Systemd(Arc<SystemdRuntime<UnitsClient>>),
    /// A kubelet runs them, and this agent has them ended.
    Kubelet(KubeletRuntime<KubeletNode>),
}

/// The same call of whichever runtime it is.
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

/// The same, boxed: else the task of each pod has room for the largest of them, which was 1.4 MB for a
/// hundred pods.
macro_rules! boxed {
    ($self:ident, $runtime:ident => $call:expr) => {
        each!($self, $runtime => Box::pin($call).await)
    };
}

impl ConfiguredRuntime {
    /// How it is: what is wrong, for people.
    ///
    /// # Errors
    /// What is wrong.
    pub fn health(&self) -> Result<(), String> {
        match self {
            Self::Process(_) => Ok(()),
            Self::Cri(cri) => cri.health().borrow().trouble().map_or(Ok(()), Err),
            Self::Systemd(systemd) if systemd.units().is_connected() => Ok(()),
            Self::Systemd(_) => Err("systemd cannot be reached over the bus".to_owned()),
            Self::Kubelet(kubelet) => {
                kubelet.trouble().map_or(Ok(()), |trouble| Err(trouble.to_owned()))
            }
        }
    }
}

impl Runtime for ConfiguredRuntime {
    async fn sync_pod(&self, pod: &Pod) -> Result<SyncedPod, RuntimeError> {
        boxed!(self, runtime => runtime.sync_pod(pod))
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

    async fn consent(&self, pods: &[Pod]) -> Result<Vec<(PodUid, Consent)>, RuntimeError> {
        match self {
            Self::Kubelet(runtime) => runtime.consent(pods).await,
            Self::Process(_) | Self::Cri(_) | Self::Systemd(_) => Ok(Vec::new()),
        }
    }

    fn announce(&self, ending: Option<Arc<NodeEnding>>) {
        match self {
            Self::Process(runtime) => runtime.announce(ending),
            Self::Cri(runtime) => runtime.announce(ending),
            Self::Systemd(runtime) => runtime.announce(ending),
            Self::Kubelet(runtime) => runtime.announce(ending),
        }
    }

    fn changes(&self) -> broadcast::Receiver<PodUid> {
        each!(self, runtime => runtime.changes())
    }

    fn record_to(&self, recorder: &Arc<dyn Recorder>) {
        match self {
            Self::Process(process) => process.record_to(recorder),
            Self::Cri(cri) => cri.record_to(recorder),
            Self::Systemd(systemd) => systemd.record_to(recorder),
            Self::Kubelet(_) => {}
        }
    }

    fn survives_soft_reboot(&self, uid: &PodUid) -> bool {
        each!(self, runtime => runtime.survives_soft_reboot(uid))
    }

    fn supports(&self, pod: &Pod) -> Result<(), RuntimeError> {
        each!(self, runtime => runtime.supports(pod))
    }
}
