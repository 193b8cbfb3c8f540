//! The values of options: how each is parsed from a file, and printed.

use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde_json::{Value as Json, json};
use winddown_eviction::{ThresholdValue, parse_threshold};
use winddown_shared::{GoDuration, Quantity, parse_duration};
use winddown_yaml::{Fields, Located};

use super::{Field, OptionRow, ValueKind, Zero};
use crate::Trust;

mod collections;

use collections::list;
pub(crate) use collections::{options_below, root_options, written_options};

/// A value that an option can have.
pub(crate) trait OptionValue: Clone + 'static {
    /// The type of an option with such a value, as long as its row does not say less.
    fn kind() -> ValueKind;
    /// Reads the value from the file; `None` if it is missing or invalid. An error is recorded in `fields`.
    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self>;
    /// Returns the value as it would be written in a file; an unset value is empty, and null where a file has no word
    /// for it.
    fn written(&self, field: &Field) -> Json;
    /// Puts the paths in the value below `root`.
    fn root(&mut self, _field: &Field, _root: &Path) {}
}

/// A value that is one of a few words.
pub(crate) trait Word: Copy + PartialEq + 'static {
    /// The words, in display order.
    const ALL: &'static [(&'static str, Self)];
}

/// A part of the file whose entries are options: of its top level, or a mapping below that.
pub(crate) trait Options: Clone + Default + 'static {
    /// Returns the rows of the options in a `T`, which has them at `at`.
    fn rows<T: 'static>(at: fn(&mut T) -> &mut Self) -> Vec<OptionRow<T>>;
}

/// Options that are listed.
pub(crate) trait ListEntry: Options {
    /// Returns why it cannot be in the same list as `other`.
    fn conflict(&self, other: &Self) -> Option<String>;
}

/// The place in a `T` where the value of an option is stored.
pub(crate) trait ValuePlace<T>: Send + Sync {
    /// Reads the option. Returns whether it exists and is valid.
    fn read(&self, field: &Field, fields: &mut Fields<'_, '_>, to: &mut T) -> bool;
    /// Returns the value as it would be written in a file, see [`OptionValue::written`].
    fn written(&self, field: &Field, of: &mut T) -> Json;
    fn copy(&self, from: &mut T, to: &mut T);
    /// Puts the paths in the value below `root`.
    fn root(&self, field: &Field, of: &mut T, root: &Path);
}

/// A value stored in a field of its own.
pub(crate) struct StoredIn<T, V>(pub(crate) Box<dyn Fn(&mut T) -> &mut V + Send + Sync>);

impl<T, V: OptionValue> ValuePlace<T> for StoredIn<T, V> {
    fn read(&self, field: &Field, fields: &mut Fields<'_, '_>, to: &mut T) -> bool {
        let value = V::read(field, fields);
        let found = value.is_some();
        if let Some(value) = value {
            *self.0(to) = value;
        }
        found
    }

    fn written(&self, field: &Field, of: &mut T) -> Json {
        self.0(of).written(field)
    }

    fn copy(&self, from: &mut T, to: &mut T) {
        self.0(to).clone_from(self.0(from));
    }

    fn root(&self, field: &Field, of: &mut T, root: &Path) {
        self.0(of).root(field, root);
    }
}

impl<V: Word> OptionValue for V {
    fn kind() -> ValueKind {
        ValueKind::Choice(V::ALL.iter().map(|(word, _)| *word).collect())
    }

    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        parsed(field, fields, |text| {
            let known = V::ALL.iter().find(|(word, _)| *word == text);
            known.map(|(_, value)| *value).ok_or_else(|| {
                let words = field.kind.words().unwrap_or_default();
                let (last, rest) = words.split_last().unwrap_or((&"", &[]));
                format!("`{text}` is unknown: write {} or {last}", rest.join(", "))
            })
        })
    }

    fn written(&self, _: &Field) -> Json {
        json!(word(*self))
    }
}

/// Returns the word for `value`.
pub(crate) fn word<V: Word>(value: V) -> &'static str {
    V::ALL.iter().find(|(_, one)| *one == value).map_or("", |(word, _)| word)
}

/// Formats a duration as Go does.
pub(crate) fn go(duration: Duration) -> String {
    match GoDuration::try_from(duration) {
        Ok(duration) => duration.to_string(),
        Err(_) => format!("{}s", duration.as_secs()),
    }
}

/// Parses the option's text with `parse`, and records its error.
pub(crate) fn parsed<V>(
    field: &Field,
    fields: &mut Fields<'_, '_>,
    parse: impl FnOnce(&str) -> Result<V, String>,
) -> Option<V> {
    let Located { value, at } = match wanted(&field.kind) {
        "a string" => fields.text(field.name)?,
        wanted => fields.raw(field.name, wanted)?,
    };
    parse(value).map_err(|what| fields.fail(field.name, at, what)).ok()
}

