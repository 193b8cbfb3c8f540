//! Every target against its seeds and some thousand mutations of them: those of what crates say to all here, the others
//! in the crates.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::collections::BTreeSet;
use std::path::Path;

use winddown_fuzz::short;

mod targets {
    pub(crate) mod documents;
    pub(crate) mod kernel;
    pub(crate) mod numbers;
    pub(crate) mod reports;
}

use targets::{documents, kernel, numbers, reports};

#[test]
fn cgroups() {
    short("cgroups", kernel::cgroups);
}

#[test]
fn configuration() {
    short("configuration", documents::configuration);
}

#[test]
fn durations() {
    short("durations", numbers::durations);
}

#[test]
fn manifests() {
    short("manifests", documents::manifest);
}

#[test]
fn procfs() {
    short("procfs", kernel::mount_table);
}

#[test]
fn quantities() {
    short("quantities", numbers::quantities);
}

#[test]
fn reports_of_shutdowns() {
    short("reports", reports::laws);
}

#[test]
fn thresholds() {
    short("thresholds", numbers::thresholds);
}

#[test]
fn every_target_has_a_test_and_every_folder_a_target() {
    let names: BTreeSet<String> =
        winddown_fuzz::targets().iter().map(|target| target.name.to_owned()).collect();
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = own.join("corpus").read_dir().unwrap();
    let folders = folders.map(|folder| folder.unwrap().file_name().into_string().unwrap());
    assert_eq!(names, folders.collect());
    let mut tested = BTreeSet::new();
    let mut unread = vec![own.join("../..")];
    while let Some(path) = unread.pop() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !["target", ".git"].contains(&&*name) {
            unread.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
        } else if ["fuzzing.rs", "short.rs"].contains(&&*name) {
            let text = std::fs::read_to_string(&path).unwrap();
            let calls = text.split("short(\"").skip(1);
            tested.extend(calls.filter_map(|call| Some(call.split_once('"')?.0.to_owned())));
        }
    }
    assert_eq!(names, tested);
}
