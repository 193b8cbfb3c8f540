//! Verifies the senders of signals, because any process on the bus may send a signal that looks
//! like logind's.
//!
//! The default policy of the system bus lets every client send signals. The bus filters broadcasts
//! of other senders by our match rules, but delivers messages that are addressed to us. So each
//! message is verified by its sender, which the bus sets and no client can forge: it must be the
//! current owner of logind's name.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use winddown_shared::ShutdownKind;
use zbus::message::{Header, Type};
use zbus::names::OwnedUniqueName;
use zbus::{Connection, MatchRule, Message, MessageStream, OwnedVariant, Variant, fdo};

use super::super::session::LogindEvent;
use super::LOGIN1;
use crate::name_owner::{self, Owner};

const LOGIN_PATH: &str = "/org/freedesktop/login1";
const LOGIN_INTERFACE: &str = "org.freedesktop.login1.Manager";
const PLAIN: &str = "PrepareForShutdown";
const WITH_METADATA: &str = "PrepareForShutdownWithMetadata";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const CHANGED: &str = "PropertiesChanged";
/// Properties of logind that change when a shutdown begins or is called off. Which of them are
/// announced depends on its version.
const TELLING: [&str; 3] =
    ["PreparingForShutdown", "PreparingForShutdownWithMetadata", "ScheduledShutdown"];
/// The shortest time between two log lines about forged signals, which may arrive in a flood. Each line has a count.
const MIN_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Returns the match rules. The bus resolves logind's name for each message, so they also match a
/// restarted logind, and broadcasts of other senders cost nothing.
pub(super) fn rules() -> [zbus::Result<MatchRule<'static>>; 4] {
    let signal = || MatchRule::builder().msg_type(Type::Signal);
    let of_logind = |interface: &'static str, member: &'static str| {
        signal().sender(LOGIN1).path(LOGIN_PATH).interface(interface).member(member)
    };
    let prepare = |member| of_logind(LOGIN_INTERFACE, member);
    let changed = of_logind(PROPERTIES, CHANGED).arg(0, LOGIN_INTERFACE);
    [
        prepare(PLAIN).build(),
        prepare(WITH_METADATA).build(),
        changed.build(),
        name_owner::rule(LOGIN1),
    ]
}

/// Distinguishes signals of the login manager from others.
#[derive(Debug)]
pub(super) struct SignalVerifier {
    on_bus: bool,
    /// `None` until the owner is known.
    owner: Option<Owner>,
}

#[derive(Debug, PartialEq)]
pub(super) enum MessageVerdict {
    Other,
    Believed(LogindEvent),
    /// The message looks like a signal of the login manager, but is not valid.
    Refused(&'static str),
}

impl SignalVerifier {
    /// Creates a verifier that does not know the owner yet. Without a bus there is only one peer, and it is trusted.
    pub(super) fn new(on_bus: bool) -> Self {
        Self { on_bus, owner: None }
    }

    /// Records the queried owner of the name, unless a change was received in the meantime, which
    /// is at least as new.
    pub(super) fn owner_is(&mut self, owner: Owner) {
        self.owner.get_or_insert(owner);
    }

    /// Judges a message that arrived at `at`. Never panics on any content.
    pub(super) fn judge(&mut self, message: &Message, at: Instant) -> MessageVerdict {
        let header = message.header();
        if header.message_type() != Type::Signal {
            return MessageVerdict::Other;
        }
        let member = header.member().map_or("", |member| member.as_str());
        match member {
            PLAIN | WITH_METADATA => self.judge_prepare(message, &header, at),
            CHANGED => self.judge_change(message, &header, at),
            "NameOwnerChanged" => self.judge_owner(message),
            _ => MessageVerdict::Other,
        }
    }

    fn judge_prepare(&self, message: &Message, header: &Header<'_>, at: Instant) -> MessageVerdict {
        if let Some(verdict) = self.not_the_owners(header) {
            return verdict;
        }
        if header.path().is_none_or(|path| path.as_str() != LOGIN_PATH)
            || header.interface().is_none_or(|interface| interface.as_str() != LOGIN_INTERFACE)
        {
            return MessageVerdict::Refused("wrong object path or interface");
        }
        let body = message.body();
        let plain = header.member().is_some_and(|member| member.as_str() == PLAIN);
        let read = if plain {
            body.deserialize::<bool>().map(|begins| (begins, ShutdownKind::Unknown))
        } else {
            body.deserialize::<(bool, HashMap<String, OwnedVariant>)>()
                .map(|(begins, metadata)| (begins, kind_in(&metadata)))
        };
        match read {
            Ok((begins, kind)) => {
                MessageVerdict::Believed(LogindEvent::Prepare { begins, kind, at })
            }
            Err(_) => MessageVerdict::Refused("malformed body"),
        }
    }