/// Returns the text if it passes the check of its option.
fn checked(field: &Field, name: &str, text: &str) -> Result<String, String> {
    (field.check)(name, text).map_or_else(|| Ok(text.to_owned()), Err)
}

/// Describes the expected scalar for an error message.
fn wanted(kind: &ValueKind) -> &'static str {
    match kind {
        ValueKind::Address(_) => "an address",
        ValueKind::Duration { .. } => "a duration, for example 30s",
        ValueKind::Size { .. } => "a size, for example 10Mi",
        ValueKind::Percent => "a percentage, for example 10%",
        ValueKind::Threshold => "a quantity or a percentage, for example 10%",
        ValueKind::Quantity => "a quantity, for example 200m",
        _ => "a string",
    }
}

impl OptionValue for bool {
    fn kind() -> ValueKind {
        ValueKind::Flag
    }

    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        let ValueKind::Words(words) = field.kind else {
            return fields.bool(field.name);
        };
        let first = *words.first()?;
        let items = list(field, fields, &format!("a list such as [{first}]"))?;
        for (index, item) in items.iter().enumerate() {
            let text = item.text().unwrap_or_default();
            let what = match words.contains(&text) {
                true if items[..index].iter().any(|item| item.text() == Some(text)) => {
                    format!("`{text}` is in the list twice: keep one entry")
                }
                true if text == "none" && items.len() > 1 => {
                    "`none` contradicts the other entries: remove it, or them".to_owned()
                }
                true => continue,
                false => format!("{} is unknown: write {}", item.describe(), words.join(", ")),
            };
            fields.fail_index(field.name, index, item.at, what);
        }
        Some(items.iter().any(|item| item.text() == Some(first)))
    }

    fn written(&self, field: &Field) -> Json {
        match field.kind {
            ValueKind::Words(words) => json!(words.get(..usize::from(*self))),
            _ => json!(self),
        }
    }
}

fn whole<V: TryFrom<i64>>(field: &Field, fields: &mut Fields<'_, '_>) -> Option<V> {
    let ValueKind::Integer { least, most, .. } = field.kind else { return None };
    V::try_from(fields.integer(field.name, least, most)?).ok()
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl OptionValue for $type {
            fn kind() -> ValueKind {
                let (least, most) = (<$type>::MIN.into(), <$type>::MAX.into());
                ValueKind::Integer { least, most, unit: "" }
            }

            fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
                whole(field, fields)
            }

            fn written(&self, _: &Field) -> Json {
                json!(self)
            }
        }
    )*};
}

integers! { u32 i32 }

impl OptionValue for u64 {
    fn kind() -> ValueKind {
        ValueKind::Size { least: "0" }
    }

    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        let ValueKind::Size { least } = field.kind else { return None };
        let bytes = |text: &str| text.parse::<Quantity>().map(Quantity::value);
        let too_small = |text: &str| format!("`{text}` is too small: write at least {least}");
        parsed(field, fields, |text| {
            let size = bytes(text).map_err(|error| error.to_string())?;
            let size = u64::try_from(size).map_err(|_| too_small(text))?;
            let enough = bytes(least).is_ok_and(|least| i128::from(least) <= i128::from(size));
            if enough { Ok(size) } else { Err(too_small(text)) }
        })
    }

    fn written(&self, _: &Field) -> Json {
        const UNITS: [(u64, &str); 3] = [(1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
        match UNITS.iter().find(|(unit, _)| self.is_multiple_of(*unit) && *self > 0) {
            Some((unit, suffix)) => json!(format!("{}{suffix}", self / unit)),
            None => json!(self.to_string()),
        }
    }
}

impl OptionValue for Duration {
    fn kind() -> ValueKind {
        ValueKind::duration("", "")
    }

    /// A value out of range is recorded as an error but still returned, for the checks of other options.
    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        let ValueKind::Duration { least, most, zero } = field.kind else {
            return whole(field, fields).map(Self::from_secs);
        };
        let Located { value, at } = fields.duration(field.name)?;
        if value.is_zero() && zero {
            return (field.zero == Zero::Counts).then_some(value);
        }
        let least = parse_duration(least).unwrap_or(Self::ZERO);
        if let Err(what) = checked(field, field.name, &go(value)) {
            fields.fail(field.name, at, what);
        } else if value < least || value > parse_duration(most).unwrap_or(Self::MAX) {
            let bounds = field.kind.bounds().unwrap_or_default().replacen("At", "at", 1);
            let zero = if field.zero == Zero::IsUnset { ", or 0s for the default" } else { "" };
            let what = format!("{} is out of range: write {bounds}{zero}", go(value));
            fields.fail(field.name, at, what);
        }
        Some(value)
    }

    fn written(&self, field: &Field) -> Json {
        match field.kind {
            ValueKind::Integer { .. } => json!(self.as_secs()),
            _ => json!(go(*self)),
        }
    }
}

