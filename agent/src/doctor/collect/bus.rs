//! What logind and the service manager say.

use winddown_systemd::inspect::{
    InspectError, Inspector, LoginView, ServiceView, Silence, SystemView,
};

use super::Place;
use crate::doctor::facts::{Fact, Scopes, Unseen};

const UNIT: &str = "winddown.service";
const SCOPES: [&str; 2] = ["cri-containerd-*.scope", "crio-*.scope"];
/// Scopes of one node come from one drop-in: a few tell for all.
const LOOKED_AT: usize = 5;

/// What is seen over the bus.
pub(super) struct Seen {
    pub(super) login: Fact<LoginView>,
    pub(super) system: Fact<SystemView>,
    pub(super) service: Fact<ServiceView>,
    pub(super) scopes: Fact<Scopes>,
    pub(super) synchronised: Fact<bool>,
}

pub(super) async fn look(place: &Place) -> Seen {
    if !place.live {
        return nothing(Unseen::NotLive, "not the running machine");
    }
    let inspector = match Inspector::connect(&place.bus, place.patience).await {
        Ok(inspector) => inspector,
        Err(error) => return nothing(kind(&error), &reasons(&error)),
    };
    let (login, system, service, scopes, synchronised) = tokio::join!(
        inspector.login(),
        inspector.system(),
        inspector.service(UNIT),
        inspector.scopes(&SCOPES, LOOKED_AT),
        inspector.clock_synchronised(),
    );
    Seen {
        login: fact(login),
        system: fact(system),
        service: fact(service),
        scopes: fact(scopes.map(|(count, seen)| Scopes { count, seen })),
        synchronised: fact(synchronised),
    }
}

fn nothing(kind: Unseen, why: &str) -> Seen {
    Seen {
        login: Fact::Unseen(kind, why.to_owned()),
        system: Fact::Unseen(kind, why.to_owned()),
        service: Fact::Unseen(kind, why.to_owned()),
        scopes: Fact::Unseen(kind, why.to_owned()),
        synchronised: Fact::Unseen(kind, why.to_owned()),
    }
}

fn fact<T>(answer: Result<T, InspectError>) -> Fact<T> {
    answer.map_or_else(|error| Fact::Unseen(kind(&error), reasons(&error)), Fact::Known)
}

/// The error and its causes. The bus's errors repeat what they are caused by.
fn reasons(error: &InspectError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

fn kind(error: &InspectError) -> Unseen {
    match error.kind() {
        Silence::Absent => Unseen::Absent,
        Silence::Denied => Unseen::Denied,
        Silence::Silent => Unseen::Silent,
        Silence::Failed => Unseen::Failed,
    }
}
