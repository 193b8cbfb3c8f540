//! The table of all options: name, purpose, type, the field that stores the value, and when a change takes effect.
//!
//! An option is one field of a struct in `options!`, which is its single definition: `/// purpose`, then
//! `field: Type = default => live("name", effect)` or `at_restart("name", effect)`, which say when a change takes effect
//! and on which nodes, and its bounds.
//! The parser and `winddown config show` iterate over the table of these; `winddown config default`, winddown.yaml(5),
//! the JSON schema and the changes that a reload applies are generated from it.

mod define;
#[cfg(test)]
mod tests;
mod value;
mod yaml;

use std::marker::PhantomData;
use std::path::Path;
use std::sync::LazyLock;

use serde_json::Value as Json;

use super::{Config, Effect, Trust, TrustedPath};
pub(crate) use define::{options, rows, sections, words};
pub(crate) use value::{
    ListEntry, OptionValue, Options, Word, go, options_below, parsed, root_options, word,
    written_options,
};
use value::{StoredIn, ValuePlace};
use winddown_yaml::{Fields, Problem};

/// A group of related options.
pub struct OptionSection {
    /// The title.
    pub title: &'static str,
    rows: Vec<Top>,
    /// Checks the options against each other once all are read.
    relate: fn(&mut Fields<'_, '_>, &mut Config, &mut FieldReading),
}

/// The state of reading a file, in addition to its fields.
pub(crate) struct FieldReading {
    /// Whether the file is a kubelet's.
    pub(crate) kubelet: bool,
    /// The options that are set, and have no effect on a node like this; only of a kubelet's file.
    pub(crate) unused: Vec<&'static str>,
    /// Warnings about what was accepted, but may not be intended.
    pub(crate) warnings: Vec<Problem>,
}

/// An option whose value is a `V`.
pub(crate) struct TypedField<V> {
    field: Field,
    of: PhantomData<fn() -> V>,
}

/// An option, whose value is stored in a `T`.
pub(crate) struct OptionRow<T> {
    field: Field,
    place: Box<dyn ValuePlace<T>>,
}

/// An option at the top of the file.
type Top = OptionRow<Config>;

/// The name, purpose and type of an option.
#[derive(Clone)]
pub struct Field {
    /// Its key.
    pub name: &'static str,
    /// The type of its value.
    pub kind: ValueKind,
    /// Its purpose, and the meaning of leaving it out, without the bounds. An empty line separates paragraphs; names of
    /// fields and literal words are in `backquotes`.
    pub doc: String,
    /// An example in YAML, for options that are unset by default. Several lines are block style, without indentation.
    pub example: &'static str,
    /// Whether a reload applies a change, or only a restart.
    pub live: bool,
    /// On which nodes it has an effect.
    pub effect: Effect,
    /// Whether it is required.
    pub required: bool,
    /// What root does with what is at this path; `None` if it is no path.
    pub trust: Option<Trust>,
    zero: Zero,
    /// Checks the text of the option, or of an entry with this name. Returns the error.
    check: fn(name: &str, text: &str) -> Option<String>,
}

/// Whether 0 or the empty string means that the option is unset.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zero {
    Counts,
    IsUnset,
    /// Only in a kubelet's file, where 0 has no meaning of its own for this option.
    IsUnsetForKubelets,
}

