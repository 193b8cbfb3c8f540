//! What a row of the table is, and how it is tried.

use std::fmt;

use serde_json::{Value, json};
use winddown_cri::CriRuntime;
use winddown_engine::unsupported;
use winddown_host::LocalNode;
use winddown_shared::{Allocatable, Pod, UnsupportedField, platform_fits};

/// What the table distinguishes, in the order of its columns.
pub(crate) const RUNTIMES: [&str; 3] = ["process", "systemd", "cri"];

/// The fields of one struct of the API, where a pod has it.
pub(crate) struct Group {
    /// The struct's name.
    pub(crate) of: &'static str,
    /// Where in a pod the samples are put.
    pub(crate) at: &'static str,
    /// What the struct needs beside a sample.
    pub(crate) base: Value,
    pub(crate) rows: Vec<Row>,
}

/// One field.
pub(crate) struct Row {
    pub(crate) field: &'static str,
    /// A value that means something.
    pub(crate) sample: Value,
    /// What of the struct's other fields changes with it; null takes one away.
    pub(crate) with: Value,
    /// Of `process` and `systemd` together, and of `cri`; or of all three.
    pub(crate) verdicts: Vec<Verdict>,
}

/// What a runtime makes of a field.
pub(crate) struct Verdict {
    pub(crate) kind: Kind,
    /// Values that are refused, with one sentence, although the sample is not.
    pub(crate) but: Vec<Value>,
    /// The test that shows it of a pod of the API server, whose references are resolved before a
    /// runtime sees them.
    pub(crate) resolved: Option<&'static str>,
    /// What an operator should know beside it.
    pub(crate) note: &'static str,
}

pub(crate) enum Kind {
    /// It is done. This test shows it.
    Yes(&'static str),
    /// The pod is refused, with the sentence that the runtime has for it.
    No,
    /// Nothing is left out by not looking at it, for this reason.
    Harmless(&'static str),
    /// The pod runs without it and says so.
    Left,
}

pub(crate) fn yes(test: &'static str) -> Verdict {
    Verdict { kind: Kind::Yes(test), but: Vec::new(), resolved: None, note: "" }
}

pub(crate) fn no() -> Verdict {
    Verdict { kind: Kind::No, ..yes("") }
}

pub(crate) fn harmless(why: &'static str) -> Verdict {
    Verdict { kind: Kind::Harmless(why), ..yes("") }
}

pub(crate) fn left() -> Verdict {
    Verdict { kind: Kind::Left, ..yes("") }
}

macro_rules! rows {
    (@with) => { serde_json::json!({}) };
    (@with $with:tt) => { serde_json::json!($with) };
    ($($field:ident = $sample:tt $(with $with:tt)? => $($verdict:expr),+;)*) => {
        vec![$($crate::table::Row {
            field: stringify!($field),
            sample: serde_json::json!($sample),
            with: $crate::table::rows!(@with $($with)?),
            verdicts: vec![$($verdict),+],
        }),*]
    };
}
pub(crate) use rows;

// === impl Verdict ===

impl Verdict {
    pub(crate) fn but(mut self, but: Value) -> Self {
        self.but.push(but);
        self
    }

    pub(crate) fn resolved(self, test: &'static str) -> Self {
        Self { resolved: Some(test), ..self }
    }

    pub(crate) fn note(self, note: &'static str) -> Self {
        Self { note, ..self }
    }
}

// === impl Row ===

impl Row {
    /// The verdict of a runtime of [`RUNTIMES`].
    pub(crate) fn verdict(&self, runtime: &str) -> &Verdict {
        match (runtime, self.verdicts.as_slice()) {
            ("process", [verdict, ..])
            | ("systemd", [verdict, _] | [_, verdict, _])
            | ("cri", [_, verdict] | [_, _, verdict]) => verdict,
            _ => panic!("{} has {} verdicts", self.field, self.verdicts.len()),
        }
    }
}

// === impl Group ===

impl Group {
    /// The row's path in a pod.
    pub(crate) fn path(&self, row: &Row) -> String {
        format!("{}.{}", self.at, row.field)
    }

    /// A pod with `value` in the row's field.
    pub(crate) fn pod(&self, row: &Row, value: &Value) -> Pod {
        let mut object = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"hostNetwork": true, "containers": [
                {"name": "main", "image": "app:1", "command": ["true"]}]}});
        // What the struct is in, where that needs more than the struct.
        if self.at.starts_with("spec.volumes[0]") {
            object["spec"]["volumes"] = json!([{"name": "data"}]);
        }
        if let Some((http, _)) = self.at.split_once(".httpHeaders") {
            place(&mut object, http)["port"] = json!(80);
        }
        let place = place(&mut object, self.at);
        merge(place, &self.base);
        merge(place, &row.with);
        merge(place, &json!({row.field: value}));
        if object.pointer("/spec/containers/0/volumeMounts").is_some() {
            // A mount needs its volume.
            object["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
        }
        let read = serde_json::from_value(object.clone());
        let read = read.unwrap_or_else(|error| panic!("{}: {error}: {object}", self.path(row)));
        Pod::new(read).unwrap()
    }

