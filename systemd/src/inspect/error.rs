//! The errors of queries to logind and the service manager.

use std::time::Duration;

use crate::trouble::{is_no_bus, trouble};

/// Why a query failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// There is no bus, or the service does not run and cannot be started.
    #[error("cannot reach {whom}: {}", trouble(.cause))]
    Absent {
        /// The service that was queried.
        whom: &'static str,
        /// The error from the bus.
        cause: zbus::Error,
    },
    /// The caller lacks permission.
    #[error("this user may not query {whom}: {}", trouble(.cause))]
    Denied {
        /// The service that was queried.
        whom: &'static str,
        /// The error from the bus.
        cause: zbus::Error,
    },
    /// The service does not answer.
    #[error("{whom} did not answer within {after:?}")]
    Silent {
        /// The service that was queried.
        whom: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// The service answered with an error.
    #[error("{whom} answered with an error: {}", trouble(.cause))]
    Failed {
        /// The service that was queried.
        whom: &'static str,
        /// The service's error.
        cause: zbus::Error,
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
            Self::Absent { .. } => InspectErrorKind::Absent,
            Self::Denied { .. } => InspectErrorKind::Denied,
            Self::Silent { .. } => InspectErrorKind::Silent,
            Self::Failed { .. } => InspectErrorKind::Failed,
        }
    }

    /// Whether the same question may be answered later.
    pub(crate) fn may_pass(&self) -> bool {
        match self.kind() {
            InspectErrorKind::Silent | InspectErrorKind::Failed => true,
            InspectErrorKind::Absent | InspectErrorKind::Denied => false,
        }
    }

    /// Classifies an error from the bus; `whom` is the service that was queried.
    pub(crate) fn of(whom: &'static str, cause: zbus::Error) -> Self {
        match kind(&cause) {
            InspectErrorKind::Absent => Self::Absent { whom, cause },
            InspectErrorKind::Denied => Self::Denied { whom, cause },
            InspectErrorKind::Silent | InspectErrorKind::Failed => Self::Failed { whom, cause },
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
    match kind {
        kind if is_no_bus(kind) => InspectErrorKind::Absent,
        std::io::ErrorKind::PermissionDenied => InspectErrorKind::Denied,
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
