//! What keeps the agent of this machine from starting with a configuration that is valid.

use std::time::Duration;

use winddown_config::Config;

use crate::checks::{kept_away, no_group};
use crate::collect::{ObservedNode, agents_service, missing_group, out_of_reach};

/// Says, one line for each field, why the agent of this machine cannot use `config`: what the checks `socket` and `sandbox`
/// find. Nothing where systemd has no unit of the agent. Takes about three times `patience` at most, whatever hangs.
///
/// Cancel-safe.
pub async fn obstacles(config: &Config, patience: Duration) -> Vec<String> {
    let place = &ObservedNode::this_machine(patience);
    let service = agents_service(place).await;
    if service.known().is_none_or(|service| service.load_state != "loaded") {
        return Vec::new();
    }
    let (group, paths) =
        tokio::join!(missing_group(place, config), out_of_reach(place, config, &service));
    let group = group.known().cloned().flatten();
    // An agent that waits for its credentials runs all the same.
    let paths = paths.known().into_iter().flatten().filter(|one| one.kubeconfig.is_none());
    let paths = paths.map(kept_away);
    group.iter().map(|group| no_group(group)).chain(paths).collect()
}
