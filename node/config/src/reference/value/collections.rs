//! Values that are lists or mappings.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use winddown_eviction::{SoftGraceError, parse_soft_grace};
use winddown_yaml::{Fields, Located, Meaning, Position, Value as Tree, YamlNode};

use super::{ListEntry, OptionValue, Options, checked, go, wanted};
use crate::reference::{Field, Names, OptionRow, ValueKind, is_empty};

/// Returns the items of the option's list.
pub(super) fn list<'n>(
    field: &Field,
    fields: &mut Fields<'n, '_>,
    wanted: &str,
) -> Option<&'n [Rc<YamlNode>]> {
    let Located { value, at } = fields.node(field.name)?;
    if let Tree::List(items) = &value.value {
        return Some(items);
    }
    fields.fail(field.name, at, format!("needs {wanted}, this is {}", value.describe()));
    None
}

impl OptionValue for Vec<String> {
    fn kind() -> ValueKind {
        ValueKind::Texts("")
    }

    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        let items = list(field, fields, &format!("a list such as {}", field.example))?;
        let mut all = Self::with_capacity(items.len());
        for item in items {
            let Some(text) = item.text() else {
                let what = format!("needs a list of strings, one of them is {}", item.kind());
                fields.fail(field.name, item.at, what);
                continue;
            };
            match checked(field, field.name, text) {
                Ok(text) => all.push(text),
                Err(what) => fields.fail(field.name, item.at, format!("`{text}` {what}")),
            }
        }
        if matches!(field.kind, ValueKind::Command)
            && !all.first().is_some_and(|p| p.starts_with('/'))
        {
            let what = format!(
                "names no program by its whole path: write, for example, {}",
                field.example
            );
            let at = fields.node(field.name)?.at;
            fields.fail(field.name, at, what);
        }
        Some(all)
    }

    fn written(&self, _: &Field) -> Json {
        json!(self)
    }
}

impl OptionValue for Vec<IpAddr> {
    fn kind() -> ValueKind {
        ValueKind::Addresses
    }

    /// Accepts a list, or a text with commas.
    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        let parts: Vec<(&str, Position)> = match field.kind {
            ValueKind::Address(_) => {
                let Located { value, at } = fields.raw(field.name, wanted(&field.kind))?;
                let parts = value.split(',').map(str::trim).filter(|part| !part.is_empty());
                parts.map(|part| (part, at)).collect()
            }
            _ => list(field, fields, "a list such as [10.96.0.10]")?
                .iter()
                .map(|item| (item.text().unwrap_or(item.kind()), item.at))
                .collect(),
        };
        let mut addresses = Vec::with_capacity(parts.len());
        for (part, at) in parts {
            match part.parse() {
                Ok(address) => addresses.push(address),
                // The kubelet skips it; the section warns.
                Err(_) if fields.dialect().is_some() => {}
                Err(_) => {
                    let what = "is no address: write, for example, 10.0.0.5 or fd00::5";
                    fields.fail(field.name, at, format!("`{part}` {what}"));
                }
            }
        }
        Some(addresses)
    }

    fn written(&self, field: &Field) -> Json {
        let all: Vec<String> = self.iter().map(ToString::to_string).collect();
        match field.kind {
            ValueKind::Address(_) => json!(all.join(",")),
            _ => json!(all),
        }
    }
}

impl OptionValue for BTreeMap<String, String> {
    fn kind() -> ValueKind {
        ValueKind::Map { names: Names::Like(""), value: &ValueKind::Text { pattern: "" } }
    }

    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        entries(field, fields, |name, text| checked(field, name, text))
    }

    fn written(&self, _: &Field) -> Json {
        json!(self)
    }
}

