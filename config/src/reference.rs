//! The table of every option: its name, what it is for, what it may be, where its value is kept, and when a
//! change takes effect.
//!
//! It is the one definition of an option. The reader and `winddown config show` walk it; `winddown config default`,
//! winddown.yaml(5), the JSON schema and what a reload applies are made from it. Defaults are those of
//! [`Config::default`].

mod access;
mod cluster;
mod eviction;
mod node;
mod pods;
mod shutdown;
#[cfg(test)]
mod tests;
mod value;
mod yaml;

use std::sync::LazyLock;

use serde_json::Value as Json;

use super::Config;
pub(super) use value::word;
use value::{At, OneOf, Options, Place, Value, Word};
use winddown_yaml::{Fields, Problem};

/// Options that belong together.
pub struct Section {
    /// What they are about, as a title.
    pub title: &'static str,
    rows: Vec<Top>,
    /// Holds the options against each other once all are read.
    relate: fn(&mut Fields<'_, '_>, &mut Config, &mut Reading),
}

/// What is known of a file beside its fields.
pub(super) struct Reading {
    /// It is a kubelet's.
    pub(super) kubelet: bool,
    /// What was accepted but perhaps not meant.
    pub(super) warnings: Vec<Problem>,
}

/// An option of a `T`.
pub(super) struct Row<T> {
    pub(super) field: Field,
    place: Box<dyn Place<T>>,
}

/// An option at the top of the file.
type Top = Row<Config>;

/// How an option is called, what it is for and what it may be.
#[derive(Clone)]
pub struct Field {
    /// Its key.
    pub name: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// What it is for, and what leaving it out means. Bounds are not repeated here. An empty line
    /// parts paragraphs; names of fields and words to be typed stand in `backquotes`.
    pub doc: &'static str,
    /// How it may look, as YAML, where the default is that it is not there. More than one line is
    /// block style, without an indent.
    pub example: &'static str,
    /// A reload of the configuration applies it; otherwise it waits for a restart.
    pub live: bool,
    /// It has to be there.
    pub required: bool,
    zero: Zero,
    /// What else is wrong with the text of the option, or of an entry with this name.
    check: fn(name: &str, text: &str) -> Option<String>,
}

/// Whether 0 or the empty text is as if the option were left out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zero {
    Counts,
    IsUnset,
    /// In a kubelet's file, where the option has no 0 of its own.
    IsUnsetForKubelets,
}

