//! Why something could not be seen.

use std::time::Duration;

/// Why something could not be seen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The name has no owner.
    #[error("{whom} is not there")]
    Absent {
        /// Who was asked.
        whom: &'static str,
        /// What the bus said.
        #[source]
        source: zbus::Error,
    },
    /// There is no bus.
    #[error(
        "{whom} is out of reach: no D-Bus answers at {address}; `systemctl start dbus` starts it"
    )]
    NoBus {
        /// Who was to be asked.
        whom: &'static str,
        /// Where the bus was looked for.
        address: String,
    },
    /// The caller may not ask.
    #[error("{whom} may not be asked by this user")]
    Denied {
        /// Who was asked.
        whom: &'static str,
        /// What the bus said.
        #[source]
        source: zbus::Error,
    },
    /// It is there and does not answer.
    #[error("{whom} has not answered within {after:?}")]
    Silent {
        /// Who was asked.
        whom: &'static str,
        /// How long it was given.
        after: Duration,
    },
    /// It answered something else.
    #[error("{whom} answered with an error")]
    Failed {
        /// Who was asked.
        whom: &'static str,
        /// What it said.
        #[source]
        source: zbus::Error,
    },
}

/// The kind of an [`InspectError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It is not there.
    Absent,
    /// It may not be asked.
    Denied,
    /// It does not answer.
    Silent,
    /// It answered with an error.
    Failed,
}

impl InspectError {
    /// What kind of silence it is.
    pub fn kind(&self) -> Silence {
        match self {
            Self::Absent { .. } | Self::NoBus { .. } => Silence::Absent,
            Self::Denied { .. } => Silence::Denied,
            Self::Silent { .. } => Silence::Silent,
            Self::Failed { .. } => Silence::Failed,
        }
    }

    /// Sorts an error of the bus; `whom` names who was asked.
    pub(super) fn of(whom: &'static str, source: zbus::Error) -> Self {
        if let zbus::Error::Connection(io, address) = &source
            && by_io(io.kind()) == Silence::Absent
        {
            return Self::NoBus { whom, address: address.to_string() };
        }
        match kind(&source) {
            Silence::Absent => Self::Absent { whom, source },
            Silence::Denied => Self::Denied { whom, source },
            Silence::Silent | Silence::Failed => Self::Failed { whom, source },
        }
    }
}

fn kind(error: &zbus::Error) -> Silence {
    match error {
        zbus::Error::InputOutput(io) => by_io(io.kind()),
        zbus::Error::Connection(io, _) => by_io(io.kind()),
        zbus::Error::FDO(error) => by_name(zbus::DBusError::name(&**error).as_str()),
        zbus::Error::MethodError(name, ..) => by_name(name.as_str()),
        _ => Silence::Failed,
    }
}

fn by_io(kind: std::io::ErrorKind) -> Silence {
    use std::io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound, PermissionDenied};
    match kind {
        NotFound | NotADirectory | ConnectionRefused => Silence::Absent,
        PermissionDenied => Silence::Denied,
        _ => Silence::Failed,
    }
}

/// What the bus says of a service that it cannot start: there is none, or its unit is masked.
fn by_name(name: &str) -> Silence {
    let short = name.strip_prefix("org.freedesktop.").unwrap_or(name);
    match short {
        "DBus.Error.ServiceUnknown"
        | "DBus.Error.NameHasNoOwner"
        | "systemd1.NoSuchUnit"
        | "systemd1.UnitMasked"
        | "systemd1.LoadFailed"
        | "systemd1.BadUnitSetting"
        // What systemd 252 says of a masked unit that is asked for by its alias.
        | "DBus.Error.FileExists"
        | "systemd1.JobFailed" => Silence::Absent,
        _ if short.starts_with("DBus.Error.Spawn.") => Silence::Absent,
        "DBus.Error.AccessDenied" | "DBus.Error.AuthFailed" => Silence::Denied,
        _ => Silence::Failed,
    }
}
