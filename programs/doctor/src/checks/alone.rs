//! A kubelet's node without winddown.

use winddown_node::KubeletPresence;

use crate::facts::{ConfigRead, Fact, Facts, NotObserved};

/// Whether nothing of winddown is installed.
pub(crate) fn is_without_winddown(facts: &Facts) -> bool {
    facts.config.read == ConfigRead::Defaults
        && facts.files.installed.known().is_some_and(|installed| !installed.unit)
        && matches!(facts.agent, Fact::Unknown(NotObserved::Absent | NotObserved::NotLive, _))
}

/// Whether a kubelet runs, or is set up to run, and nothing of winddown is installed.
pub(super) fn is_alone(facts: &Facts) -> bool {
    is_without_winddown(facts) && has_kubelet(facts)
}

fn has_kubelet(facts: &Facts) -> bool {
    let presence = facts.protection_facts().kubelet.presence;
    matches!(presence, Some(KubeletPresence::Runs | KubeletPresence::Enabled))
}
