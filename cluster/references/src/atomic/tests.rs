#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;
use crate::object::Hidden;

fn payload(files: &[(&str, &str)]) -> Payload {
    let file = |text: &str| File {
        bytes: Hidden::from(text.as_bytes().to_vec()),
        mode: 0o644,
        owner: None,
    };
    files.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect()
}

fn now() -> WallTime {
    "2026-11-20T10:00:00.123456789Z".parse().unwrap()
}

/// What a container sees: paths and contents, through the links. `None` while there is nothing.
fn seen(volume: &Path) -> Option<BTreeMap<String, String>> {
    fn walk(dir: &Path, prefix: &str, all: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.starts_with("..") {
                continue;
            }
            let (path, below) = (dir.join(&name), format!("{prefix}{name}"));
            match fs::metadata(&path) {
                Ok(meta) if meta.is_dir() => walk(&path, &format!("{below}/"), all),
                Ok(_) => drop(all.insert(below, fs::read_to_string(&path).unwrap())),
                // The link of a file that will be removed.
                Err(_) => {}
            }
        }
    }
    let mut all = BTreeMap::new();
    fs::metadata(volume.join(DATA)).ok()?;
    walk(&volume.join(DATA), "", &mut all);
    Some(all)
}

fn texts(payload: &Payload) -> BTreeMap<String, String> {
    payload.iter().map(|(path, file)| (path.clone(), file.bytes.text())).collect()
}

fn names(volume: &Path) -> Vec<String> {
    let entries = fs::read_dir(volume).unwrap();
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_layout_is_the_kubelets() {
    let dir = tempfile::tempdir().unwrap();
    let volume = dir.path().join("uid/config");
    let files = payload(&[("key", "1"), ("deep/er", "2")]);
    assert!(write(&volume, &files, None, now()).unwrap());
    let stamp = "..2026_11_20_10_00_00.123456789";
    assert_eq!(names(&volume), ["..2026_11_20_10_00_00.123456789", "..data", "deep", "key"]);
    assert_eq!(fs::read_link(volume.join("..data")).unwrap(), Path::new(stamp));
    assert_eq!(fs::read_link(volume.join("key")).unwrap(), Path::new("..data/key"));
    assert_eq!(fs::read_link(volume.join("deep")).unwrap(), Path::new("..data/deep"));
    assert_eq!(fs::read_to_string(volume.join("deep/er")).unwrap(), "2");
}

#[test]
fn the_same_content_is_not_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let files = payload(&[("key", "1")]);
    assert!(write(dir.path(), &files, None, now()).unwrap());
    let before = fs::read_link(dir.path().join(DATA)).unwrap();
    assert!(!write(dir.path(), &files, None, now()).unwrap());
    assert_eq!(fs::read_link(dir.path().join(DATA)).unwrap(), before);
}

#[test]
fn a_change_is_seen_as_a_whole_and_nothing_of_the_old_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (payload(&[("a", "1"), ("b", "1")]), payload(&[("b", "2"), ("c/d", "2")]));
    write(dir.path(), &old, None, now()).unwrap();
    let was = fs::read_link(dir.path().join(DATA)).unwrap();
    assert!(write(dir.path(), &new, None, now()).unwrap());
    let is = fs::read_link(dir.path().join(DATA)).unwrap();
    assert_ne!(was, is);
    assert_eq!(names(dir.path()), [is.to_str().unwrap(), "..data", "b", "c"]);
    assert!(write(dir.path(), &Payload::new(), None, now()).unwrap(), "all files may go");
    assert_eq!(seen(dir.path()).unwrap(), BTreeMap::new());
}

#[test]
fn files_have_their_modes_whatever_the_umask_and_a_changed_mode_is_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = payload(&[("key", "1"), ("script", "2")]);
    for (path, mode) in [("key", 0o400), ("script", 0o777)] {
        files.get_mut(path).unwrap().mode = mode;
    }
    write(dir.path(), &files, None, now()).unwrap();
    let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("key"), mode("script"), mode("..data/")), (0o400, 0o777, 0o755));
    files.get_mut("key").unwrap().mode = 0o440;
    assert!(write(dir.path(), &files, None, now()).unwrap());
    assert_eq!(mode("key"), 0o440);
}

