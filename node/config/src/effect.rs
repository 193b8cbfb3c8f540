//! Where an option has an effect: not in every mode, nor with every runtime.

use super::kubelet_fields::KUBELET_FIELDS;
use crate::{Mode, NodeOptions, RuntimeKind};

/// Where an option has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// In every mode, with every runtime.
    Everywhere,
    /// Not beside a kubelet, for this reason.
    NotBesideKubelet(&'static str),
    /// Where there is an API server.
    WithApiServer,
    /// With `mode: cluster`.
    Cluster,
    /// With `mode: companion`.
    Companion,
    /// With `runtime: cri`, and not beside a kubelet.
    Cri,
    /// Where there is a container runtime, the agent's own or a kubelet's.
    WithContainerRuntime,
}

impl Effect {
    pub(crate) const ADMISSION: Self = Self::NotBesideKubelet("the kubelet admits pods");
    pub(crate) const PODS: Self = Self::NotBesideKubelet("the kubelet runs pods");
    pub(crate) const EVICTION: Self = Self::NotBesideKubelet("the kubelet evicts pods");
    pub(crate) const LOGS: Self = Self::NotBesideKubelet("the kubelet writes the logs of pods");

    /// Returns where the option has an effect, as a sentence; `None` if that is everywhere.
    pub fn sentence(self) -> Option<&'static str> {
        match self {
            Self::Everywhere => None,
            Self::NotBesideKubelet(_) => Some("Not with `mode: companion`."),
            Self::WithApiServer => Some("Not with `mode: standalone`."),
            Self::Cluster => Some("With `mode: cluster`."),
            Self::Companion => Some("With `mode: companion`."),
            Self::Cri => Some("With `runtime: cri`."),
            Self::WithContainerRuntime => Some("With `runtime: cri` or `mode: companion`."),
        }
    }

    /// Says that the option `name` has no effect on a node like this, and what to do; `None` if it has one.
    pub(crate) fn missing(self, name: &str, node: &NodeOptions) -> Option<String> {
        let is_beside_kubelet = node.mode == Mode::Companion;
        let (without, why) = match self {
            Self::NotBesideKubelet(why) if is_beside_kubelet => ("with `mode: companion`", why),
            Self::Cri if is_beside_kubelet => ("with `mode: companion`", ""),
            Self::Cri | Self::WithContainerRuntime
                if !is_beside_kubelet && node.runtime != RuntimeKind::Cri =>
            {
                ("without `runtime: cri`", "")
            }
            Self::Cluster if node.mode != Mode::Cluster => ("without `mode: cluster`", ""),
            Self::Companion if !is_beside_kubelet => ("without `mode: companion`", ""),
            // Beside a kubelet, `mode: cluster` would be a second node agent under the node's name.
            Self::WithApiServer if node.mode == Mode::Standalone => (
                "with `mode: standalone`",
                "write `mode: companion` beside a kubelet, and `mode: cluster` without one",
            ),
            Self::Everywhere
            | Self::NotBesideKubelet(_)
            | Self::WithApiServer
            | Self::Cluster
            | Self::Companion
            | Self::Cri
            | Self::WithContainerRuntime => return None,
        };
        let has_kubelet = is_beside_kubelet && KUBELET_FIELDS.contains(&name);
        let instead = has_kubelet.then_some("set it in the kubelet's configuration");
        let reasons = [why].into_iter().filter(|why| !why.is_empty()).chain(instead);
        Some(reasons.fold(format!("has no effect {without}"), |said, why| format!("{said}: {why}")))
    }
}
