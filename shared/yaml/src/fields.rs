//! Reads a mapping field by field, and continues after each mistake.

use std::path::PathBuf;
use std::time::Duration;

use winddown_shared::{GoDuration, GoDurationError, parse_duration};

use super::problem::MOST_PROBLEMS;
use super::{Meaning, Path, Position, Problem, Value, YamlNode};

/// A mapping that is being read. Keys that were never requested are unknown.
pub struct Fields<'n, 'p> {
    node: &'n YamlNode,
    path: Path<'p>,
    known: Vec<&'static str>,
    belongs_below: fn(&str) -> Option<&'static str>,
    dialect: Option<Dialect>,
    problems: &'p mut Vec<Problem>,
}

/// How the program whose file it is reads it: Go's durations, and what else differs.
#[derive(Clone, Debug)]
pub struct Dialect {
    /// The keys for which 0 and an empty text count as absent.
    pub zero_is_unset: Vec<&'static str>,
    /// The directory that relative paths are below.
    pub directory: PathBuf,
}

/// A value and the position of its key.
#[derive(Clone, Debug)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// The position of its key.
    pub at: Position,
}

/// `: did you mean …?` if a known name is similar to `key`, else `: remove it`.
pub(crate) fn suggestion(key: &str, known: &[&str]) -> String {
    let close = |name: &&&str| distance(key, name) <= 1 + name.len() / 5;
    match known.iter().filter(close).min_by_key(|name| distance(key, name)) {
        Some(name) => format!(": did you mean `{name}`?"),
        None => ": remove it".to_owned(),
    }
}

/// How many letters differ, ignoring case; two transposed letters count as one.
fn distance(a: &str, b: &str) -> usize {
    // Names are short; a long text is not a misspelt name.
    if a.len() > 64 {
        return usize::MAX;
    }
    strsim::osa_distance(&a.to_ascii_lowercase(), &b.to_ascii_lowercase())
}

// === impl Fields ===

impl<'n, 'p> Fields<'n, 'p> {
    /// Starts to read the mapping `node`; anything else is a problem and reads as empty.
    pub fn new(node: &'n YamlNode, path: Path<'p>, problems: &'p mut Vec<Problem>) -> Self {
        if !matches!(node.value, Value::Map(_)) {
            // The value is not quoted: a whole file that is not a mapping is the wrong file, and may hold anything.
            let what = format!("needs a mapping, this is {}", node.kind());
            problems.push(Problem::new(node.at, path, what));
        }
        let known = Vec::new();
        Self { node, path, known, belongs_below: |_| None, dialect: None, problems }
    }

    /// From now on, reads the mapping as another program does.
    pub fn read_as(&mut self, dialect: Dialect) {
        self.dialect = Some(dialect);
    }

    /// How another program reads the mapping, if it is that program's.
    pub fn dialect(&self) -> Option<&Dialect> {
        self.dialect.as_ref()
    }

    /// What to say of an unknown name: the key that it belongs below, if it belongs elsewhere.
    pub fn belongs_below(&mut self, of: fn(&str) -> Option<&'static str>) {
        self.belongs_below = of;
    }