impl OptionValue for f32 {
    fn kind() -> ValueKind {
        ValueKind::Percent
    }

    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        parsed(field, fields, |text| {
            let number = text.strip_suffix('%').and_then(|number| number.parse::<f32>().ok());
            number.filter(|percent| *percent > 0.0 && *percent <= 100.0).ok_or_else(|| {
                format!("`{text}` is no share of the time: write more than 0% and up to 100%")
            })
        })
    }

    fn written(&self, _: &Field) -> Json {
        json!(format!("{self}%"))
    }
}

impl OptionValue for ThresholdValue {
    fn kind() -> ValueKind {
        ValueKind::Threshold
    }

    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        parsed(field, fields, |text| match parse_threshold(text) {
            Ok(Some(threshold)) => Ok(threshold),
            Ok(None) => {
                Err(format!("`{text}` would switch it off: leave memoryPressure out instead"))
            }
            Err(error) => Err(error.to_string()),
        })
    }

    fn written(&self, _: &Field) -> Json {
        match self {
            Self::Quantity(quantity) => json!(quantity.to_string()),
            Self::Share(share) => json!(format!("{}%", share * 100.0)),
        }
    }
}

impl OptionValue for String {
    fn kind() -> ValueKind {
        ValueKind::Text { pattern: "" }
    }

    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        let text =
            parsed(field, fields, |text| match text.is_empty() && field.zero == Zero::IsUnset {
                true => Ok(String::new()),
                false => checked(field, field.name, text),
            })?;
        (field.zero == Zero::Counts || !text.is_empty()).then_some(text)
    }

    fn written(&self, _: &Field) -> Json {
        json!(self)
    }

    /// The address of a socket.
    fn root(&mut self, field: &Field, root: &Path) {
        if let (Some(Trust::Socket), Some(path)) = (field.trust, self.strip_prefix("unix://")) {
            *self = format!("unix://{}", below(root, Path::new(path)).display());
        }
    }
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

impl OptionValue for PathBuf {
    fn kind() -> ValueKind {
        ValueKind::PATH
    }

    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        let directory = fields.dialect().map(|dialect| dialect.directory.clone());
        parsed(field, fields, |text| {
            checked(field, field.name, text)?;
            // Kubelets take paths below the directory of the file.
            let path = match &directory {
                Some(directory) if !text.is_empty() => directory.join(text),
                _ => PathBuf::from(text),
            };
            if !path.is_absolute() || text.contains('\0') {
                return Err(format!(
                    "`{text}` is not an absolute path: write one that starts with /"
                ));
            }
            match path.components().any(|part| part == Component::ParentDir) {
                true => Err(format!("`{text}` has a `..` in it: write it out")),
                false => Ok(path.components().collect()),
            }
        })
    }

    fn written(&self, _: &Field) -> Json {
        json!(self.to_string_lossy())
    }

    fn root(&mut self, _: &Field, root: &Path) {
        *self = below(root, self);
    }
}

impl OptionValue for SocketAddr {
    fn kind() -> ValueKind {
        ValueKind::Address("IP and port")
    }

    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        parsed(field, fields, |text| {
            let what = "is no address: write IP and port, such as 127.0.0.1:9477";
            text.parse().map_err(|_| format!("`{text}` {what}"))
        })
    }

    fn written(&self, _: &Field) -> Json {
        json!(self.to_string())
    }
}

impl<V: OptionValue> OptionValue for Option<V> {
    fn kind() -> ValueKind {
        match V::kind() {
            ValueKind::Path { .. } => ValueKind::Path { empty: true },
            ValueKind::Choice(words) => ValueKind::Choice([vec![NONE], words].concat()),
            kind => kind,
        }
    }

    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        let none = word_for_none(&field.kind);
        match none.is_some() && fields.node(field.name)?.value.text() == none {
            true => Some(None),
            false => V::read(field, fields).map(Some),
        }
    }

    fn written(&self, field: &Field) -> Json {
        self.as_ref()
            .map_or_else(|| json!(word_for_none(&field.kind)), |value| value.written(field))
    }

    fn root(&mut self, field: &Field, root: &Path) {
        if let Some(value) = self {
            value.root(field, root);
        }
    }
}

/// Among words, the one for an unset option.
const NONE: &str = "none";

/// What a file says for an unset option; `None` if it can only leave it out.
fn word_for_none(kind: &ValueKind) -> Option<&'static str> {
    match kind {
        ValueKind::Choice(_) => Some(NONE),
        ValueKind::Path { empty: true }
        | ValueKind::Address(_)
        | ValueKind::Text { pattern: "" } => Some(""),
        _ => None,
    }
}
