//! A kubelet's node without winddown, or with one that nobody uses.

use winddown_node::KubeletPresence;

use crate::facts::{ConfigRead, Fact, Facts, NotObserved};

/// Whether nothing of winddown is installed, or what is installed does nothing on a kubelet's node.
pub(crate) fn is_without_winddown(facts: &Facts) -> bool {
    let Some(installed) = facts.files.installed.known() else { return false };
    let is_absent = facts.config.read == ConfigRead::Defaults && !installed.unit;
    matches!(facts.agent, Fact::Unknown(NotObserved::Absent | NotObserved::NotLive, _))
        && (is_absent || is_idle(facts))
}

/// Whether the agent neither runs nor starts at boot, as a package leaves it, and nobody has made it the companion of the
/// kubelet that is here.
pub(super) fn is_idle(facts: &Facts) -> bool {
    let installed = facts.files.installed.known();
    facts.config.is_read()
        && !facts.is_beside_kubelet()
        && installed.is_some_and(|installed| installed.unit && !installed.enabled)
        && match &facts.bus.service {
            Fact::Known(service) => service.active_state == "inactive",
            Fact::Unknown(why, _) => *why == NotObserved::NotLive,
        }
        && has_kubelet(facts)
}

/// Whether a kubelet runs, or is set up to run, and nothing of winddown is installed.
pub(super) fn is_alone(facts: &Facts) -> bool {
    is_without_winddown(facts) && has_kubelet(facts)
}

fn has_kubelet(facts: &Facts) -> bool {
    let presence = facts.kubelet_facts().presence;
    matches!(presence, Some(KubeletPresence::Runs | KubeletPresence::Enabled))
}