    /// The value of `key`, unless it is absent or null.
    pub fn node(&mut self, key: &'static str) -> Option<Located<&'n YamlNode>> {
        self.known.push(key);
        let (found, node) = self.node.entry(key)?;
        let zero = |node: &YamlNode| match &node.value {
            Value::Scalar(s) => matches!(&*s.text, "" | "0") || s.meaning() == Meaning::Int(0),
            Value::List(_) | Value::Map(_) => false,
        };
        let zero_is_unset = self.dialect.as_ref().is_some_and(|d| d.zero_is_unset.contains(&key));
        let unset = node.is_null() || (zero_is_unset && zero(node));
        (!unset).then_some(Located { value: node, at: found.at })
    }

    /// The text of `key`; anything else is a problem.
    pub fn text(&mut self, key: &'static str) -> Option<Located<&'n str>> {
        let found = self.node(key)?;
        self.scalar(key, &found, "a string", |meaning, _| match meaning {
            Meaning::Text(text) => Some(text),
            _ => None,
        })
    }

    /// The bool of `key`; anything else is a problem.
    pub fn bool(&mut self, key: &'static str) -> Option<bool> {
        let found = self.node(key)?;
        let read = self.scalar(key, &found, "true or false", |meaning, _| match meaning {
            Meaning::Bool(value) => Some(value),
            _ => None,
        });
        read.map(|found| found.value)
    }

    /// The integer of `key`, from `least` to `most`.
    pub fn integer(&mut self, key: &'static str, least: i64, most: i64) -> Option<i64> {
        let found = self.node(key)?;
        let wanted = format!("a whole number from {least} to {most}");
        let read = self.scalar(key, &found, &wanted, |meaning, _| match meaning {
            Meaning::Int(value) => {
                i64::try_from(value).ok().filter(|value| (least..=most).contains(value))
            }
            _ => None,
        });
        read.map(|found| found.value)
    }

    /// The duration of `key`, with a unit: `30s`, `1m30s` or `1min 30s`; a bare `0` is zero. In a dialect, Go's forms
    /// alone.
    pub fn duration(&mut self, key: &'static str) -> Option<Located<Duration>> {
        let Located { value: text, at } = self.raw(key, "a duration, for example 30s")?;
        let read = match self.dialect {
            None => parse_duration(text).map_err(|error| error.to_string()),
            Some(_) => go_duration(text),
        };
        match read {
            Ok(value) => Some(Located { value, at }),
            Err(what) => {
                self.fail(key, at, what);
                None
            }
        }
    }

    /// The scalar of `key` as it is written, including numbers. In a dialect, only a text.
    pub fn raw(&mut self, key: &'static str, wanted: &str) -> Option<Located<&'n str>> {
        let found = self.node(key)?;
        let strict = self.dialect.is_some();
        self.scalar(key, &found, wanted, |meaning, text| match meaning {
            Meaning::Bool(_) | Meaning::Null => None,
            Meaning::Int(_) | Meaning::Float(_) if strict => None,
            Meaning::Int(_) | Meaning::Float(_) | Meaning::Text(_) => Some(text),
        })
    }

    /// Records a problem of the field `key`.
    pub fn fail(&mut self, key: &str, at: Position, message: impl std::fmt::Display) {
        self.problems.push(Problem::new(at, self.path.key(key), message));
    }

    /// The keys that were never requested.
    pub fn unknown(&self) -> impl Iterator<Item = &'n super::Key> {
        let entries = match &self.node.value {
            Value::Map(entries) => entries.as_slice(),
            _ => &[],
        };
        entries.iter().map(|(key, _)| key).filter(|key| !self.known.contains(&&*key.text))
    }

    /// Says that `key` is unknown, and what it may stand for: one of the keys that were requested, or of `others`.
    pub fn unknown_field(&self, key: &super::Key, others: &[&str]) -> Problem {
        let hint = match (self.belongs_below)(&key.text) {
            Some(field) => format!(": it belongs below `{field}`"),
            None => suggestion(&key.text, &[&self.known, others].concat()),
        };
        Problem::new(key.at, self.path.key(&key.text), format!("unknown field{hint}"))
    }

    /// Finishes reading: unknown keys are problems.
    pub fn finish(self) {
        let problem = |key: &super::Key| self.unknown_field(key, &[]);
        let unknown: Vec<Problem> = self.unknown().take(MOST_PROBLEMS + 1).map(problem).collect();
        self.problems.extend(unknown);
    }

    fn scalar<T>(
        &mut self,
        key: &str,
        found: &Located<&'n YamlNode>,
        wanted: &str,
        read: impl FnOnce(Meaning<'n>, &'n str) -> Option<T>,
    ) -> Option<Located<T>> {
        let value = match &found.value.value {
            Value::Scalar(scalar) => read(scalar.meaning(), &scalar.text),
            _ => None,
        };
        if value.is_none() {
            let hint = match &found.value.value {
                Value::Scalar(scalar) => scalar.hint(wanted == "a string", false),
                _ => String::new(),
            };
            let what = format!("needs {wanted}, this is {}{hint}", found.value.describe());
            self.fail(key, found.at, what);
        }
        value.map(|value| Located { value, at: found.at })
    }
}

impl<'n> Fields<'n, '_> {
    /// Reads the mapping `key`, if it exists; unknown keys are problems.
    pub fn below<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Fields<'_, '_>) -> Option<T>,
    ) -> Option<T> {
        let found = self.node(key)?;
        let path = self.path.key(key);
        mapping(path, found.value, found.at, self.problems, read)
    }

    /// Reads the mapping that is item `index` of the list `key`; unknown keys are problems.
    pub fn below_index<T>(
        &mut self,
        key: &'static str,
        index: usize,
        item: &YamlNode,
        read: impl FnOnce(&mut Fields<'_, '_>) -> Option<T>,
    ) -> Option<T> {
        let path = self.path.key(key);
        mapping(path.index(index), item, item.at, self.problems, read)
    }

    /// Records a problem of item `index` of the list `key`.
    pub fn fail_index(
        &mut self,
        key: &str,
        index: usize,
        at: Position,
        message: impl std::fmt::Display,
    ) {
        let path = self.path.key(key);
        self.problems.push(Problem::new(at, path.index(index), message));
    }

    /// Records a problem of the entry `entry` of the mapping `key`.
    pub fn fail_below(
        &mut self,
        key: &str,
        entry: &str,
        at: Position,
        message: impl std::fmt::Display,
    ) {
        let path = self.path.key(key);
        self.problems.push(Problem::new(at, path.key(entry), message));
    }

    /// The position of the entry `entry` of the mapping `key`, if it exists.
    pub fn entry_at(&self, key: &str, entry: &str) -> Option<Position> {
        self.node.get(key)?.entry(entry).map(|(key, _)| key.at)
    }

    /// Whether `key` exists and is not null, valid or not.
    pub fn has(&self, key: &str) -> bool {
        self.node.get(key).is_some_and(|node| !node.is_null())
    }

    /// The position of `key`, if it exists.
    pub fn key_at(&self, key: &str) -> Option<Position> {
        self.node.entry(key).map(|(key, _)| key.at)
    }

    /// Whether this is a mapping at all.
    pub fn is_mapping(&self) -> bool {
        matches!(self.node.value, Value::Map(_))
    }

    /// The position of the mapping itself.
    pub fn at(&self) -> Position {
        self.node.at
    }
}

fn go_duration(text: &str) -> Result<Duration, String> {
    let duration: GoDuration = text.parse().map_err(|error: GoDurationError| error.to_string())?;
    Duration::try_from(duration).map_err(|error| error.to_string())
}

fn mapping<T>(
    path: Path<'_>,
    node: &YamlNode,
    at: Position,
    problems: &mut Vec<Problem>,
    read: impl FnOnce(&mut Fields<'_, '_>) -> Option<T>,
) -> Option<T> {
    if !matches!(node.value, Value::Map(_)) {
        let what = format!("needs a mapping, this is {}", node.describe());
        problems.push(Problem::new(at, path, what));
        return None;
    }
    let mut fields = Fields::new(node, path, problems);
    let result = read(&mut fields);
    fields.finish();
    result
}

#[cfg(test)]
mod tests {
    use super::suggestion;

    #[test]
    fn letters_that_changed_places_are_one_mistake() {
        let known = ["mode", "runtime", "nodeName"];
        for (written, meant) in [("mdoe", "mode"), ("Mode", "mode"), ("nodename", "nodeName")] {
            assert_eq!(suggestion(written, &known), format!(": did you mean `{meant}`?"));
        }
        assert_eq!(suggestion("note", &known[1..]), ": remove it");
    }
}
