//! The table of every field of the configuration: what it is for, what it may be, when it takes
//! effect.
//!
//! `winddown config default`, winddown.yaml(5), the JSON schema and what a reload applies are all
//! made of it. Defaults are not in it: they are those of [`Config::default`]. What the reader asks
//! for and what stands here are held together by tests: every name, every bound, every choice.

mod access;
mod cluster;
mod eviction;
mod node;
mod pods;
mod shutdown;
#[cfg(test)]
mod tests;
mod yaml;

use std::sync::LazyLock;

use serde_json::Value;

use super::Config;

/// The sections, in the order in which they are shown.
pub const SECTIONS: [&Section; 6] = [
    &node::SECTION,
    &cluster::SECTION,
    &pods::SECTION,
    &shutdown::SECTION,
    &eviction::SECTION,
    &access::SECTION,
];

/// Fields that belong together.
pub struct Section {
    /// What they are about, as a title.
    pub title: &'static str,
    /// In the order of the default file.
    pub fields: &'static [Field],
}

/// One field.
#[derive(Clone, Copy)]
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
    /// A default that [`Config`] does not keep, as YAML.
    pub written: &'static str,
    /// A reload of the configuration applies it; otherwise it waits for a restart.
    pub live: bool,
}

/// What a field may be.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "the text of a variant speaks of its fields")]
pub enum Kind {
    /// true or false.
    Flag,
    /// A text of the form that `pattern`, a regular expression, describes roughly. An empty pattern
    /// takes any.
    Text { pattern: &'static str },
    /// An absolute path; `empty` is also accepted, and turns it off.
    Path { empty: bool },
    /// One of these words.
    Choice(&'static [&'static str]),
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
    /// A list of these words.
    Words(&'static [&'static str]),
    /// A list of IP addresses.
    Addresses,
    /// A mapping from names to values.
    Map { names: Names, value: &'static Kind },
    /// A mapping with these fields.
    Object(&'static [Field]),
    /// A list of mappings with these fields; those in `required` have to be there.
    List { of: &'static [Field], required: &'static [&'static str] },
}

/// Which names a mapping may have.
#[derive(Clone, Copy)]
pub enum Names {
    /// One of these.
    Words(&'static [&'static str]),
    /// What this regular expression describes roughly.
    Like(&'static str),
}

/// The default configuration as YAML, every field with its meaning, range and default.
///
/// It reads back to [`Config::default`](super::Config::default).
pub fn default_yaml() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(yaml::document);
    &TEXT
}

/// The default of the field `name` at the top of the file; none when it is not there by default.
pub fn default_of(name: &str) -> Option<Value> {
    static DEFAULTS: LazyLock<Vec<(&'static str, Value)>> =
        LazyLock::new(|| Config::default().entries());
    let known = DEFAULTS.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
    known.or_else(|| {
        let written = field(name).map(|field| field.written).filter(|text| !text.is_empty())?;
        serde_json::from_str(written).ok()
    })
}

/// The field `name` at the top of the file.
pub fn field(name: &str) -> Option<&'static Field> {
    fields().find(|field| field.name == name)
}

/// Every field at the top of the file.
pub fn fields() -> impl Iterator<Item = &'static Field> {
    SECTIONS.iter().flat_map(|section| section.fields)
}

// === impl Field ===

impl Field {
    /// A field that waits for a restart.
    const fn new(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self { name, kind, doc, example: "", written: "", live: false }
    }

    const fn example(self, example: &'static str) -> Self {
        Self { example, ..self }
    }

    const fn written(self, written: &'static str) -> Self {
        Self { written, ..self }
    }

    const fn live(self) -> Self {
        Self { live: true, ..self }
    }
}

// === impl Kind ===

impl Kind {
    const ANY_TEXT: Self = Self::Text { pattern: "" };
    const PATH: Self = Self::Path { empty: false };
    /// A time between looks: 0 takes the default, as it does for the kubelet.
    const INTERVAL: Self = Self::Duration { least: "1s", most: "1h", zero: true };

    const fn integer(least: i64, most: i64) -> Self {
        Self::Integer { least, most, unit: "" }
    }

    /// What has to be written, in a few words: `a duration`.
    pub fn noun(&self) -> &'static str {
        match self {
            Self::Flag => "true or false",
            Self::Text { .. } => "text",
            Self::Path { .. } => "path",
            Self::Choice(_) => "word",
            Self::Integer { .. } => "whole number",
            Self::Duration { .. } => "duration",
            Self::Size { .. } => "size",
            Self::Percent => "percentage",
            Self::Threshold => "quantity or percentage",
            Self::Quantity => "quantity",
            Self::Words(_) => "list of words",
            Self::Addresses => "list of addresses",
            Self::Map { .. } => "mapping from names to values",
            Self::Object(_) => "mapping",
            Self::List { .. } => "list of mappings",
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
    pub fn words(&self) -> Option<&'static [&'static str]> {
        match self {
            Self::Choice(words) | Self::Words(words) => Some(words),
            Self::Map { names: Names::Words(words), .. } => Some(words),
            _ => None,
        }
    }
}