/// What an option may be.
#[derive(Clone)]
#[expect(missing_docs, reason = "the text of a variant speaks of its fields")]
pub enum Kind {
    /// true or false.
    Flag,
    /// A text of the form that `pattern`, a regular expression, describes roughly. An empty pattern
    /// takes any, and the empty text for none.
    Text { pattern: &'static str },
    /// An absolute path; `empty` is also accepted, and turns it off.
    Path { empty: bool },
    /// What of a network address has to be written; the empty text is none.
    Address(&'static str),
    /// One of these words.
    Choice(Vec<&'static str>),
    /// A whole number, bounds included.
    Integer { least: i64, most: i64, unit: &'static str },
    /// A duration, bounds included; an empty bound is none. Where `zero`, 0 is accepted as well.
    Duration { least: &'static str, most: &'static str, zero: bool },
    /// An amount of bytes, at least this.
    Size { least: &'static str },
    /// A share of time, above 0% and up to 100%.
    Percent,
    /// A quantity, or a share of the capacity such as 10%.
    Threshold,
    /// A quantity.
    Quantity,
    /// A list of these words, of which the first one counts.
    Words(&'static [&'static str]),
    /// A list of IP addresses.
    Addresses,
    /// A list of texts of the form that this regular expression describes roughly.
    Texts(&'static str),
    /// A program, by its whole path, and its arguments.
    Command,
    /// A mapping from names to values.
    Map { names: Names, value: &'static Kind },
    /// A mapping with these fields.
    Object(Vec<Field>),
    /// A list of mappings with these fields.
    List(Vec<Field>),
}

/// Which names a mapping may have.
#[derive(Clone, Copy)]
pub enum Names {
    /// One of these.
    Words(&'static [&'static str]),
    /// What this regular expression describes roughly.
    Like(&'static str),
}

/// The sections, in the order in which they are shown.
pub fn sections() -> &'static [Section] {
    static SECTIONS: LazyLock<[Section; 6]> = LazyLock::new(|| {
        [
            node::section(),
            cluster::section(),
            pods::section(),
            shutdown::section(),
            eviction::section(),
            access::section(),
        ]
    });
    &*SECTIONS
}

/// The default configuration as YAML, every field with its meaning, range and default.
///
/// It reads back to [`Config::default`](super::Config::default).
pub fn default_yaml() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(yaml::document);
    &TEXT
}

/// The default of the field `name` at the top of the file; none when it is not there by default.
pub fn default_of(name: &str) -> Option<Json> {
    static DEFAULTS: LazyLock<Vec<(&'static str, Json)>> =
        LazyLock::new(|| entries(&Config::default()));
    DEFAULTS.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone())
}

/// Every field at the top of the file.
pub fn fields() -> impl Iterator<Item = &'static Field> {
    rows().map(|row| &row.field)
}

fn rows() -> impl Iterator<Item = &'static Top> {
    sections().iter().flat_map(|section| &section.rows)
}

/// Reads every option; what is wrong is noted in `fields`.
pub(super) fn read(fields: &mut Fields<'_, '_>, reading: &mut Reading) -> Config {
    if reading.kubelet {
        let unset = |field: &&Field| field.zero == Zero::IsUnsetForKubelets;
        fields.take_zero_for_unset(self::fields().filter(unset).map(|field| field.name).collect());
    }
    let mut config = Config::default();
    for row in rows() {
        row.place.read(&row.field, fields, &mut config);
        let name = row.field.name;
        if let Some(at) = fields.key_at(name).filter(|_| !reading.kubelet && !fields.has(name)) {
            let what = "has no value, so that the default applies";
            reading.warnings.push(Problem::new(at, name, what));
        }
    }
    for section in sections() {
        (section.relate)(fields, &mut config, reading);
    }
    config
}

/// Name and value of every option that is set, in the order of the table.
pub(super) fn entries(config: &Config) -> Vec<(&'static str, Json)> {
    let (mut config, mut default) = (config.clone(), Config::default());
    let mut written = |row: &Top| {
        let value = row.place.written(&row.field, &mut config)?;
        let mut usual = || row.place.written(&row.field, &mut default);
        // What is empty by default is left out while it is.
        let shown = !is_empty(&value) || usual().is_some_and(|usual| !is_empty(&usual));
        shown.then_some((row.field.name, value))
    };
    rows().filter_map(&mut written).collect()
}

/// `running` with the options of `new` that a reload applies.
pub(super) fn reloaded(running: &Config, new: &Config) -> Config {
    let (mut config, mut new) = (running.clone(), new.clone());
    for row in rows().filter(|row| row.field.live) {
        row.place.copy(&mut new, &mut config);
    }
    config
}

fn is_empty(value: &Json) -> bool {
    match value {
        Json::String(text) => text.is_empty(),
        Json::Array(items) => items.is_empty(),
        Json::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

// === impl Section ===

impl Section {
    /// In the order of the default file.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.rows.iter().map(|row| &row.field)
    }
}

// === impl Row ===

impl<T: 'static> Row<T> {
    /// An option that waits for a restart.
    fn new<V: Value>(name: &'static str, at: fn(&mut T) -> &mut V, kind: Kind) -> Self {
        Self::kept_by(Box::new(At(at)), name, kind)
    }

    /// One whose value is a word.
    fn choice<V: Word>(name: &'static str, at: fn(&mut T) -> &mut V) -> Self {
        let words = V::ALL.iter().map(|(word, _)| *word).collect();
        Self::kept_by(Box::new(OneOf(at)), name, Kind::Choice(words))
    }

    fn kept_by(place: Box<dyn Place<T>>, name: &'static str, kind: Kind) -> Self {
        let field = Field {
            name,
            kind,
            doc: "",
            example: "",
            live: false,
            required: false,
            zero: Zero::Counts,
            check: |_, _| None,
        };
        Self { field, place }
    }

    fn doc(mut self, doc: &'static str) -> Self {
        self.field.doc = doc;
        self
    }

    fn example(mut self, example: &'static str) -> Self {
        self.field.example = example;
        self
    }

    fn live(mut self) -> Self {
        self.field.live = true;
        self
    }

    fn required(mut self) -> Self {
        self.field.required = true;
        self
    }

    fn zero_is_unset(mut self) -> Self {
        self.field.zero = Zero::IsUnset;
        self
    }

    fn zero_is_unset_for_kubelets(mut self) -> Self {
        self.field.zero = Zero::IsUnsetForKubelets;
        self
    }

    fn check(mut self, check: fn(&str, &str) -> Option<String>) -> Self {
        self.field.check = check;
        self
    }
}

// === impl Kind ===

impl Kind {
    const ANY_TEXT: Self = Self::Text { pattern: "" };
    const PATH: Self = Self::Path { empty: false };
    /// A time between looks.
    const INTERVAL: Self = Self::duration("1s", "1h");

    const fn integer(least: i64, most: i64) -> Self {
        Self::Integer { least, most, unit: "" }
    }

    const fn seconds(least: i64, most: i64) -> Self {
        Self::Integer { least, most, unit: "seconds" }
    }

    /// 0 is accepted as well.
    const fn duration(least: &'static str, most: &'static str) -> Self {
        Self::Duration { least, most, zero: true }
    }

    fn object<T: Options>() -> Self {
        Self::Object(T::rows().into_iter().map(|row| row.field).collect())
    }

    fn list<T: Options>() -> Self {
        Self::List(T::rows().into_iter().map(|row| row.field).collect())
    }

    /// What has to be written, in a few words: `duration`.
    pub fn noun(&self) -> &'static str {
        match self {
            Self::Flag => "true or false",
            Self::Text { .. } => "text",
            Self::Path { .. } => "path",
            Self::Address(what) => what,
            Self::Choice(_) => "word",
            Self::Integer { .. } => "whole number",
            Self::Duration { .. } => "duration",
            Self::Size { .. } => "size",
            Self::Percent => "percentage",
            Self::Threshold => "quantity or percentage",
            Self::Quantity => "quantity",
            Self::Words(_) => "list of words",
            Self::Addresses => "list of addresses",
            Self::Texts(_) => "list of texts",
            Self::Command => "command",
            Self::Map { .. } => "mapping from names to values",
            Self::Object(_) => "mapping",
            Self::List(_) => "list of mappings",
        }
    }

    /// The bounds, as the end of a sentence; none where there are none, or where the words say it.
    pub fn bounds(&self) -> Option<String> {
        match self {
            Self::Integer { least, most, unit } => {
                let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
                Some(format!("{least} to {most}{unit}"))
            }
            Self::Duration { least: "" | "0s", most: "", .. } => None,
            Self::Duration { least, most: "", .. } => Some(format!("At least {least}")),
            Self::Duration { least: "" | "0s", most, .. } => Some(format!("At most {most}")),
            Self::Duration { least, most, .. } => Some(format!("{least} to {most}")),
            Self::Size { least } => Some(format!("At least {least}")),
            _ => None,
        }
    }

    /// The words that are accepted, where those are all.
    pub fn words(&self) -> Option<&[&'static str]> {
        match self {
            Self::Choice(words) => Some(words),
            Self::Words(words) | Self::Map { names: Names::Words(words), .. } => Some(words),
            _ => None,
        }
    }

    /// The fields of the mapping, or of each mapping of the list.
    pub fn fields(&self) -> &[Field] {
        match self {
            Self::Object(fields) | Self::List(fields) => fields,
            _ => &[],
        }
    }
}
