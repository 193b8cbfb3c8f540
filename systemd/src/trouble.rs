//! Says in words for operators why the bus, or a service on it, did not do what it was asked to: the library's own words
//! are for programmers.

use std::io::ErrorKind;

use zbus::{DBusError as _, fdo};

#[cfg(test)]
mod tests;

/// The next step where an answer has another form than expected.
const CHECK: &str = "check what answers, and its version";
const STUCK: &str = "it may hang, and its log may say why";

/// What went wrong, and what to do next. A service's own sentence is kept.
pub(crate) fn trouble(error: &zbus::Error) -> String {
    let said = |what: &str, next: &str| format!("{what}: {next}");
    match error {
        zbus::Error::MethodError(name, text, _) => refusal(name.as_str(), text.as_deref()),
        zbus::Error::FDO(error) => match &**error {
            fdo::Error::ZBus(inner) => trouble(inner),
            other => refusal(other.name().as_str(), other.description()),
        },
        zbus::Error::Connection(io, address) if is_no_bus(io.kind()) => {
            format!("no D-Bus answers at {address}; `systemctl start dbus` starts it")
        }
        zbus::Error::InputOutput(io) | zbus::Error::Connection(io, _) => match io.kind() {
            kind if is_no_bus(kind) => "no D-Bus answers; `systemctl start dbus` starts it".into(),
            ErrorKind::PermissionDenied => said("its socket may not be opened", "root is required"),
            ErrorKind::TimedOut | ErrorKind::WouldBlock => said("no answer in time", STUCK),
            ErrorKind::InvalidData => said("the answer cannot be read", CHECK),
            _ => said("the connection was lost", "the bus may be restarting"),
        },
        zbus::Error::Handshake(_) => said(
            "what answers there lets this user not in by D-Bus",
            "check DBUS_SYSTEM_BUS_ADDRESS",
        ),
        zbus::Error::Address(_) => {
            said("its address cannot be read", "correct DBUS_SYSTEM_BUS_ADDRESS, or unset it")
        }
        _ => said("the answer is not as systemd 252 and later give it", CHECK),
    }
}

/// Whether nothing listens at the socket of the bus.
pub(crate) fn is_no_bus(kind: ErrorKind) -> bool {
    use ErrorKind::{ConnectionRefused, NotADirectory, NotFound};
    matches!(kind, NotFound | NotADirectory | ConnectionRefused)
}

/// The service's sentence, or else the error's name in words, and what to do about that error.
fn refusal(name: &str, said: Option<&str>) -> String {
    let said = said.map(|said| said.trim().trim_end_matches('.')).filter(|said| !said.is_empty());
    let short = name.rsplit('.').next().unwrap_or(name);
    let next = match short {
        "AccessDenied" | "AuthFailed" | "InteractiveAuthorizationRequired" => "root is required",
        "ServiceUnknown" | "NameHasNoOwner" => "start that service, or unmask it",
        "NoReply" | "Timeout" | "TimedOut" | "Disconnected" => STUCK,
        "InvalidArgs" | "InvalidSignature" | "UnknownInterface" | "UnknownMethod"
        | "UnknownObject" | "UnknownProperty" => CHECK,
        _ => "its log may say more",
    };
    format!("{}: {next}", said.map_or_else(|| in_words(short), str::to_owned))
}

/// `UnitMasked` as `unit masked`.
fn in_words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}
