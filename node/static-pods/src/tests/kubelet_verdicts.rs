//! The kubelet's verdict on pods that have one fault each, and ours.

#![allow(clippy::disallowed_methods, reason = "tests read what was recorded for them")]

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::Value as Json;

use crate::{ManifestError, read_manifest};

/// What is refused here and accepted by the kubelet: the field, or a word of what is said where a file has no fields, and
/// the word that stands for it in docs/pod-fields.md.
const REFUSED_HERE: [(&str, &str); 18] = [
    ("unknown field", "unknown or duplicate field"),
    ("this key is written twice", "unknown or duplicate field"),
    ("this tag is not understood", "YAML tag"),
    ("a second document starts here", "second document"),
    ("this is not valid YAML or JSON", "half a surrogate pair"),
    ("metadata.uid", "`metadata.uid`"),
    ("metadata.deletionTimestamp", "`deletionTimestamp`"),
    ("spec.nodeName", "`nodeName`"),
    ("spec.priority", "`priority`"),
    ("spec.priorityClassName", "`priorityClassName`"),
    ("spec.os.name", "`os: windows`"),
    ("securityContext.windowsOptions", "`windowsOptions`"),
    ("spec.containers.command", "`command`"),
    ("spec.containers.env.value", "variable"),
    ("httpGet.path", "`path`"),
    ("httpGet.host", "`host`"),
    ("httpGet.httpHeaders.value", "header"),
    ("spec.volumes.", "`volumes`"),
];
/// What is accepted here and refused by the kubelet: the field, or the row of a text, which has no fields.
const ACCEPTED_HERE: [(&str, &str); 4] = [
    ("spec.containers.image", "`image`"),
    ("spec.initContainers.image", "`image`"),
    ("text: a directive of 1.2", "`%YAML 1.2`"),
    ("text: JSON with a comma too many", "comma too many in JSON"),
];

#[derive(Deserialize)]
struct Row {
    name: String,
    /// The pod, or the text of its manifest.
    pod: Option<Json>,
    text: Option<String>,
    accepted: bool,
    #[serde(default)]
    fields: Vec<String>,
}

/// A field that is at fault, with what is said of it.
struct Fault {
    field: String,
    what: String,
}

fn rows() -> impl Iterator<Item = Row> {
    let files =
        ["pod-validation-kubelet-1.36.jsonl.gz", "pod-validation-more-kubelet-1.36.jsonl.gz"];
    files.into_iter().flat_map(|name| {
        let path: PathBuf =
            [env!("CARGO_MANIFEST_DIR"), "../..", "tests", "corpus", name].iter().collect();
        let lines = BufReader::new(GzDecoder::new(File::open(path).unwrap())).lines();
        lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap())
    })
}

/// Our faults of the row.
fn faults(row: &Row) -> Vec<Fault> {
    let text = row.text.clone().unwrap_or_else(|| row.pod.as_ref().unwrap().to_string());
    match read_manifest(Path::new("web.yaml"), text.as_bytes(), "node") {
        Ok(_) => Vec::new(),
        Err(ManifestError::Invalid(problems)) => {
            let fault = |problem: &winddown_yaml::Problem| Fault {
                field: problem.field.clone(),
                what: problem.message.clone(),
            };
            problems.list().iter().map(fault).collect()
        }
        Err(error) => vec![Fault { field: String::new(), what: error.to_string() }],
    }
}

/// The field without the places in its lists, and without keys in brackets.
fn plain(field: &str) -> String {
    let mut depth = 0;
    let outside = |c: &char| {
        depth += i32::from(*c == '[');
        let outside = depth == 0;
        depth -= i32::from(*c == ']');
        outside
    };
    field.chars().filter(outside).collect()
}

/// The entry of the table that the field, or what is said of it, is in.
fn listed<'a>(table: &[(&'a str, &str)], field: &str, what: &str) -> Option<&'a str> {
    let is_it = |(entry, _): &&(&str, &str)| match entry.strip_suffix('.') {
        // A kind of volume, not what is wrong within one.
        Some(list) => field.rsplit_once('.').is_some_and(|(parent, _)| parent == list),
        None => field == *entry || field.ends_with(&format!(".{entry}")) || what.starts_with(entry),
    };
    table.iter().find(is_it).map(|(entry, _)| *entry)
}

/// Whether two fields are the same, or in the same object. The kubelet leaves out lists in some.
fn is_near(ours: &str, theirs: &str) -> bool {
    let ours = &*ours.replace(".items", "");
    let last = |field: &str| field.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let (long, short) = if ours.len() > theirs.len() { (ours, theirs) } else { (theirs, ours) };
    let parent = short.rsplit_once('.').map_or(short, |(parent, _)| parent);
    last(ours) == last(theirs) || long.starts_with(parent)
}

#[test]
fn each_pod_is_accepted_or_refused_as_by_the_kubelet_or_differs_as_the_page_says() {
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    for row in rows() {
        let (ours, name) = (faults(&row), &row.name);
        let entry = |fault: &Fault| listed(&REFUSED_HERE, &plain(&fault.field), &fault.what);
        match (ours.is_empty(), row.accepted) {
            (true, true) => {}
            (false, true) => {
                for fault in &ours {
                    match entry(fault) {
                        Some(entry) => _ = used.insert(entry),
                        None => wrong.push(format!("{name}: {}: {}", fault.field, fault.what)),
                    }
                }
            }
            (true, false) => {
                let known = |field: &String| listed(&ACCEPTED_HERE, &plain(field), "");
                let entries: Option<Vec<&str>> = match row.fields.is_empty() {
                    true => listed(&ACCEPTED_HERE, "", name).map(|entry| vec![entry]),
                    false => row.fields.iter().map(known).collect(),
                };
                match entries {
                    Some(entries) => used.extend(entries),
                    None => wrong.push(format!("{name}: accepted, {:?}", row.fields)),
                }
            }
            (false, false) => {
                let is_there = |theirs: &String| {
                    ours.iter().any(|ours| is_near(&plain(&ours.field), &plain(theirs)))
                };
                let ours_alone = ours.iter().all(|fault| entry(fault).is_some());
                if !row.fields.is_empty() && !row.fields.iter().any(is_there) && !ours_alone {
                    wrong.push(format!("{name}: refused for another field, {:?}", row.fields));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
    let page = include_str!("../../../../docs/pod-fields.md");
    for (entry, word) in REFUSED_HERE.iter().chain(&ACCEPTED_HERE) {
        assert!(used.contains(entry), "{entry} differs in no row");
        assert!(page.contains(word), "{word} is not in docs/pod-fields.md");
    }
}
