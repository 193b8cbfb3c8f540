//! Names of units. Each part is escaped, so that no two pods, containers or attempts share a name, whatever dots and
//! dashes their names contain.

use std::fmt::Write as _;

use winddown_shared::PodUid;

/// The prefix of every unit of ours.
pub(crate) const PREFIX: &str = "winddown-pod";
/// The parent of all pods' slices.
pub(crate) const SLICE: &str = "winddown.slice";
/// The slice of all pods' services that survive a soft-reboot. It has a unit file, because systemd stops a slice at
/// shutdown that it created on request.
pub(crate) const SURVIVORS: &str = "winddown-survivors.slice";
const SERVICE: &str = ".service";
/// The maximum length of a unit name in systemd.
const MAX_UNIT_NAME_BYTES: usize = 255;
/// Room after the container's name for a number, the kind of unit and the suffix.
const UNIT_NAME_RESERVE: usize = 40;

/// The parts of the name of a unit of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitName {
    pub(crate) uid: PodUid,
    pub(crate) container: String,
    pub(crate) role: UnitRole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitRole {
    /// Runs this attempt of the container.
    Main(u32),
    /// Writes the log of this attempt.
    Log(u32),
    /// Runs a hook, a probe or a client's command.
    Hook,
}

/// The slice of a pod. A dash in a slice's name makes it a child of another slice: this one is in [`SLICE`].
pub(crate) fn slice(uid: &PodUid) -> String {
    format!("{PREFIX}{}.slice", escape(uid.as_str()))
}

/// The prefix of all units of a pod, and of no other pod's.
pub(crate) fn of_pod(uid: &PodUid) -> String {
    format!("{PREFIX}{}-", escape(uid.as_str()))
}

/// The unit of one attempt of a container.
pub(crate) fn main(uid: &PodUid, container: &str, attempt: u32) -> String {
    format!("{}{}-{attempt}{SERVICE}", of_pod(uid), escape(container))
}

/// The unit that writes the log of an attempt.
pub(crate) fn log(uid: &PodUid, container: &str, attempt: u32) -> String {
    format!("{}{}-{attempt}-log{SERVICE}", of_pod(uid), escape(container))
}

/// The unit of a command beside a container. `agent` and `number` make the name unique.
pub(crate) fn hook(uid: &PodUid, container: &str, agent: u32, number: u64) -> String {
    format!("{}{}-hook-{agent}_{number}{SERVICE}", of_pod(uid), escape(container))
}

/// Whether the names of a container's units are short enough for systemd.
pub(crate) fn fits(uid: &PodUid, container: &str) -> bool {
    of_pod(uid).len() + escape(container).len() + UNIT_NAME_RESERVE <= MAX_UNIT_NAME_BYTES
}

/// Parses the name of a unit; none if it is not ours.
pub(crate) fn parse(unit: &str) -> Option<UnitName> {
    let mut parts = unit.strip_prefix(PREFIX)?.strip_suffix(SERVICE)?.split('-');
    let uid = PodUid::new(unescape(parts.next()?)?.as_str());
    let container = unescape(parts.next()?)?;
    let role = match (parts.next()?, parts.next(), parts.next()) {
        ("hook", Some(_), None) => UnitRole::Hook,
        (attempt, None, _) => UnitRole::Main(attempt.parse().ok()?),
        (attempt, Some("log"), None) => UnitRole::Log(attempt.parse().ok()?),
        _ => return None,
    };
    Some(UnitName { uid, container, role })
}

/// Escapes text as systemd-escape does, and dots too.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'_' {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend_from_slice(before.as_bytes());
        bytes.push(u8::from_str_radix(after.get(..2)?, 16).ok()?);
        rest = &after[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_legible_where_they_can_be() {
        let uid = PodUid::new("0a-1b");
        assert_eq!(slice(&uid), "winddown-pod0a\\x2d1b.slice");
        assert_eq!(main(&uid, "web.1", 3), "winddown-pod0a\\x2d1b-web\\x2e1-3.service");
        assert_eq!(log(&uid, "web", 0), "winddown-pod0a\\x2d1b-web-0-log.service");
        assert!(hook(&uid, "web", 7, 1).ends_with("-web-hook-7_1.service"));
    }

    #[test]
    fn units_of_others_are_not_ours() {
        for unit in [
            "winddown.service",
            "winddown-podu.slice",
            "winddown-podu-web.service",
            "winddown-podu-web-x.service",
            "winddown-podu-web-1-x.service",
            "winddown-podu-web-1-log-2.service",
            "winddown-podu\\xzz-web-1.service",
            "other-podu-web-1.service",
        ] {
            assert_eq!(parse(unit), None, "{unit}");
        }
    }

    #[test]
    fn a_pod_whose_units_would_have_too_long_names_is_known() {
        assert!(fits(&PodUid::new("0c6a1e2c-6f0e-4b5e-9a51-3a6c9b1d2e3f"), &"c".repeat(63)));
        assert!(!fits(&PodUid::new("u".repeat(200).as_str()), &"c".repeat(63)));
    }

    proptest! {
        #[test]
        fn a_name_leads_back_to_what_it_was_made_of(
            uid in "[ -~]{1,20}", container in "\\PC{1,10}", attempt: u32,
        ) {
            let uid = PodUid::new(uid.as_str());
            let named = |role| Some(UnitName { uid: uid.clone(), container: container.clone(), role });
            prop_assert_eq!(parse(&main(&uid, &container, attempt)), named(UnitRole::Main(attempt)));
            prop_assert_eq!(parse(&log(&uid, &container, attempt)), named(UnitRole::Log(attempt)));
            prop_assert_eq!(parse(&hook(&uid, &container, 1, 2)), named(UnitRole::Hook));
            prop_assert!(main(&uid, &container, attempt).starts_with(&of_pod(&uid)));
        }

        #[test]
        fn any_name_is_read_without_harm(name in ".{0,60}") {
            let _ = parse(&name);
            let _ = parse(&format!("{PREFIX}{name}{SERVICE}"));
        }
    }
}