#[test]
fn leftovers_of_earlier_and_foreign_writers_are_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "keep").unwrap();
    let volume = dir.path().join("volume");
    let files = payload(&[("key", "1"), ("x/y", "1")]);
    write(&volume, &files, None, now()).unwrap();
    fs::remove_file(volume.join("key")).unwrap();
    symlink(&outside, volume.join("key")).unwrap();
    fs::remove_file(volume.join("x")).unwrap();
    fs::create_dir(volume.join("x")).unwrap();
    symlink(&outside, volume.join("..data_tmp")).unwrap();
    symlink(&outside, volume.join("..2020_left")).unwrap();
    fs::create_dir(volume.join("..2021_left")).unwrap();
    fs::write(volume.join("stray"), "").unwrap();
    write(&volume, &files, None, now()).unwrap();
    assert_eq!(seen(&volume).unwrap(), texts(&files));
    assert_eq!(names(&volume).len(), 4, "{:?}", names(&volume));
    assert_eq!(fs::read_to_string(outside.join("precious")).unwrap(), "keep");
}

#[test]
fn a_link_that_leads_elsewhere_is_never_taken_for_the_content() {
    let dir = tempfile::tempdir().unwrap();
    let volume = dir.path().join("volume");
    fs::create_dir_all(&volume).unwrap();
    fs::create_dir(dir.path().join("elsewhere")).unwrap();
    fs::write(dir.path().join("elsewhere/key"), "1").unwrap();
    symlink("../elsewhere", volume.join(DATA)).unwrap();
    assert!(write(&volume, &payload(&[("key", "1")]), None, now()).unwrap());
    assert!(is_ours(fs::read_link(volume.join(DATA)).unwrap().to_str().unwrap()));
    assert!(dir.path().join("elsewhere/key").exists());
}

/// A container that has the agent's state as a volume can put one there.
#[test]
fn a_link_above_a_volume_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, victim) = (dir.path().join("disk"), dir.path().join("victim"));
    fs::create_dir_all(victim.join("conf")).unwrap();
    fs::write(victim.join("conf/precious"), "keep").unwrap();
    fs::create_dir(&disk).unwrap();
    symlink(&victim, disk.join("u")).unwrap();
    assert!(write(&disk.join("u/conf"), &payload(&[("precious", "1")]), None, now()).is_err());
    let places = crate::places::PodDirectories {
        disk: disk.clone(),
        memory: dir.path().join("memory"),
        room: crate::MemoryRoom::default(),
    };
    places.take_back(&disk.join("u/conf"));
    assert_eq!(fs::read_to_string(victim.join("conf/precious")).unwrap(), "keep");
    places.remove("u").unwrap();
    assert!(!disk.join("u").is_symlink() && victim.join("conf/precious").exists());
}

#[test]
fn a_pipe_in_place_of_a_file_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let files = payload(&[("key", "1")]);
    write(dir.path(), &files, None, now()).unwrap();
    let key = dir.path().join(DATA).join("key");
    fs::remove_file(&key).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &key, Mode::RUSR | Mode::WUSR).unwrap();
    assert!(write(dir.path(), &files, None, now()).unwrap());
    assert_eq!(seen(dir.path()).unwrap(), texts(&files));
}

#[test]
fn a_damaged_content_is_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let files = payload(&[("key", "12345")]);
    for damage in ["", "1", "12346", "123456"] {
        write(dir.path(), &files, None, now()).unwrap();
        fs::write(dir.path().join("key"), damage).unwrap();
        assert!(write(dir.path(), &files, None, now()).unwrap(), "{damage:?}");
        assert_eq!(seen(dir.path()).unwrap(), texts(&files));
    }
}