/// The type of an option's value.
#[derive(Clone)]
#[expect(missing_docs, reason = "the text of a variant speaks of its fields")]
pub enum ValueKind {
    /// A boolean.
    Flag,
    /// A text that roughly matches the regular expression `pattern`. An empty pattern accepts any text, where the empty
    /// one means unset.
    Text { pattern: &'static str },
    /// An absolute path. With `empty`, the empty string is accepted too, and turns the option off.
    Path { empty: bool },
    /// A network address, with the name of its format; the empty string means unset.
    Address(&'static str),
    /// One of these words.
    Choice(Vec<&'static str>),
    /// An integer; the bounds are inclusive.
    Integer { least: i64, most: i64, unit: &'static str },
    /// A duration; the bounds are inclusive, and an empty one means no bound. With `zero`, 0 is accepted too.
    Duration { least: &'static str, most: &'static str, zero: bool },
    /// A number of bytes, at least this.
    Size { least: &'static str },
    /// A percentage of time, above 0% and up to 100%.
    Percent,
    /// A quantity, or a percentage of the capacity such as 10%.
    Threshold,
    /// A quantity.
    Quantity,
    /// A list of these words, of which only the first has an effect.
    Words(&'static [&'static str]),
    /// A list of IP addresses.
    Addresses,
    /// A list of strings that roughly match this regular expression.
    Texts(&'static str),
    /// The absolute path of a program, and its arguments.
    Command,
    /// A mapping from names to values.
    Map { names: Names, value: &'static ValueKind },
    /// A mapping with these fields.
    Object(Vec<Field>),
    /// A list of mappings with these fields.
    List(Vec<Field>),
}

/// The names that a mapping accepts.
#[derive(Clone, Copy)]
pub enum Names {
    /// One of these.
    Words(&'static [&'static str]),
    /// Names that roughly match this regular expression.
    Like(&'static str),
}

/// Returns the sections, in display order.
pub fn sections() -> &'static [OptionSection] {
    static SECTIONS: LazyLock<Vec<OptionSection>> = LazyLock::new(Config::sections);
    &SECTIONS
}

/// Returns the default configuration as YAML, with the meaning, range and default of every field.
///
/// It parses back to [`Config::default`](super::Config::default).
pub fn default_yaml() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(yaml::document);
    &TEXT
}

/// Returns the default of the top-level field `name`; `None` if it is unset by default.
pub fn default_of(name: &str) -> Option<Json> {
    static DEFAULTS: LazyLock<Vec<(&'static str, Json)>> =
        LazyLock::new(|| entries(&Config::default()));
    DEFAULTS.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone())
}

/// Returns every top-level field.
pub fn fields() -> impl Iterator<Item = &'static Field> {
    rows().map(|row| &row.field)
}

fn rows() -> impl Iterator<Item = &'static Top> {
    sections().iter().flat_map(|section| &section.rows)
}

/// Returns the options for which 0 and an empty string in a kubelet's file mean nothing.
pub(crate) fn zero_is_unset_for_kubelets() -> Vec<&'static str> {
    let unset = |field: &&Field| field.zero == Zero::IsUnsetForKubelets;
    fields().filter(unset).map(|field| field.name).collect()
}

/// Reads every option; errors are recorded in `fields`.
pub(crate) fn read(fields: &mut Fields<'_, '_>, reading: &mut FieldReading) -> Config {
    let mut config = Config::default();
    for row in rows() {
        row.place.read(&row.field, fields, &mut config);
        let name = row.field.name;
        if let Some(at) = fields.key_at(name).filter(|_| !reading.kubelet && !fields.has(name)) {
            let what = "has no value, so that the default applies";
            reading.warnings.push(Problem::new(at, name, what));
        }
    }
    warn_of_missing_effects(fields, &config, reading);
    for section in sections() {
        (section.relate)(fields, &mut config, reading);
    }
    config
}

/// Warns of each option that has no effect on a node like this, and a value of its own: `winddown config show` writes the
/// default for every other option.
fn warn_of_missing_effects(fields: &Fields<'_, '_>, config: &Config, reading: &mut FieldReading) {
    let (mut config, mut default) = (config.clone(), Config::default());
    for Top { field, place } in rows() {
        let Some(at) = fields.key_at(field.name) else { continue };
        let Some(what) = field.effect.missing(field.name, &config.node) else { continue };
        if place.written(field, &mut config) == place.written(field, &mut default) {
            continue;
        }
        match reading.kubelet {
            true => reading.unused.push(field.name),
            false => reading.warnings.push(Problem::new(at, field.name, what)),
        }
    }
}

/// Returns the name and value of every option that is set, in the order of the table.
pub(crate) fn entries(config: &Config) -> Vec<(&'static str, Json)> {
    let (mut config, mut default) = (config.clone(), Config::default());
    let mut written = |row: &Top| {
        let value = row.place.written(&row.field, &mut config);
        let mut usual = || row.place.written(&row.field, &mut default);
        // An option that is empty by default is left out while it is empty.
        let shown = !is_empty(&value) || (!value.is_null() && !is_empty(&usual()));
        shown.then_some((row.field.name, value))
    };
    rows().filter_map(&mut written).collect()
}

/// Returns each path that the configuration names, in the order of the table.
pub(crate) fn paths(config: &Config) -> Vec<TrustedPath> {
    let mut config = config.clone();
    let mut all = Vec::new();
    for row in rows() {
        let value = row.place.written(&row.field, &mut config);
        collect(&row.field, row.field.name, &value, &mut all);
    }
    all
}

fn collect(field: &Field, option: &str, value: &Json, all: &mut Vec<TrustedPath>) {
    for field in field.kind.fields() {
        let option = format!("{option}.{}", field.name);
        let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        items.iter().for_each(|item| collect(field, &option, &item[field.name], all));
    }
    // The program is the first word of a command.
    let text = if matches!(field.kind, ValueKind::Command) { &value[0] } else { value };
    let (Some(trust), Some(text)) = (field.trust, text.as_str()) else { return };
    let path = Path::new(text.strip_prefix("unix://").unwrap_or(text));
    if path.is_absolute() {
        all.push(TrustedPath { option: option.to_owned(), path: path.to_owned(), trust });
    }
}

/// Returns `running` with the options of `new` that a reload applies.
pub(crate) fn reloaded(running: &Config, new: &Config) -> Config {
    let (mut config, mut new) = (running.clone(), new.clone());
    for row in rows().filter(|row| row.field.live) {
        row.place.copy(&mut new, &mut config);
    }
    config
}

/// Puts each path that the configuration names below `root`.
pub(crate) fn rooted(config: &mut Config, root: &Path) {
    rows().for_each(|row| row.place.root(&row.field, config, root));
}

fn is_empty(value: &Json) -> bool {
    match value {
        Json::Null => true,
        Json::String(text) => text.is_empty(),
        Json::Array(items) => items.is_empty(),
        Json::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

// === impl OptionSection ===

impl OptionSection {
    /// Returns the section with these rows.
    pub(crate) fn new(
        title: &'static str,
        rows: impl IntoIterator<Item = Vec<Top>>,
        relate: fn(&mut Fields<'_, '_>, &mut Config, &mut FieldReading),
    ) -> Self {
        Self { title, rows: rows.into_iter().flatten().collect(), relate }
    }

    /// Returns the options, in the order of the default file.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.rows.iter().map(|row| &row.field)
    }
}

// === impl TypedField ===

/// Returns an option whose changes are applied by a reload.
pub(crate) fn live<V: OptionValue>(name: &'static str, effect: Effect) -> TypedField<V> {
    TypedField::new(name, true, effect)
}

/// Returns an option whose changes take effect at a restart.
pub(crate) fn at_restart<V: OptionValue>(name: &'static str, effect: Effect) -> TypedField<V> {
    TypedField::new(name, false, effect)
}

/// Returns a field of an option, with which it takes effect.
pub(crate) fn part<V: OptionValue>(name: &'static str) -> TypedField<V> {
    TypedField::new(name, false, Effect::Everywhere)
}

impl<V: OptionValue> TypedField<V> {
    fn new(name: &'static str, live: bool, effect: Effect) -> Self {
        let field = Field {
            name,
            kind: V::kind(),
            doc: String::new(),
            example: "",
            live,
            effect,
            required: false,
            trust: None,
            zero: Zero::Counts,
            check: |_, _| None,
        };
        Self { field, of: PhantomData }
    }

    /// Reads the value as of this type, in place of the one that its field implies.
    pub(crate) fn kind(mut self, kind: ValueKind) -> Self {
        self.field.kind = kind;
        self
    }

    pub(crate) fn text(self, pattern: &'static str) -> Self {
        self.kind(ValueKind::Text { pattern })
    }

    pub(crate) fn integer(self, least: i64, most: i64) -> Self {
        self.kind(ValueKind::Integer { least, most, unit: "" })
    }

    pub(crate) fn seconds(self, least: i64, most: i64) -> Self {
        self.kind(ValueKind::Integer { least, most, unit: "seconds" })
    }

    /// A duration for which 0 is accepted too.
    pub(crate) fn duration(self, least: &'static str, most: &'static str) -> Self {
        self.kind(ValueKind::duration(least, most))
    }

    pub(crate) fn size(self, least: &'static str) -> Self {
        self.kind(ValueKind::Size { least })
    }

    pub(crate) fn example(mut self, example: &'static str) -> Self {
        self.field.example = example;
        self
    }

    pub(crate) fn required(mut self) -> Self {
        self.field.required = true;
        self
    }

    pub(crate) fn trusted(mut self, trust: Trust) -> Self {
        self.field.trust = Some(trust);
        self
    }

    pub(crate) fn zero_is_unset(mut self) -> Self {
        self.field.zero = Zero::IsUnset;
        self
    }

    pub(crate) fn zero_is_unset_for_kubelets(mut self) -> Self {
        self.field.zero = Zero::IsUnsetForKubelets;
        self
    }

    pub(crate) fn check(mut self, check: fn(&str, &str) -> Option<String>) -> Self {
        self.field.check = check;
        self
    }

    /// Returns the row for the option with the doc comment `doc`, whose value is stored at `place`.
    pub(crate) fn row<T: 'static>(
        mut self,
        doc: &[&str],
        place: impl Fn(&mut T) -> &mut V + Send + Sync + 'static,
    ) -> OptionRow<T> {
        let paragraphs = doc.split(|line| line.is_empty());
        let lines =
            |lines: &[&str]| lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        self.field.doc = paragraphs.map(lines).collect::<Vec<_>>().join("\n\n");
        OptionRow { field: self.field, place: Box::new(StoredIn(Box::new(place))) }
    }
}

// === impl ValueKind ===

impl ValueKind {
    pub(crate) const PATH: Self = Self::Path { empty: false };
    /// The interval of periodic checks.
    pub(crate) const INTERVAL: Self = Self::duration("1s", "1h");

