//! Classifies failed calls to systemd.

use winddown_host::service_units::UnitError;
use zbus::fdo;

use crate::trouble::trouble;

/// Classifies the error of a call about `unit`.
pub(crate) fn sorted(call: &'static str, unit: &str, error: &zbus::Error) -> UnitError {
    let why = trouble(error);
    match error {
        zbus::Error::MethodError(name, ..) => by_name(call, unit, name.as_str(), why),
        zbus::Error::FDO(error) => match &**error {
            fdo::Error::ZBus(inner) => sorted(call, unit, inner),
            other => by_name(call, unit, zbus::DBusError::name(other).as_str(), why),
        },
        zbus::Error::InputOutput(_)
        | zbus::Error::Connection(..)
        | zbus::Error::Handshake(_)
        | zbus::Error::Address(_) => UnitError::Silent { call, why },
        _ => UnitError::Refused { call, why },
    }
}

fn by_name(call: &'static str, unit: &str, name: &str, why: String) -> UnitError {
    match name.strip_prefix("org.freedesktop.").unwrap_or(name) {
        "systemd1.UnitExists" => UnitError::Exists { unit: unit.to_owned() },
        // Without its main process a unit cannot be signalled either.
        "systemd1.NoSuchUnit" | "systemd1.NoSuchProcess" | "DBus.Error.UnknownObject" => {
            UnitError::Absent { call, unit: unit.to_owned() }
        }
        "DBus.Error.NoReply"
        | "DBus.Error.Timeout"
        | "DBus.Error.TimedOut"
        | "DBus.Error.Disconnected"
        | "DBus.Error.NameHasNoOwner"
        | "DBus.Error.ServiceUnknown" => UnitError::Silent { call, why },
        _ => UnitError::Refused { call, why },
    }
}