#[test]
fn a_megabyte_is_written_like_anything_else() {
    let dir = tempfile::tempdir().unwrap();
    let big = "x".repeat(1 << 20);
    let files = payload(&[("big", &big)]);
    assert!(write(dir.path(), &files, None, now()).unwrap());
    assert!(!write(dir.path(), &files, None, now()).unwrap());
    assert_eq!(seen(dir.path()).unwrap(), texts(&files));
}

#[test]
fn what_cannot_be_written_leaves_the_old_content() {
    let dir = tempfile::tempdir().unwrap();
    let old = payload(&[("a", "1")]);
    write(dir.path(), &old, None, now()).unwrap();
    let name = "n".repeat(300);
    let error = write(dir.path(), &payload(&[("a", "2"), (&name, "2")]), None, now());
    assert!(error.is_err());
    assert_eq!(seen(dir.path()).unwrap(), texts(&old));
    let next = payload(&[("a", "3")]);
    write(dir.path(), &next, None, now()).unwrap();
    assert_eq!(names(dir.path()).len(), 3, "what was half done is gone");
    assert_eq!(seen(dir.path()).unwrap(), texts(&next));
}

/// Stops before step number `at`.
fn crash_at(volume: &Path, files: &Payload, at: usize) -> bool {
    let mut steps = 0;
    let outcome = write_in_steps(volume, files, None, now(), &mut |_| {
        steps += 1;
        if steps > at { Err(io::Error::other("the machine stops")) } else { Ok(()) }
    });
    outcome.is_err()
}

#[test]
fn whenever_the_machine_stops_a_container_sees_all_of_the_old_or_all_of_the_new() {
    let old = payload(&[("a", "1"), ("b", "1"), ("d/x", "1")]);
    let new = payload(&[("a", "2"), ("c", "2"), ("d/y", "2")]);
    let mut points = 0;
    for at in 0.. {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &old, None, now()).unwrap();
        let crashed = crash_at(dir.path(), &new, at);
        let between = seen(dir.path()).unwrap();
        assert!(between == texts(&old) || between == texts(&new), "step {at}: {between:?}");
        write(dir.path(), &new, None, now()).unwrap();
        assert_eq!(seen(dir.path()).unwrap(), texts(&new), "step {at}");
        assert_eq!(names(dir.path()).len(), 5, "step {at}: {:?}", names(dir.path()));
        if !crashed {
            break;
        }
        points = at + 1;
    }
    assert!(points >= 8, "only {points} steps");
}

#[test]
fn a_first_writing_that_stops_anywhere_is_finished_by_the_next() {
    let files = payload(&[("a", "1"), ("d/x", "1")]);
    for at in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        crash_at(dir.path(), &files, at);
        assert!(seen(dir.path()).is_none_or(|seen| seen == texts(&files)));
        write(dir.path(), &files, None, now()).unwrap();
        assert_eq!(names(dir.path()).len(), 4, "{:?}", names(dir.path()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_sequence_of_contents_and_crashes_ends_in_the_last_content(
        rounds in proptest::collection::vec(
            (proptest::collection::btree_map("[a-c](/[a-c])?", "[0-9]{0,3}", 0..4), 0_usize..12),
            1..6,
        ),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut last = Payload::new();
        for (files, crash) in rounds {
            let files: Vec<(&str, &str)> = files
                .iter()
                .map(|(k, v)| (k.as_str(), v.as_str()))
                .collect();
            let next = payload(&files);
            let is_both = next.keys().any(|k| k.split_once('/').is_some_and(|(p, _)| next.contains_key(p)));
            if is_both {
                continue;
            }
            crash_at(dir.path(), &next, crash);
            let between = seen(dir.path());
            prop_assert!(between.is_none_or(|s| s == texts(&last) || s == texts(&next)));
            write(dir.path(), &next, None, now()).unwrap();
            prop_assert_eq!(seen(dir.path()).unwrap(), texts(&next));
            last = next;
        }
    }
}