    fn judge_change(&self, message: &Message, header: &Header<'_>, at: Instant) -> MessageVerdict {
        // Sessions, seats and users have paths of their own.
        if header.path().is_none_or(|path| path.as_str() != LOGIN_PATH)
            || header.interface().is_none_or(|interface| interface.as_str() != PROPERTIES)
        {
            return MessageVerdict::Other;
        }
        if let Some(verdict) = self.not_the_owners(header) {
            return verdict;
        }
        let body = message.body();
        let read = body.deserialize::<(&str, HashMap<&str, Variant<'_>>, Vec<&str>)>();
        let Ok((interface, changed, invalidated)) = read else {
            return MessageVerdict::Refused("malformed body");
        };
        let tells = |name: &&str| TELLING.contains(name);
        if interface == LOGIN_INTERFACE
            && (changed.keys().any(tells) || invalidated.iter().any(tells))
        {
            return MessageVerdict::Believed(LogindEvent::Changed { at });
        }
        MessageVerdict::Other
    }

    /// Returns the verdict on a message that is not from the owner; `None` if the sender owns the name.
    fn not_the_owners(&self, header: &Header<'_>) -> Option<MessageVerdict> {
        if !self.on_bus {
            return None;
        }
        // Nothing can be verified before the owner is known; the state is read right after that.
        let Some(owner) = &self.owner else { return Some(MessageVerdict::Other) };
        match (header.sender(), owner) {
            (Some(sender), Some(owner)) if *sender == *owner => None,
            _ => Some(MessageVerdict::Refused("the sender does not own org.freedesktop.login1")),
        }
    }

    fn judge_owner(&mut self, message: &Message) -> MessageVerdict {
        let changed = name_owner::change(message, LOGIN1).filter(|_| self.on_bus);
        let Some(owner) = changed else { return MessageVerdict::Other };
        let event = if owner.is_some() { LogindEvent::Back } else { LogindEvent::Gone };
        self.owner = Some(owner);
        MessageVerdict::Believed(event)
    }
}

/// Reads the kind of shutdown from the metadata of the signal, or of the property.
pub(super) fn kind_in(metadata: &HashMap<String, OwnedVariant>) -> ShutdownKind {
    let named = metadata.get("type").and_then(|value| value.downcast_ref::<&str>().ok());
    named.map_or(ShutdownKind::Unknown, kind_named)
}

/// Parses logind's name for a kind of shutdown.
pub(super) fn kind_named(name: &str) -> ShutdownKind {
    match name {
        "poweroff" => ShutdownKind::PowerOff,
        "halt" => ShutdownKind::Halt,
        "reboot" => ShutdownKind::Reboot,
        "kexec" => ShutdownKind::Kexec,
        "soft-reboot" => ShutdownKind::SoftReboot,
        _ => ShutdownKind::Unknown,
    }
}

/// Counts rejected signals and logs them at a limited rate.
pub(super) struct Refusals {
    connection: Connection,
    count: Arc<AtomicU64>,
    told_at: Option<Instant>,
}

impl Refusals {
    /// Counts in `count`, and queries the sender's user on `connection`.
    pub(super) fn new(connection: Connection, count: Arc<AtomicU64>) -> Self {
        Self { connection, count, told_at: None }
    }

    fn take(&mut self, message: &Message, why: &'static str, now: Instant) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if self.told_at.is_some_and(|told| now.duration_since(told) < MIN_LOG_INTERVAL) {
            return;
        }
        self.told_at = Some(now);
        let connection = self.connection.clone();
        let sender =
            message.header().sender().map(|sender| OwnedUniqueName::from(sender.to_owned()));
        // In its own task: the query must not delay the following signals.
        tokio::spawn(async move {
            let uid = match &sender {
                Some(sender) if connection.is_bus() => user_of(&connection, sender).await,
                _ => None,
            };
            tracing::warn!(
                log_kind = "signalIgnored",
                sender = sender.as_ref().map_or("unknown", |sender| sender.as_str()),
                uid,
                refused_so_far = count,
                "ignored a shutdown signal: {why}"
            );
        });
    }
}

async fn user_of(connection: &Connection, sender: &OwnedUniqueName) -> Option<u32> {
    let driver = fdo::DBusProxy::builder(connection);
    let driver = driver.cache_properties(zbus::proxy::CacheProperties::No).build().await.ok()?;
    driver.get_connection_unix_user(sender.as_ref().into()).await.ok()
}

/// Reads the connection until it closes, and forwards the verified events.
///
/// Must run while the connection is still being set up: a peer that floods us could otherwise fill
/// the queue and keep replies out.
pub(super) async fn read_signals(
    mut messages: MessageStream,
    mut judge: SignalVerifier,
    owner: oneshot::Receiver<Owner>,
    heard: mpsc::Sender<LogindEvent>,
    mut refusals: Refusals,
) {
    let mut owner = pin!(owner);
    let mut asked = true;
    loop {
        let message = tokio::select! {
            biased;
            known = &mut owner, if asked => {
                asked = false;
                // An error means that the set-up failed, and this task is about to be aborted.
                if let Ok(known) = known {
                    judge.owner_is(known);
                }
                continue;
            }
            message = messages.next() => message,
        };
        let at = Instant::now();
        let Some(Ok(message)) = message else { break };
        match judge.judge(&message, at) {
            MessageVerdict::Other => {}
            MessageVerdict::Believed(event) => {
                if heard.send(event).await.is_err() {
                    break;
                }
            }
            MessageVerdict::Refused(why) => refusals.take(&message, why, at),
        }
    }
}

#[cfg(test)]
mod tests;
