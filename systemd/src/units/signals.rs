//! Handles signals from systemd.

use std::collections::HashMap;

use tokio::sync::broadcast;
use winddown_host::service_units::{UnitChange, UnitView};
use zbus::message::{Header, Type};
use zbus::{MatchRule, Message, OwnedObjectPath, OwnedVariant};

use super::path::unit_of;
use super::state::UnitProperties;
use crate::manager::{MANAGER, MANAGER_PATH, SERVICE, SYSTEMD1, UNIT};
use crate::name_owner::{self, Owner};
use winddown_shared::Mutex;

pub(super) const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// Returns the match rules: changes of services, removed units, and changes of the owner of systemd's name.
pub(super) fn rules() -> [zbus::Result<MatchRule<'static>>; 4] {
    let signal = || MatchRule::builder().msg_type(Type::Signal);
    let changed = |interface: &'static str| {
        signal()
            .sender(SYSTEMD1)
            .path_namespace("/org/freedesktop/systemd1/unit")
            .interface(PROPERTIES)
            .member("PropertiesChanged")
            .arg(0, interface)
            .build()
    };
    let removed =
        signal().sender(SYSTEMD1).path(MANAGER_PATH).interface(MANAGER).member("UnitRemoved");
    [changed(SERVICE), changed(UNIT), removed.build(), name_owner::rule(SYSTEMD1)]
}

/// The properties received for our units, and the subscribers to their changes.
#[derive(Debug)]
pub(super) struct UnitSignals {
    prefix: String,
    known: Mutex<HashMap<String, UnitProperties>>,
    changes: broadcast::Sender<UnitChange>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TrustedSender {
    /// The only peer of a connection without a bus.
    Peer,
    /// The owner of systemd's name; `None` while it has no owner.
    Owner(Owner),
}

impl UnitSignals {
    pub(super) fn new(prefix: &str, capacity: usize) -> Self {
        let changes = broadcast::Sender::new(capacity);
        Self { prefix: prefix.to_owned(), known: Mutex::default(), changes }
    }

    pub(super) fn listen(&self) -> broadcast::Receiver<UnitChange> {
        self.changes.subscribe()
    }

    /// Announces that changes may have been missed.
    pub(super) fn missed(&self) {
        self.send(UnitChange::Missed);
    }

    /// Stores all properties of a unit, and returns its state.
    pub(super) fn learn(
        &self,
        unit: &str,
        properties: &[HashMap<String, OwnedVariant>],
    ) -> UnitView {
        let mut known = UnitProperties::default();
        properties.iter().for_each(|some| known.take(some));
        let state = known.state();
        self.known.lock().insert(unit.to_owned(), known);
        state
    }

    /// Processes a message. Returns true if systemd's name has a new owner. Never waits, and never
    /// panics on any content.
    pub(super) fn take(&self, message: &Message, trusted: &mut TrustedSender) -> bool {
        let header = message.header();
        if header.message_type() != Type::Signal {
            return false;
        }
        match header.member().map_or("", |member| member.as_str()) {
            "PropertiesChanged" if is_trusted(&header, trusted) => self.changed(message, &header),
            "UnitRemoved" if is_trusted(&header, trusted) => self.removed(message),
            "NameOwnerChanged" => return owner_changed(message, trusted),
            _ => {}
        }
        false
    }

    fn changed(&self, message: &Message, header: &Header<'_>) {
        let Some(unit) = header.path().and_then(|path| unit_of(path.as_str(), &self.prefix)) else {
            return;
        };
        let body = message.body();
        let read = body.deserialize::<(String, HashMap<String, OwnedVariant>, Vec<String>)>();
        let Ok((interface, properties, _)) = read else { return };
        if interface != SERVICE && interface != UNIT {
            return;
        }
        let view = {
            let mut all = self.known.lock();
            let known = all.entry(unit.clone()).or_default();
            known.take(&properties);
            known.state()
        };
        // systemd sends the properties of the `Unit` interface last; they complete those of `Service`.
        if interface == UNIT {
            self.send(UnitChange::Seen { unit: unit.into(), view });
        }
    }

    fn removed(&self, message: &Message) {
        let body = message.body();
        let Ok((unit, _)) = body.deserialize::<(String, OwnedObjectPath)>() else { return };
        if unit.starts_with(&self.prefix) {
            self.known.lock().remove(&unit);
            self.send(UnitChange::Vanished { unit: unit.into() });
        }
    }

    fn send(&self, change: UnitChange) {
        // Fails only if there are no receivers.
        let _ = self.changes.send(change);
    }
}

fn is_trusted(header: &Header<'_>, trusted: &TrustedSender) -> bool {
    match trusted {
        TrustedSender::Peer => true,
        TrustedSender::Owner(None) => false,
        TrustedSender::Owner(Some(owner)) => {
            header.sender().is_some_and(|sender| *sender == *owner)
        }
    }
}

fn owner_changed(message: &Message, trusted: &mut TrustedSender) -> bool {
    let changed = name_owner::change(message, SYSTEMD1);
    let Some(owner) = changed.filter(|_| *trusted != TrustedSender::Peer) else { return false };
    let is_there = owner.is_some();
    *trusted = TrustedSender::Owner(owner);
    is_there
}
