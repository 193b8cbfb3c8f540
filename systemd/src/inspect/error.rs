//! The errors of queries to logind and the service manager.

use std::time::Duration;

/// Why a query failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The service does not run and cannot be started.
    #[error("{whom} is not there")]
    Absent {
        /// The service that was queried.
        whom: &'static str,
        /// The error from the bus.
        #[source]
        source: zbus::Error,
    },
    /// There is no bus.
    #[error(
        "{whom} is out of reach: no D-Bus answers at {address}; `systemctl start dbus` starts it"
    )]
    NoBus {
        /// The service to be queried.
        whom: &'static str,
        /// The address of the bus.
        address: String,
    },
    /// The caller lacks permission.
    #[error("{whom} may not be asked by this user")]
    Denied {
        /// The service that was queried.
        whom: &'static str,
        /// The error from the bus.
        #[source]
        source: zbus::Error,
    },
    /// The service does not answer.
    #[error("{whom} has not answered within {after:?}")]
    Silent {
        /// The service that was queried.
        whom: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// The service answered with an error.
    #[error("{whom} answered with an error")]
    Failed {
        /// The service that was queried.
        whom: &'static str,
        /// The service's error.
        #[source]
        source: zbus::Error,
    },
}

/// The kind of an [`InspectError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectErrorKind {
    /// The service or the bus does not exist.
    Absent,
    /// The caller may not query it.
    Denied,
    /// It does not answer.
    Silent,
    /// It answered with an error.
    Failed,
}

impl InspectError {
    /// Returns the kind of the error.
    pub fn kind(&self) -> InspectErrorKind {
        match self {
            Self::Absent { .. } | Self::NoBus { .. } => InspectErrorKind::Absent,
            Self::Denied { .. } => InspectErrorKind::Denied,
            Self::Silent { .. } => InspectErrorKind::Silent,
            Self::Failed { .. } => InspectErrorKind::Failed,
        }
    }

    /// Classifies an error from the bus; `whom` is the service that was queried.
    pub(super) fn of(whom: &'static str, source: zbus::Error) -> Self {
        if let zbus::Error::Connection(io, address) = &source
            && by_io(io.kind()) == InspectErrorKind::Absent
        {
            return Self::NoBus { whom, address: address.to_string() };
        }
        match kind(&source) {
            InspectErrorKind::Absent => Self::Absent { whom, source },
            InspectErrorKind::Denied => Self::Denied { whom, source },
            InspectErrorKind::Silent | InspectErrorKind::Failed => Self::Failed { whom, source },
        }
    }
}

fn kind(error: &zbus::Error) -> InspectErrorKind {
    match error {
        zbus::Error::InputOutput(io) => by_io(io.kind()),
        zbus::Error::Connection(io, _) => by_io(io.kind()),
        zbus::Error::FDO(error) => by_name(zbus::DBusError::name(&**error).as_str()),
        zbus::Error::MethodError(name, ..) => by_name(name.as_str()),
        _ => InspectErrorKind::Failed,
    }
}

fn by_io(kind: std::io::ErrorKind) -> InspectErrorKind {
    use std::io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound, PermissionDenied};
    match kind {
        NotFound | NotADirectory | ConnectionRefused => InspectErrorKind::Absent,
        PermissionDenied => InspectErrorKind::Denied,
        _ => InspectErrorKind::Failed,
    }
}

/// Classifies a D-Bus error name. The bus reports a service that it cannot start in many ways: it
/// does not exist, or its unit is masked.
fn by_name(name: &str) -> InspectErrorKind {
    let short = name.strip_prefix("org.freedesktop.").unwrap_or(name);
    match short {
        "DBus.Error.ServiceUnknown"
        | "DBus.Error.NameHasNoOwner"
        | "systemd1.NoSuchUnit"
        | "systemd1.UnitMasked"
        | "systemd1.LoadFailed"
        | "systemd1.BadUnitSetting"
        // The error of systemd 252 for a masked unit that is requested by its alias.
        | "DBus.Error.FileExists"
        | "systemd1.JobFailed" => InspectErrorKind::Absent,
        _ if short.starts_with("DBus.Error.Spawn.") => InspectErrorKind::Absent,
        "DBus.Error.AccessDenied" | "DBus.Error.AuthFailed" => InspectErrorKind::Denied,
        _ => InspectErrorKind::Failed,
    }
}