    /// What the runtime has against a value of the row's field.
    pub(crate) fn refusal(&self, runtime: &str, row: &Row, value: &Value) -> Option<Refusal> {
        let path = self.path(row);
        let is_of = |field: &str| {
            let below = |a: &str, b: &str| {
                a.strip_prefix(b)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            };
            below(field, &path) || below(&path, field)
        };
        let all = unsupported(runtime, &self.pod(row, value));
        let own = all.iter().find(|found| is_of(&found.field));
        own.or(all.first()).map(|found| Refusal {
            is_own: own.is_some(),
            of_whole: path.len() > found.field.len(),
            field: found.field.clone(),
            why: found.why.clone(),
        })
    }
}

/// Why a pod is refused.
pub(crate) struct Refusal {
    /// It is about the row's field, something in it or something that it is in.
    pub(crate) is_own: bool,
    /// It is about something that the field is in.
    pub(crate) of_whole: bool,
    pub(crate) field: String,
    pub(crate) why: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

/// What the node refuses: what the runtime does not support, and what the machine with this runtime does not.
fn unsupported(runtime: &str, pod: &Pod) -> Vec<UnsupportedField> {
    let (mut found, strict_groups) = match runtime {
        // A runtime applies the policy unless it says otherwise.
        "process" => (winddown_runtimes::process::check_supported(pod), true),
        "systemd" => (winddown_runtimes::systemd::check_supported(pod), true),
        "cri" => (winddown_cri::check_supported(pod), CriRuntime::STRICT_GROUPS),
        other => panic!("{other} is no runtime"),
    };
    let node = LocalNode { strict_groups, app_armor: true, ..LocalNode::default() }
        .view(Allocatable::default());
    found.extend(platform_fits(pod, &node).err().map(|refused| {
        UnsupportedField::new(refused.reason.to_string(), refused.message.to_string())
    }));
    found
}

/// What a pod that runs goes on without.
pub(crate) fn left_out(pod: &Pod) -> Option<UnsupportedField> {
    unsupported::ephemeral(pod)
}

/// The value at a path like `spec.containers[0].env`; what is not there is made.
fn place<'a>(object: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.').fold(object, |value, step| match step.strip_suffix("[0]") {
        None => &mut value[step],
        Some(list) => {
            let list = &mut value[list];
            if list.is_null() {
                *list = json!([{}]);
            }
            &mut list[0]
        }
    })
}

/// Puts the fields of `change` into `value`; null takes one away.
fn merge(value: &mut Value, change: &Value) {
    if value.is_null() {
        *value = json!({});
    }
    let fields = value.as_object_mut().unwrap();
    for (name, new) in change.as_object().unwrap() {
        match new {
            Value::Null => fields.remove(name),
            new => fields.insert(name.clone(), new.clone()),
        };
    }
}