/// Grace periods of soft thresholds. A zero is an error only for a threshold that is in effect: the kubelet accepts it
/// for others.
impl OptionValue for BTreeMap<String, Duration> {
    fn kind() -> ValueKind {
        ValueKind::Map {
            names: Names::Like(""),
            value: &ValueKind::Duration { least: "", most: "", zero: false },
        }
    }

    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        entries(field, fields, |name, text| {
            checked(field, name, text)?;
            match parse_soft_grace(text) {
                Err(SoftGraceError::Zero) => Ok(Duration::ZERO),
                read => read.map_err(|error| error.to_string()),
            }
        })
    }

    fn written(&self, _: &Field) -> Json {
        self.iter().map(|(name, grace)| (name.clone(), json!(go(*grace)))).collect()
    }
}

/// Reads a mapping, and parses each value with `read`.
fn entries<V>(
    field: &Field,
    fields: &mut Fields<'_, '_>,
    read: impl Fn(&str, &str) -> Result<V, String>,
) -> Option<BTreeMap<String, V>> {
    let ValueKind::Map { value, .. } = field.kind else { return None };
    let found = fields.node(field.name)?;
    let Tree::Map(entries) = &found.value.value else {
        let what = format!("needs a {}, this is {}", field.kind.noun(), found.value.describe());
        fields.fail(field.name, found.at, what);
        return None;
    };
    // Kubelets read no number as a text.
    let strict = fields.dialect().is_some();
    let text = |node: &Rc<YamlNode>| match &node.value {
        Tree::Scalar(scalar) => !strict || matches!(scalar.meaning(), Meaning::Text(_)),
        Tree::List(_) | Tree::Map(_) => false,
    };
    let mut all = BTreeMap::new();
    for (name, node) in entries {
        let one = match node.text().filter(|_| text(node)) {
            Some(text) => read(&name.text, text),
            None => Err(format!("needs {}, this is {}", wanted(value), node.describe())),
        };
        match one {
            Ok(one) => drop(all.insert(name.text.to_string(), one)),
            Err(what) => fields.fail_below(field.name, &name.text, name.at, what),
        }
    }
    Some(all)
}

impl<T: ListEntry> OptionValue for Vec<T> {
    fn kind() -> ValueKind {
        match ValueKind::object::<T>() {
            ValueKind::Object(fields) => ValueKind::List(fields),
            kind => kind,
        }
    }

    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        let items = list(field, fields, "a list")?;
        let mut all: Vec<T> = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let Some(one) = fields.below_index(field.name, index, item, options_below::<T>) else {
                continue;
            };
            match all.iter().find_map(|other| one.conflict(other)) {
                // In a kubelet's list the last of several counts.
                Some(_) if fields.dialect().is_some() => {
                    all.retain(|other| one.conflict(other).is_none());
                    all.push(one);
                }
                Some(what) => fields.fail_index(field.name, index, item.at, what),
                None => all.push(one),
            }
        }
        Some(all)
    }

    fn written(&self, _: &Field) -> Json {
        self.iter().map(written_options).collect()
    }
}

/// Reads the options of a mapping; `None` if a required one is missing or invalid.
pub(crate) fn options_below<T: Options>(fields: &mut Fields<'_, '_>) -> Option<T> {
    let mut read = T::default();
    let mut complete = true;
    for OptionRow { field, place } in T::rows(|of| of) {
        let found = place.read(&field, fields, &mut read);
        if field.required && !found {
            complete = false;
            if !fields.has(field.name) {
                fields.fail(field.name, fields.at(), "is missing: an entry needs one");
            }
        }
    }
    complete.then_some(read)
}

/// Returns the options as they would be written in a file.
pub(crate) fn written_options<T: Options>(of: &T) -> Json {
    let mut of = of.clone();
    let written =
        |row: &OptionRow<T>| (row.field.name.to_owned(), row.place.written(&row.field, &mut of));
    let entries: Map<_, _> = T::rows(|of| of).iter().map(written).collect();
    entries.into_iter().filter(|(_, value)| !is_empty(value)).collect()
}

/// Puts the paths among the options below `root`.
pub(crate) fn root_options<T: Options>(of: &mut T, root: &Path) {
    T::rows(|of| of).iter().for_each(|row| row.place.root(&row.field, of, root));
}
