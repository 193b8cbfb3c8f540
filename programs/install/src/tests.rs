//! Tests of the plan, without a file system.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Runtime;
use super::assets::{self, Asset, AssetKind, Body, Choices, CopySource, FileOwner, Program};
use super::plan::{InstallPlan, InstallWork, plan, with_parents};
use super::record::{InstallRecord, InstalledEntry};
use super::report::ChangeAction;
use super::tree::{FoundPath, digest};

const PATH: &str = "/etc/x.conf";

fn choices() -> Choices {
    Choices {
        packaged: false,
        runtime: Runtime::Process,
        enable: true,
        bin_dir: "/usr/bin".to_owned(),
        programs: assets::PROGRAMS
            .map(|name| Program { name, from: source(), sha256: "new".to_owned() })
            .into(),
        config: ("text".to_owned(), FileOwner::Operator),
        given: None,
        budget: Duration::from_secs(30),
        state: PathBuf::from(assets::STATE),
        kubelet: None,
    }
}

fn source() -> CopySource {
    let file = tempfile::tempfile().unwrap();
    CopySource { path: "/tmp/program".into(), file: Arc::new(file) }
}

fn sha(text: &str) -> String {
    digest(&mut text.as_bytes()).unwrap().0
}

fn there(text: &str, mode: u32) -> FoundPath {
    FoundPath::File { sha256: sha(text), mode, signed: text.starts_with("# winddown") }
}

fn recorded(text: &str) -> InstallRecord {
    let entry = InstalledEntry::File { sha256: vec![sha(text)] };
    InstallRecord {
        entries: BTreeMap::from([(PATH.to_owned(), entry)]),
        ..InstallRecord::default()
    }
}

fn plan_file(
    owner: FileOwner,
    found: FoundPath,
    record: &InstallRecord,
    force: bool,
) -> InstallPlan {
    let body = Body::Text("new".to_owned());
    let kind = AssetKind::File { mode: 0o644, body, owner };
    let items = vec![Asset { path: PATH.to_owned(), kind }];
    plan(items, &BTreeMap::from([(PATH.to_owned(), found)]), record, force)
}

