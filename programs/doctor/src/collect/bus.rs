//! Observations of logind and the service manager.

use winddown_config::{Config, RuntimeKind};
use winddown_shared::error_chain;
use winddown_systemd::inspect::{InspectError, Inspector, ServiceView};

use super::ObservedNode;
use crate::facts::{
    BusFacts, DOCKERS_SCOPES, Fact, NotObserved, ORDER, Scopes, UNIT, scope_prefix,
};

/// The slice that contains the pods' services.
const SLICE: &str = "winddown.slice";
/// Container IDs are hexadecimal. CRI-O has other scopes with the same prefix: `crio-conmon-ID` for the monitor of each
/// container, `crio-pull-image-PID` for the pull of an image.
const SCOPES: [&str; 2] = ["cri-containerd-*.scope", "crio-[0-9a-f][0-9a-f]*.scope"];
/// Beside another runtime, Docker's containers are no pods: nothing has to order them.
const SCOPES_OF_DOCKER: [&str; 1] = ["docker-[0-9a-f][0-9a-f]*.scope"];
/// Number of scopes that are inspected: all scopes of a node get the same drop-in, so a few are enough.
const LOOKED_AT: usize = 5;

/// Observes the pods' slice only if pods are services.
pub(super) async fn look(place: &ObservedNode, config: &Config) -> BusFacts {
    if !place.live {
        return nothing(false, NotObserved::NotLive, "not the running machine");
    }
    // As sd_booted() does.
    let is_booted = place.root.join("run/systemd/system").is_dir();
    let inspector = match Inspector::connect(&place.bus, place.patience).await {
        Ok(inspector) => inspector,
        Err(error) => return nothing(is_booted, kind(&error), &error_chain(&error)),
    };
    let slice = async {
        match config.node.runtime == RuntimeKind::Systemd {
            true => fact(inspector.slice(SLICE).await),
            false => Fact::not_live(),
        }
    };
    let (login, system, service, limit, scopes, slice, synchronised) = tokio::join!(
        inspector.login(),
        inspector.system(),
        service(&inspector),
        inspector.limit_past_logind(),
        inspector.scopes(scopes_of(&config.node.container_runtime_endpoint), LOOKED_AT),
        slice,
        inspector.clock_synchronised(),
    );
    BusFacts {
        login: fact(login),
        system: fact(system),
        service: fact(service),
        limit: fact(limit),
        scopes: fact(scopes.map(|(count, seen)| Scopes { count, seen })),
        slice,
        synchronised: fact(synchronised),
        is_booted,
    }
}

/// The agent's service as its unit has it, on the machine that runs.
pub(crate) async fn agents_service(place: &ObservedNode) -> Fact<ServiceView> {
    match Inspector::connect_to_systemd(&place.bus, place.patience).await {
        Ok(inspector) => fact(inspector.service(UNIT).await),
        Err(error) => Fact::Unknown(kind(&error), error_chain(&error)),
    }
}

/// The agent's service, ordered also after what it is ordered after by way of a target.
async fn service(inspector: &Inspector) -> Result<ServiceView, InspectError> {
    let mut service = inspector.service(UNIT).await?;
    if service.after.iter().any(|unit| unit == ORDER) {
        // The agent's start starts the target.
        service.after.extend(match &*service.active_state {
            "inactive" => inspector.ordered_after(ORDER).await?,
            _ => inspector.stopped_after(ORDER).await?,
        });
    }
    Ok(service)
}

/// The names of the scopes in which the runtime at this endpoint runs containers, as patterns.
fn scopes_of(endpoint: &str) -> &'static [&'static str] {
    if scope_prefix(endpoint) == DOCKERS_SCOPES { &SCOPES_OF_DOCKER } else { &SCOPES }
}

fn nothing(is_booted: bool, kind: NotObserved, why: &str) -> BusFacts {
    BusFacts {
        login: Fact::Unknown(kind, why.to_owned()),
        system: Fact::Unknown(kind, why.to_owned()),
        service: Fact::Unknown(kind, why.to_owned()),
        limit: Fact::Unknown(kind, why.to_owned()),
        scopes: Fact::Unknown(kind, why.to_owned()),
        slice: Fact::Unknown(kind, why.to_owned()),
        synchronised: Fact::Unknown(kind, why.to_owned()),
        is_booted,
    }
}

fn fact<T>(answer: Result<T, InspectError>) -> Fact<T> {
    answer.map_or_else(|error| Fact::Unknown(kind(&error), error_chain(&error)), Fact::Known)
}

fn kind(error: &InspectError) -> NotObserved {
    match error {
        InspectError::Absent { .. } => NotObserved::Absent,
        InspectError::Denied { .. } => NotObserved::Denied,
        InspectError::Silent { .. } => NotObserved::Silent,
        InspectError::Failed { .. } => NotObserved::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_of_docker_are_pods_only_behind_cri_dockerd() {
        let cases: [(&str, &[&str]); 3] = [
            ("unix:///run/containerd/containerd.sock", &SCOPES),
            ("unix:///run/crio/crio.sock", &SCOPES),
            ("unix:///var/run/cri-dockerd.sock", &SCOPES_OF_DOCKER),
        ];
        for (endpoint, patterns) in cases {
            assert_eq!(scopes_of(endpoint), patterns, "{endpoint}");
        }
    }
}