    /// A duration for which 0 is accepted too.
    pub(crate) const fn duration(least: &'static str, most: &'static str) -> Self {
        Self::Duration { least, most, zero: true }
    }

    /// A mapping with the options of `T`.
    pub(crate) fn object<T: Options>() -> Self {
        Self::Object(T::rows(|of| of).into_iter().map(|row| row.field).collect())
    }

    /// Returns a short name of the type, e.g. `duration`.
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
            Self::Texts(_) => "list of strings",
            Self::Command => "command",
            Self::Map { .. } => "mapping from names to values",
            Self::Object(_) => "mapping",
            Self::List(_) => "list of mappings",
        }
    }

    /// Returns the bounds, as the end of a sentence; `None` if there are none, or if the type implies them.
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

    /// Returns the accepted words, if only certain words are accepted.
    pub fn words(&self) -> Option<&[&'static str]> {
        match self {
            Self::Choice(words) => Some(words),
            Self::Words(words) | Self::Map { names: Names::Words(words), .. } => Some(words),
            _ => None,
        }
    }

    /// Returns the fields of the mapping, or of each mapping in the list.
    pub fn fields(&self) -> &[Field] {
        match self {
            Self::Object(fields) | Self::List(fields) => fields,
            _ => &[],
        }
    }
}
