//! The hook for Network UPS Tools: which notice it writes for each event of upsmon. tests/node tests what happens with
//! a notice.

#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers are tests")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

const HOOK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples/nut/winddown-ups");

/// Returns the notice after these calls of the hook. Each has upsmon's event, and the battery's runtime by `upsc`,
/// which fails if it is unknown.
fn notice_after(calls: &[(&str, Option<&str>)]) -> Option<String> {
    let place = tempfile::tempdir().unwrap();
    let notice = place.path().join("notice");
    for (says, lasts) in calls {
        upsc(place.path(), *lasts);
        let path = format!("{}:/usr/bin:/bin", place.path().display());
        let mut hook = Command::new(HOOK);
        hook.env_clear().env("PATH", path).env("WINDDOWN_UPS_NOTICE", &notice);
        let done = hook.env("NOTIFYTYPE", says).env("UPSNAME", "rack@localhost").output().unwrap();
        assert!(done.status.success(), "{says}: {done:?}");
    }
    let left: Vec<_> =
        std::fs::read_dir(place.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "upsc" || name == "notice"), "{left:?}");
    std::fs::read_to_string(notice).ok()
}

fn upsc(place: &Path, lasts: Option<&str>) {
    let answer = lasts.map_or("exit 1".to_owned(), |lasts| format!("echo '{lasts}'"));
    let program = place.join("upsc");
    std::fs::write(
        &program,
        format!("#!/bin/sh\n[ \"$*\" = 'rack@localhost battery.runtime' ] || exit 2\n{answer}\n"),
    )
    .unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
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
        assert_eq!(notice_after(&[(says, lasts)]).as_deref(), notice, "{says} {lasts:?}");
    }
}

#[test]
fn the_last_word_counts_and_the_power_takes_the_notice_back() {
    let (battery, low) = (("ONBATT", Some("600")), ("LOWBATT", Some("60")));
    let said = notice_after(&[battery, low]);
    assert_eq!(said.as_deref(), Some("30s UPS rack@localhost: LOWBATT\n"));
    assert_eq!(notice_after(&[battery, low, ("ONLINE", Some("60"))]), None);
    assert_eq!(notice_after(&[("ONLINE", None)]), None, "there was none");
    assert!(notice_after(&[battery, ("COMMBAD", None)]).is_some(), "silence withdraws nothing");
}
