//! The errors of queries to logind and the service manager.

use std::io::ErrorKind;
use std::time::Duration;

use crate::trouble::{is_no_bus, trouble};

/// Why a query failed.
// Exhaustive: callers decide for each kind.
#[derive(Debug, thiserror::Error)]
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

impl InspectError {
    /// Whether the same question may be answered later.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Silent { .. } | Self::Failed { .. })
    }

    /// Classifies an error from the bus; `whom` is the service that was queried.
    pub(crate) fn of(whom: &'static str, cause: zbus::Error) -> Self {
        match kind(&cause) {
            ErrorKind::NotFound => Self::Absent { whom, cause },
            ErrorKind::PermissionDenied => Self::Denied { whom, cause },
            _ => Self::Failed { whom, cause },
        }
    }
}

/// `NotFound`, `PermissionDenied`, or anything else for an answer.
fn kind(error: &zbus::Error) -> ErrorKind {
    match error {
        zbus::Error::InputOutput(io) => by_io(io.kind()),
        zbus::Error::Connection(io, _) => by_io(io.kind()),
        zbus::Error::FDO(error) => by_name(zbus::DBusError::name(&**error).as_str()),
        zbus::Error::MethodError(name, ..) => by_name(name.as_str()),
        _ => ErrorKind::Other,
    }
}

fn by_io(kind: ErrorKind) -> ErrorKind {
    match kind {
        kind if is_no_bus(kind) => ErrorKind::NotFound,
        ErrorKind::PermissionDenied => kind,
        _ => ErrorKind::Other,
    }
}

/// Classifies a D-Bus error name. The bus reports a service that it cannot start in many ways: it
/// does not exist, or its unit is masked.
fn by_name(name: &str) -> ErrorKind {
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
        | "systemd1.JobFailed" => ErrorKind::NotFound,
        _ if short.starts_with("DBus.Error.Spawn.") => ErrorKind::NotFound,
        "DBus.Error.AccessDenied" | "DBus.Error.AuthFailed" => ErrorKind::PermissionDenied,
        _ => ErrorKind::Other,
    }
}
