use std::io::ErrorKind::{self, BrokenPipe, ConnectionRefused, NotFound, PermissionDenied};
use std::sync::Arc;

use zbus::wire::Signature;

use super::*;
use crate::inspect::InspectError;
use crate::logind::translated;
use crate::units::sorted;

const BUS: &str = "unix:path=/run/dbus/system_bus_socket";

/// As a service refuses a call.
fn refused(name: &str, said: Option<&str>) -> zbus::Error {
    let message = zbus::Message::method_call("/", "X").build(&()).unwrap();
    let name = zbus::names::OwnedErrorName::try_from(name).unwrap();
    zbus::Error::MethodError(name, said.map(str::to_owned), message)
}

fn not_connected(kind: ErrorKind) -> zbus::Error {
    zbus::Error::Connection(Arc::new(kind.into()), Box::new(BUS.parse().unwrap()))
}

fn table() -> Vec<(zbus::Error, &'static str)> {
    let broken = |kind: ErrorKind| zbus::Error::InputOutput(Arc::new(kind.into()));
    let fdo = |error| zbus::Error::FDO(Box::new(error));
    vec![
        (
            not_connected(NotFound),
            "no D-Bus answers at unix:path=/run/dbus/system_bus_socket; `systemctl start dbus` starts it",
        ),
        (
            not_connected(ConnectionRefused),
            "no D-Bus answers at unix:path=/run/dbus/system_bus_socket; `systemctl start dbus` starts it",
        ),
        (not_connected(PermissionDenied), "its socket may not be opened: root is required"),
        (broken(BrokenPipe), "the connection was lost: the bus may be restarting"),
        (broken(ErrorKind::TimedOut), "no answer in time: it may hang, and its log may say why"),
        (
            broken(ErrorKind::InvalidData),
            "the answer cannot be read: check what answers, and its version",
        ),
        (
            zbus::Error::Handshake("Unexpected reply: `ERROR`".into()),
            "lets this user not in by D-Bus: check DBUS_SYSTEM_BUS_ADDRESS",
        ),
        (
            zbus::Error::Address("unsupported transport 'x'".into()),
            "its address cannot be read: correct DBUS_SYSTEM_BUS_ADDRESS, or unset it",
        ),
        (zbus::Error::InvalidReply, "check what answers, and its version"),
        (
            zbus::Error::SignatureMismatch(Signature::U32, "`t`".into()),
            "check what answers, and its version",
        ),
        (
            zbus::Error::Failure("invalid value: map, expected a seq".into()),
            "check what answers, and its version",
        ),
        (
            refused("org.freedesktop.systemd1.UnitMasked", Some("Unit a.service is masked.")),
            "Unit a.service is masked: its log may say more",
        ),
        (
            refused("org.freedesktop.systemd1.OnlyByDependency", None),
            "only by dependency: its log may say more",
        ),
        (
            refused("org.freedesktop.login1.SleepVerbNotSupported", Some("")),
            "sleep verb not supported: its log may say more",
        ),
        (fdo(fdo::Error::AccessDenied("Access denied".into())), "Access denied: root is required"),
        (
            fdo(fdo::Error::ServiceUnknown(
                "The name org.freedesktop.login1 was not provided by any .service files".into(),
            )),
            "by any .service files: start that service, or unmask it",
        ),
        (
            fdo(fdo::Error::NoReply("Remote peer disconnected".into())),
            "Remote peer disconnected: it may hang, and its log may say why",
        ),
        (
            fdo(fdo::Error::UnknownMethod("Unknown method SetUnitProperties".into())),
            "Unknown method SetUnitProperties: check what answers, and its version",
        ),
        (fdo(fdo::Error::ZBus(zbus::Error::InvalidField)), "check what answers, and its version"),
    ]
}

#[test]
fn each_failure_of_the_bus_is_told_with_the_next_step_and_in_no_librarys_words() {
    for (error, wanted) in table() {
        let own = error.to_string();
        // Every way on which such a text reaches a person.
        let texts = [
            trouble(&error),
            translated(&error),
            sorted("StartTransientUnit", "a.service", &error).to_string(),
            winddown_shared::error_chain(&InspectError::of("logind", error)),
        ];
        for said in texts {
            let is_ours =
                ["is not loaded", "no answer within"].iter().any(|ours| said.contains(ours));
            assert!(said.contains(wanted) || is_ours, "{own}: {said}");
            for word in [
                "org.freedesktop.DBus.Error",
                "org.freedesktop.systemd1",
                "I/O error",
                "address error",
                "handshake",
                "expected",
                "ignature",
                "message",
                "reply",
            ] {
                assert!(!said.contains(word), "{word}: {said}");
            }
        }
    }
}
