//! Observations of logind and the service manager.

use winddown_shared::error_chain;
use winddown_systemd::inspect::{
    InspectError, InspectErrorKind, Inspector, LoginView, ServiceView, SliceView, SystemView,
};

use super::Place;
use crate::facts::{Fact, NotObserved, Scopes, UNIT};

/// The slice that contains the pods' services.
const SLICE: &str = "winddown.slice";
/// Container IDs are hexadecimal. CRI-O has other scopes with the same prefix: `crio-conmon-ID` for the monitor of each
/// container, `crio-pull-image-PID` for the pull of an image.
const SCOPES: [&str; 2] = ["cri-containerd-*.scope", "crio-[0-9a-f][0-9a-f]*.scope"];
/// Number of scopes that are inspected: all scopes of a node get the same drop-in, so a few are enough.
const LOOKED_AT: usize = 5;

/// The observations made over D-Bus.
pub(super) struct Seen {
    pub(super) login: Fact<LoginView>,
    pub(super) system: Fact<SystemView>,
    pub(super) service: Fact<ServiceView>,
    pub(super) scopes: Fact<Scopes>,
    pub(super) slice: Fact<SliceView>,
    pub(super) synchronised: Fact<bool>,
}

/// `pods_are_services`: whether to observe the pods' slice as well.
pub(super) async fn look(place: &Place, pods_are_services: bool) -> Seen {
    if !place.live {
        return nothing(NotObserved::NotLive, "not the running machine");
    }
    let inspector = match Inspector::connect(&place.bus, place.patience).await {
        Ok(inspector) => inspector,
        Err(error) => return nothing(kind(&error), &error_chain(&error)),
    };
    let slice = async {
        match pods_are_services {
            true => fact(inspector.slice(SLICE).await),
            false => Fact::not_live(),
        }
    };
    let (login, system, service, scopes, slice, synchronised) = tokio::join!(
        inspector.login(),
        inspector.system(),
        inspector.service(UNIT),
        inspector.scopes(&SCOPES, LOOKED_AT),
        slice,
        inspector.clock_synchronised(),
    );
    Seen {
        login: fact(login),
        system: fact(system),
        service: fact(service),
        scopes: fact(scopes.map(|(count, seen)| Scopes { count, seen })),
        slice,
        synchronised: fact(synchronised),
    }
}

fn nothing(kind: NotObserved, why: &str) -> Seen {
    Seen {
        login: Fact::Unknown(kind, why.to_owned()),
        system: Fact::Unknown(kind, why.to_owned()),
        service: Fact::Unknown(kind, why.to_owned()),
        scopes: Fact::Unknown(kind, why.to_owned()),
        slice: Fact::Unknown(kind, why.to_owned()),
        synchronised: Fact::Unknown(kind, why.to_owned()),
    }
}

fn fact<T>(answer: Result<T, InspectError>) -> Fact<T> {
    answer.map_or_else(|error| Fact::Unknown(kind(&error), error_chain(&error)), Fact::Known)
}

fn kind(error: &InspectError) -> NotObserved {
    match error.kind() {
        InspectErrorKind::Absent => NotObserved::Absent,
        InspectErrorKind::Denied => NotObserved::Denied,
        InspectErrorKind::Silent => NotObserved::Silent,
        InspectErrorKind::Failed => NotObserved::Failed,
    }
}
