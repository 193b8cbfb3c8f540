//! Why a request to systemd failed.

use zbus::fdo;

/// Why a request to systemd failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// A unit of this name is loaded.
    #[error("{call}: a unit of this name is there already")]
    Exists {
        /// The method.
        call: &'static str,
    },
    /// There is no such unit.
    #[error("{call}: there is no such unit")]
    Absent {
        /// The method.
        call: &'static str,
    },
    /// It refused.
    #[error("{call}: {detail}")]
    Refused {
        /// The method.
        call: &'static str,
        /// What it said.
        detail: String,
    },
    /// There is no connection, or no answer. Whether the request took effect is unknown.
    #[error("{call}: no answer: {detail}")]
    Silent {
        /// The method.
        call: &'static str,
        /// What was met instead.
        detail: String,
    },
}

impl ServiceError {
    /// Sorts an error of the bus.
    pub(super) fn of(call: &'static str, error: &zbus::Error) -> Self {
        let detail = error.to_string();
        match error {
            zbus::Error::MethodError(name, ..) => by_name(call, name.as_str(), detail),
            zbus::Error::FDO(error) => match &**error {
                fdo::Error::ZBus(inner) => Self::of(call, inner),
                other => by_name(call, zbus::DBusError::name(other).as_str(), detail),
            },
            zbus::Error::InputOutput(_)
            | zbus::Error::Connection(..)
            | zbus::Error::Handshake(_)
            | zbus::Error::Address(_) => Self::Silent { call, detail },
            _ => Self::Refused { call, detail },
        }
    }
}

fn by_name(call: &'static str, name: &str, detail: String) -> ServiceError {
    match name.strip_prefix("org.freedesktop.").unwrap_or(name) {
        "systemd1.UnitExists" => ServiceError::Exists { call },
        "systemd1.NoSuchUnit" | "DBus.Error.UnknownObject" => ServiceError::Absent { call },
        "DBus.Error.NoReply"
        | "DBus.Error.Timeout"
        | "DBus.Error.TimedOut"
        | "DBus.Error.Disconnected"
        | "DBus.Error.NameHasNoOwner"
        | "DBus.Error.ServiceUnknown" => ServiceError::Silent { call, detail },
        _ => ServiceError::Refused { call, detail },
    }
}