fn outcome(plan: &InstallPlan) -> Result<(ChangeAction, bool, bool), &'static str> {
    match (&plan.conflicts[..], &plan.steps[..]) {
        ([conflict], []) => Err(conflict.why),
        ([], [step]) => {
            let writes = matches!(step.work, InstallWork::Write { .. });
            Ok((step.change.action, writes, plan.record.entries.contains_key(PATH)))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_is_written_only_where_nothing_of_somebody_else_is_lost() {
    use ChangeAction::{Created, Kept, Replaced, Updated};
    use FileOwner::{Install, Operator};
    let none = InstallRecord::default();
    let old = recorded("old");
    let edited = "it was edited; --force replaces it and keeps the old one beside it";
    let foreign = "it is not winddown's; --force replaces it and keeps the old one beside it";
    let masked = "it is masked; remove that link first";
    let null = || FoundPath::Link(PathBuf::from("/dev/null"));
    let elsewhere = || FoundPath::Link(PathBuf::from("/elsewhere"));
    let table = [
        ("absent", Install, FoundPath::Nothing, &none, false, Ok((Created, true, true))),
        ("as wanted", Install, there("new", 0o644), &none, false, Ok((Kept, false, true))),
        ("wrong mode", Install, there("new", 0o600), &none, false, Ok((Updated, false, true))),
        ("our old one", Install, there("old", 0o644), &old, false, Ok((Updated, true, true))),
        ("edited", Install, there("# winddown", 0o644), &old, false, Err(edited)),
        (
            "edited, forced",
            Install,
            there("# winddown", 0o644),
            &old,
            true,
            Ok((Replaced, true, true)),
        ),
        ("foreign", Install, there("other", 0o644), &none, false, Err(foreign)),
        ("masked", Install, null(), &none, false, Err(masked)),
        ("masked, forced", Install, null(), &none, true, Err(masked)),
        ("a link", Install, elsewhere(), &none, false, Err(foreign)),
        (
            "a directory",
            Install,
            FoundPath::Directory,
            &none,
            true,
            Err("it is not a file; move it away"),
        ),
        ("a socket", Install, FoundPath::Other, &none, true, Err("it is not a file; move it away")),
        (
            "operator's absent",
            Operator,
            FoundPath::Nothing,
            &none,
            false,
            Ok((Created, true, true)),
        ),
        ("operator's", Operator, there("mine", 0o600), &none, true, Ok((Kept, false, false))),
        ("operator's link", Operator, elsewhere(), &none, true, Ok((Kept, false, false))),
    ];
    for (name, owner, found, record, force, expected) in table {
        assert_eq!(outcome(&plan_file(owner, found, record, force)), expected, "{name}");
    }
}

#[test]
fn the_agents_drop_in_that_an_earlier_version_installed_is_left_to_the_agent() {
    let path = assets::LOGIND_DROP_IN;
    let entry = InstalledEntry::File { sha256: vec![sha("x")] };
    let record =
        InstallRecord { entries: [(path.to_owned(), entry)].into(), ..InstallRecord::default() };
    let found = [(path.to_owned(), there("x", 0o644))].into();
    let plan = plan(with_parents(assets::items(&choices())), &found, &record, false);
    assert!(plan.steps.iter().all(|step| step.change.path != path));
    assert!(!plan.record.entries.contains_key(path));
}

#[test]
fn every_parent_comes_once_and_before_its_children() {
    let items = with_parents(assets::items(&choices()));
    for (index, item) in items.iter().enumerate() {
        let earlier = &items[..index];
        assert!(earlier.iter().all(|other| other.path != item.path), "{} twice", item.path);
        let parent = item.path.rsplit_once('/').map_or("", |(parent, _)| parent);
        assert!(
            parent.is_empty() || earlier.iter().any(|other| other.path == parent),
            "{} before its parent",
            item.path
        );
    }
}

#[test]
fn the_state_directory_comes_first_so_that_the_record_can_be_written() {
    let items = with_parents(assets::items(&choices()));
    let first: Vec<_> = items.iter().map(|item| item.path.as_str()).take(3).collect();
    assert_eq!(first, ["/var", "/var/lib", assets::STATE]);
}

#[test]
fn the_unit_comes_after_what_it_needs_and_is_enabled_last() {
    let items = assets::items(&choices());
    let last: Vec<_> = items.iter().rev().map(|item| item.path.as_str()).take(2).collect();
    assert_eq!(last, [assets::WANTS, assets::UNIT]);
}

#[test]
fn while_an_upgrade_is_under_way_both_programs_are_ours() {
    let both = recorded("old").together_with(&recorded("new"));
    assert!(both.owns(PATH, &sha("old")) && both.owns(PATH, &sha("new")));
    assert!(!both.owns(PATH, &sha("other")) && !both.owns("/etc/y", &sha("old")));
    assert_eq!(both.together_with(&recorded("new")), both);
}

#[test]
fn systemds_patience_is_rounded_up_and_never_below_its_default() {
    let unit = |budget| {
        let items = assets::items(&Choices { budget, ..choices() });
        items
            .into_iter()
            .find_map(|item| match item.kind {
                AssetKind::File { body: Body::Text(text), .. } if item.path == assets::UNIT => {
                    Some(text)
                }
                _ => None,
            })
            .unwrap()
    };
    assert!(unit(Duration::ZERO).contains("\nTimeoutStopSec=90s\n"));
    assert!(unit(Duration::from_millis(60_001)).contains("\nTimeoutStopSec=91s\n"));
}

/// Returns the steps of an installation on a machine with `found`, where `record` was installed earlier.
fn steps(
    choices: &Choices,
    found: &[(&str, FoundPath)],
    record: &InstallRecord,
) -> Vec<(ChangeAction, String)> {
    let found = found.iter().map(|(path, there)| ((*path).to_owned(), there.clone())).collect();
    let plan = plan(with_parents(assets::items(choices)), &found, record, false);
    assert_eq!(plan.conflicts, []);
    let units = |path: &str| path.starts_with("/etc/systemd/system/") && path.contains('.');
    let changes = plan.steps.into_iter().map(|step| (step.change.action, step.change.path));
    changes.filter(|(action, path)| units(path) && *action != ChangeAction::Kept).collect()
}

#[test]
fn a_packages_unit_waits_long_enough_for_the_default_configuration() {
    let is_raised = |seconds| {
        let budget = Duration::from_secs(seconds);
        let items = assets::items(&Choices { packaged: true, budget, ..choices() });
        items.iter().any(|item| item.path.ends_with("-stop-time.conf"))
    };
    let usual = crate::stop_budget(&winddown_config::Config::default().shutdown).as_secs();
    assert_eq!([is_raised(usual), is_raised(usual + 1)], [false, true]);
}

#[test]
fn beside_a_package_only_its_drop_in_is_hidden_and_its_unit_enabled() {
    for runtime in [Runtime::Cri, Runtime::Systemd] {
        beside_a_package(runtime);
    }
}

fn beside_a_package(runtime: Runtime) {
    let packaged = Choices { packaged: true, runtime, ..choices() };
    let paths: Vec<String> = assets::items(&packaged).into_iter().map(|item| item.path).collect();
    assert!(
        !paths.iter().any(|path| path.starts_with("/usr/bin/winddown") || path == assets::UNIT)
    );

    let nothing = InstallRecord::default();
    let hidden = (ChangeAction::Created, assets::PROCESS_DROP_IN.to_owned());
    let enabled = (ChangeAction::Created, assets::WANTS.to_owned());
    assert_eq!(
        steps(&packaged, &[], &nothing),
        [
            (ChangeAction::Created, "/etc/systemd/system/winddown.service.d".to_owned()),
            hidden.clone(),
            (ChangeAction::Created, "/etc/systemd/system/multi-user.target.wants".to_owned()),
            enabled
        ]
    );

    // The link as "systemctl enable" writes it.
    let by_hand = FoundPath::Link("/lib/systemd/system/winddown.service".into());
    let directories = [
        ("/etc/systemd/system/winddown.service.d", FoundPath::Directory),
        ("/etc/systemd/system/multi-user.target.wants", FoundPath::Directory),
    ];
    let mut found = directories.to_vec();
    found.push((assets::WANTS, by_hand));
    assert_eq!(steps(&packaged, &found, &nothing), [hidden]);

    // Switch back to the process runtime.
    found.push((assets::PROCESS_DROP_IN, FoundPath::Link("/dev/null".into())));
    let entry = InstalledEntry::Link { target: "/dev/null".to_owned() };
    let path = assets::PROCESS_DROP_IN.to_owned();
    let entries = BTreeMap::from([(path.clone(), entry)]);
    let record = InstallRecord { entries, ..InstallRecord::default() };
    let process = Choices { runtime: Runtime::Process, ..packaged };
    assert_eq!(steps(&process, &found, &record), [(ChangeAction::Removed, path)]);
}

#[test]
fn a_package_that_came_later_takes_over_what_was_installed_by_hand() {
    let unit = "# winddown: the old one";
    let entries = BTreeMap::from([
        (assets::UNIT.to_owned(), InstalledEntry::File { sha256: vec![sha(unit)] }),
        (assets::WANTS.to_owned(), InstalledEntry::Link { target: assets::UNIT.to_owned() }),
    ]);
    let found = [
        ("/etc/systemd/system/multi-user.target.wants", FoundPath::Directory),
        (assets::UNIT, there(unit, 0o644)),
        (assets::WANTS, FoundPath::Link(assets::UNIT.into())),
    ];
    let packaged = Choices { packaged: true, ..choices() };
    assert_eq!(
        steps(&packaged, &found, &InstallRecord { entries, ..InstallRecord::default() }),
        [
            (ChangeAction::Updated, assets::WANTS.to_owned()),
            (ChangeAction::Removed, assets::UNIT.to_owned()),
        ]
    );
}
