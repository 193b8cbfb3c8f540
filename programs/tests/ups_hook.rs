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

    /// What a program does that makes `upsc` say this from then on.
    fn turn(&self, supplies: &[Supply<'_>]) -> String {
        let place = self.0.path().display();
        let then = upsc(supplies).replace('\'', "'\\''");
        format!(
            "printf '#!/bin/sh\\n%s\\n' '{then}' >{place}/new; chmod 755 {place}/new
             /bin/mv {place}/new {place}/upsc"
        )
    }

    /// The hook, called with upsmon's event of this supply.
    fn hook(&self, hook: &Path, event: &str, of: &str) -> Command {
        let place = self.0.path();
        let mut hook = Command::new(hook);
        hook.env_clear().env("PATH", format!("{}:/usr/bin:/bin", place.display()));
        hook.env("WINDDOWN_UPS_NOTICE", place.join("notice"));
        hook.env("NOTIFYTYPE", event).env("UPSNAME", of);
        hook
    }

    /// Calls the hook with upsmon's event of this supply, while `upsc` says this.
    fn says(&self, event: &str, of: &str, supplies: &[Supply<'_>]) -> &Self {
        self.program("upsc", &upsc(supplies));
        let place = self.0.path();
        let mut hook = self.hook(Path::new(HOOK), event, of);
        let done = hook.env("WINDDOWN_UPS_CONF", place.join("upsmon.conf")).output().unwrap();
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
    let waited = nut.0.path().join("waited");
    let turn = nut.turn(&[(RACK, "OL", Some("600"))]);
    nut.program("sleep", &format!("echo \"$1\" >{}\n{turn}", waited.display()));
    nut.says("ONBATT", RACK, &[(RACK, "OB", Some("600"))]);
    assert_eq!(nut.notice(), None);
    assert_eq!(std::fs::read_to_string(waited).unwrap(), "10\n");
}

/// The switch of a rack restarts with the power, and the driver of a supply may have stale data. Where a supply was on
/// battery before it fell silent, upsmon shuts the machine down.
#[test]
fn a_supply_that_does_not_answer_is_asked_until_it_does_and_ends_no_pod_meanwhile() {
    for event in ["ONBATT", "LOWBATT"] {
        for (then, notice) in [("OL", None), ("ALARM OB", Some("570s UPS rack@localhost: "))] {
            let nut = Nut::with(&[RACK]);
            // For ten seconds the supply may settle; each further wait is for an answer.
            let turn = nut.turn(&[(RACK, then, Some("600"))]);
            nut.program("sleep", &format!("[ \"$1\" != 10 ] || exit 0\n{turn}"));
            nut.says(event, RACK, &[]);
            assert_eq!(nut.notice(), notice.map(|notice| format!("{notice}{event}\n")), "{then}");
        }
    }
}

#[test]
fn power_that_is_back_while_the_notice_is_written_takes_it_back() {
    for event in ["ONBATT", "LOWBATT"] {
        let nut = Nut::with(&[RACK]);
        // upsmon's ONLINE found nothing to withdraw.
        let (turn, was) = (nut.turn(&[(RACK, "OL", Some("600"))]), nut.0.path().join("was"));
        nut.program("mv", &format!("/bin/mv \"$@\"; cp \"$2\" {}\n{turn}", was.display()));
        nut.says(event, RACK, &[(RACK, "OB", Some("600"))]);
        assert!(was.exists(), "{event}: it was written");
        assert_eq!(nut.notice(), None, "{event}");
    }
}

#[test]
fn without_the_supplies_of_upsmons_configuration_nothing_is_decided() {
    for text in
        [None, Some("MINSUPPLIES 1\nMONITOR elsewhere@localhost 0 user password secondary\n")]
    {
        let nut = Nut::with(&[RACK]);
        nut.program("upsc", &upsc(&[(RACK, "OB", Some("600"))]));
        let conf = nut.0.path().join("upsmon.conf");
        std::fs::remove_file(&conf).unwrap();
        text.into_iter().for_each(|text| std::fs::write(&conf, text).unwrap());
        for event in ["ONBATT", "LOWBATT"] {
            let mut hook = nut.hook(Path::new(HOOK), event, RACK);
            let done = hook.env("WINDDOWN_UPS_CONF", &conf).output().unwrap();
            let said = String::from_utf8(done.stderr).unwrap();
            assert_eq!(done.status.code(), Some(1), "{said}");
            assert!(said.contains(&format!("{} names no supply", conf.display())), "{said}");
            assert_eq!(nut.notice(), None, "{event}");
        }
        // That the machine goes down is upsmon's word alone.
        nut.says("FSD", RACK, &[(RACK, "OB LB", Some("600"))]);
        assert_eq!(nut.notice().as_deref(), Some("570s UPS rack@localhost: FSD\n"));
    }
}

#[test]
fn upsmons_configuration_is_found_where_debian_and_where_fedora_and_opensuse_have_it() {
    for directory in ["nut", "ups"] {
        let nut = Nut::with(&[]);
        let place = nut.0.path();
        let text = std::fs::read_to_string(HOOK).unwrap();
        nut.program("hook", &text.replace("/etc/", &format!("{}/etc/", place.display())));
        nut.program("upsc", &upsc(&[(RACK, "OB", Some("600"))]));
        std::fs::create_dir_all(place.join("etc").join(directory)).unwrap();
        let line = format!("MONITOR \"{RACK}\" 1 user password primary");
        std::fs::write(place.join("etc").join(directory).join("upsmon.conf"), line).unwrap();
        let done = nut.hook(&place.join("hook"), "ONBATT", RACK).output().unwrap();
        assert!(done.status.success() && done.stderr.is_empty(), "{directory}: {done:?}");
        assert!(nut.notice().is_some(), "{directory}");
    }
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
    nut.says("LOWBATT", a, &[(a, "OB LB", Some("40")), (b, "OB", None)]);
    assert_eq!(nut.notice().as_deref(), Some("10s UPS a@localhost: LOWBATT\n"));
    nut.says("ONLINE", a, &[(a, "OL", Some("40")), (b, "OB", Some("900"))]);
    assert_eq!(nut.notice(), None, "a feeds the machine again");
    nut.says("FSD", a, &one);
    assert_eq!(nut.notice().as_deref(), Some("70s UPS a@localhost: FSD\n"), "upsmon's MINSUPPLIES");
}
