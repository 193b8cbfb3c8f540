//! The hook for Network UPS Tools: which notice it writes for each event of upsmon. tests/node tests what happens with
//! a notice.

#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers are tests")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

const HOOK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples/nut/winddown-ups");
const RACK: &str = "rack@localhost";

/// What `upsc` says of a supply: its name, `ups.status`, and `battery.runtime` if that is known.
type Supply<'a> = (&'a str, &'a str, Option<&'a str>);

/// A directory with what the hook uses of NUT.
struct Nut(tempfile::TempDir);

impl Nut {
    /// With the supplies that upsmon's configuration names, each as one that feeds the machine.
    fn with(supplies: &[&str]) -> Self {
        let nut = Self(tempfile::tempdir().unwrap());
        let lines = supplies.iter().map(|name| format!("MONITOR {name} 1 user password primary\n"));
        let of_others = "MONITOR elsewhere@localhost 0 user password secondary\nMINSUPPLIES 1\n";
        let text = lines.collect::<String>() + of_others;
        std::fs::write(nut.0.path().join("upsmon.conf"), text).unwrap();
        nut.program("sleep", "exit 0");
        nut
    }

    fn program(&self, name: &str, body: &str) {
        let program = self.0.path().join(name);
        std::fs::write(&program, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Calls the hook with upsmon's event of this supply, while `upsc` says this.
    fn says(&self, event: &str, of: &str, supplies: &[Supply<'_>]) -> &Self {
        self.program("upsc", &upsc(supplies));
        let place = self.0.path();
        let mut hook = Command::new(HOOK);
        hook.env_clear().env("PATH", format!("{}:/usr/bin:/bin", place.display()));
        hook.env("WINDDOWN_UPS_NOTICE", place.join("notice"));
        hook.env("WINDDOWN_UPS_CONF", place.join("upsmon.conf"));
        let done = hook.env("NOTIFYTYPE", event).env("UPSNAME", of).output().unwrap();
        assert!(done.status.success() && done.stderr.is_empty(), "{event}: {done:?}");
        assert!(!Path::new(&place.join("notice.new")).exists(), "{event}");
        self
    }

    fn notice(&self) -> Option<String> {
        std::fs::read_to_string(self.0.path().join("notice")).ok()
    }
}

fn upsc(supplies: &[Supply<'_>]) -> String {
    let answers = supplies.iter().map(|(name, status, lasts)| {
        let lasts = lasts.map_or("exit 1".to_owned(), |lasts| format!("echo '{lasts}'"));
        format!("'{name} ups.status') echo '{status}' ;;\n'{name} battery.runtime') {lasts} ;;\n")
    });
    format!("case \"$*\" in\n{}*) exit 1 ;;\nesac", answers.collect::<String>())
}

#[test]
fn the_notice_has_what_the_battery_lasts_less_the_machines_own_part() {
    for (says, lasts, notice) in [
        ("ONBATT", Some("600"), Some("570s UPS rack@localhost: ONBATT\n")),
        ("ONBATT", Some("600.5"), Some("570s UPS rack@localhost: ONBATT\n")),
        ("LOWBATT", Some("31"), Some("1s UPS rack@localhost: LOWBATT\n")),
        ("FSD", Some("5"), Some("1s UPS rack@localhost: FSD\n")),
        ("ONBATT", None, Some("90s UPS rack@localhost: ONBATT\n")),
        ("ONBATT", Some("soon"), Some("90s UPS rack@localhost: ONBATT\n")),
        ("ONBATT", Some(""), Some("90s UPS rack@localhost: ONBATT\n")),
        ("COMMBAD", Some("600"), None),
        ("REPLBATT", Some("600"), None),
    ] {
        let nut = Nut::with(&[RACK]);
        nut.says(says, RACK, &[(RACK, "OB DISCHRG", lasts)]);
        assert_eq!(nut.notice().as_deref(), notice, "{says} {lasts:?}");
    }
}

#[test]
fn the_last_word_counts_and_the_power_takes_the_notice_back() {
    let nut = Nut::with(&[RACK]);
    let on_battery = |left| [(RACK, "OB", Some(left))];
    nut.says("ONBATT", RACK, &on_battery("600")).says("LOWBATT", RACK, &on_battery("60"));
    assert_eq!(nut.notice().as_deref(), Some("30s UPS rack@localhost: LOWBATT\n"));
    nut.says("COMMBAD", RACK, &[]);
    assert!(nut.notice().is_some(), "silence withdraws nothing");
    nut.says("ONLINE", RACK, &[(RACK, "OL CHRG", Some("60"))]);
    assert_eq!(nut.notice(), None);
    nut.says("ONLINE", RACK, &[]);
    assert_eq!(nut.notice(), None, "there was none");
}

#[test]
fn power_that_is_back_after_a_moment_or_a_test_of_the_battery_ends_no_pod() {
    let nut = Nut::with(&[RACK]);
    // Meanwhile the power comes back.
    let back = upsc(&[(RACK, "OL", Some("600"))]).replace('\'', "'\\''");
    let place = nut.0.path().display().to_string();
    nut.program(
        "sleep",
        &format!("echo \"$1\" >{place}/waited; printf '#!/bin/sh\\n%s\\n' '{back}' >{place}/upsc"),
    );
    nut.says("ONBATT", RACK, &[(RACK, "OB", Some("600"))]);
    assert_eq!(nut.notice(), None);
    assert_eq!(std::fs::read_to_string(nut.0.path().join("waited")).unwrap(), "10\n");
}

#[test]
fn what_upsmon_has_decided_meanwhile_is_not_taken_back_by_the_one_that_waited() {
    let nut = Nut::with(&[RACK]);
    let notice = nut.0.path().join("notice");
    nut.program("sleep", &format!("echo '1s UPS rack@localhost: FSD' >{}", notice.display()));
    nut.says("ONBATT", RACK, &[(RACK, "OB", Some("600"))]);
    assert_eq!(nut.notice().as_deref(), Some("1s UPS rack@localhost: FSD\n"));
}

#[test]
fn of_two_supplies_one_keeps_the_machine_until_upsmon_says_otherwise() {
    let (a, b) = ("a@localhost", "b@localhost");
    let nut = Nut::with(&[a, b]);
    let one = [(a, "OB", Some("100")), (b, "OL", Some("900"))];
    nut.says("ONBATT", a, &one).says("LOWBATT", a, &one);
    assert_eq!(nut.notice(), None, "b feeds the machine");
    let both = [(a, "OB LB", Some("40")), (b, "OB", Some("900"))];
    nut.says("ONBATT", b, &both);
    assert_eq!(nut.notice().as_deref(), Some("870s UPS b@localhost: ONBATT\n"), "the longer one");
    // A supply that does not answer feeds nothing that is known.
    let silent = [(a, "OB LB", Some("40"))];
    nut.says("LOWBATT", a, &silent);
    assert_eq!(nut.notice().as_deref(), Some("10s UPS a@localhost: LOWBATT\n"));
    nut.says("ONLINE", a, &[(a, "OL", Some("40")), (b, "OB", Some("900"))]);
    assert_eq!(nut.notice(), None, "a feeds the machine again");
    nut.says("FSD", a, &one);
    assert_eq!(nut.notice().as_deref(), Some("70s UPS a@localhost: FSD\n"), "upsmon's MINSUPPLIES");
}
