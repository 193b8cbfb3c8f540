//! Reads a mapping field by field and goes on after each mistake.

use std::time::Duration;

use winddown_shared::parse_duration;

use super::problem::MOST_PROBLEMS;
use super::{Meaning, Node, Path, Position, Problem, Value};

/// A mapping that is being read. What was not asked for by the end is unknown.
pub struct Fields<'n, 'p> {
    node: &'n Node,
    path: Path<'p>,
    known: Vec<&'static str>,
    zero_is_unset: Vec<&'static str>,
    problems: &'p mut Vec<Problem>,
}

/// A value and the place of its key.
#[derive(Clone, Debug)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where the value starts.
    pub at: Position,
}

/// `, did you mean ...?` when a known name is close to `key`.
pub(crate) fn suggestion(key: &str, known: &[&str]) -> String {
    let close = |name: &&&str| distance(key, name) <= 1 + name.len() / 5;
    match known.iter().filter(close).min_by_key(|name| distance(key, name)) {
        Some(name) => format!(": did you mean `{name}`?"),
        None => ": remove it".to_owned(),
    }
}

/// How many letters differ, case ignored; two that changed places count as one.
fn distance(a: &str, b: &str) -> usize {
    // Names are short; text that is not is no misspelt name.
    if a.len() > 64 {
        return usize::MAX;
    }
    strsim::osa_distance(&a.to_ascii_lowercase(), &b.to_ascii_lowercase())
}

// === impl Fields ===

impl<'n, 'p> Fields<'n, 'p> {
    /// Starts to read the mapping `node`; what is no mapping is a problem and reads as empty.
    pub fn new(node: &'n Node, path: Path<'p>, problems: &'p mut Vec<Problem>) -> Self {
        if !matches!(node.value, Value::Map(_)) {
            // Not what it says: a whole file that is no mapping is another one than was meant, and may hold
            // anything.
            let what = format!("needs a mapping, this is {}", node.kind());
            problems.push(Problem::new(node.at, path, what));
        }
        Self { node, path, known: Vec::new(), zero_is_unset: Vec::new(), problems }
    }

    /// From here on, 0 and an empty text of one of `keys` are as if the key were absent.
    pub fn take_zero_for_unset(&mut self, keys: Vec<&'static str>) {
        self.zero_is_unset = keys;
    }

    /// The value of `key`, unless it is absent or null.
    pub fn node(&mut self, key: &'static str) -> Option<Located<&'n Node>> {
        self.known.push(key);
        let (found, node) = self.node.entry(key)?;
        let zero =
            |node: &Node| matches!(&node.value, Value::Scalar(s) if matches!(&*s.text, "" | "0"));
        let unset = node.is_null() || (self.zero_is_unset.contains(&key) && zero(node));
        (!unset).then_some(Located { value: node, at: found.at })
    }

    /// The text of `key`; anything else is a problem.
    pub fn text(&mut self, key: &'static str) -> Option<Located<&'n str>> {
        let found = self.node(key)?;
        self.scalar(key, &found, "a text", |meaning, _| match meaning {
            Meaning::Text(text) => Some(text),
            _ => None,
        })
    }

    /// The truth value of `key`; anything else is a problem.
    pub fn bool(&mut self, key: &'static str) -> Option<bool> {
        let found = self.node(key)?;
        let read = self.scalar(key, &found, "true or false", |meaning, _| match meaning {
            Meaning::Bool(value) => Some(value),
            _ => None,
        });
        read.map(|found| found.value)
    }

    /// A whole number from `least` to `most`.
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

    /// A duration with a unit, `30s`, `1m30s` or `1min 30s`; a bare `0` is none.
    pub fn duration(&mut self, key: &'static str) -> Option<Located<Duration>> {
        let Located { value: text, at } = self.raw(key, "a duration, for example 30s")?;
        match parse_duration(text) {
            Ok(value) => Some(Located { value, at }),
            Err(what) => {
                self.fail(key, at, what);
                None
            }
        }
    }

    /// The scalar as it is written, numbers included.
    pub fn raw(&mut self, key: &'static str, wanted: &str) -> Option<Located<&'n str>> {
        let found = self.node(key)?;
        self.scalar(key, &found, wanted, |meaning, text| match meaning {
            Meaning::Bool(_) | Meaning::Null => None,
            _ => Some(text),
        })
    }

    /// Notes a problem of the field `key`.
    pub fn fail(&mut self, key: &str, at: Position, message: impl std::fmt::Display) {
        self.problems.push(Problem::new(at, self.path.key(key), message));
    }

    /// The keys that were not asked for.
    pub fn unknown(&self) -> impl Iterator<Item = &'n super::Key> {
        let entries = match &self.node.value {
            Value::Map(entries) => entries.as_slice(),
            _ => &[],
        };
        entries.iter().map(|(key, _)| key).filter(|key| !self.known.contains(&&*key.text))
    }

    /// Ends the reading: unknown keys are problems.
    pub fn finish(self) {
        let problem = |key: &super::Key| {
            let what = format!("unknown field{}", suggestion(&key.text, &self.known));
            Problem::new(key.at, self.path.key(&key.text), what)
        };
        let unknown: Vec<Problem> = self.unknown().take(MOST_PROBLEMS + 1).map(problem).collect();
        self.problems.extend(unknown);
    }

    fn scalar<T>(
        &mut self,
        key: &str,
        found: &Located<&'n Node>,
        wanted: &str,
        read: impl FnOnce(Meaning<'n>, &'n str) -> Option<T>,
    ) -> Option<Located<T>> {
        let value = match &found.value.value {
            Value::Scalar(scalar) => read(scalar.meaning(), &scalar.text),
            _ => None,
        };
        if value.is_none() {
            let hint = match &found.value.value {
                Value::Scalar(scalar) => scalar.hint(wanted == "a text", false),
                _ => String::new(),
            };
            let what = format!("needs {wanted}, this is {}{hint}", found.value.describe());
            self.fail(key, found.at, what);
        }
        value.map(|value| Located { value, at: found.at })
    }
}

impl<'n> Fields<'n, '_> {
    /// Reads the mapping `key`, if it is there; unknown keys are problems.
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
        item: &Node,
        read: impl FnOnce(&mut Fields<'_, '_>) -> Option<T>,
    ) -> Option<T> {
        let path = self.path.key(key);
        mapping(path.index(index), item, item.at, self.problems, read)
    }

    /// Notes a problem of item `index` of the list `key`.
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

    /// Notes a problem of the entry `entry` of the mapping `key`.
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

    /// Where the entry `entry` of the mapping `key` stands, if it does.
    pub fn entry_at(&self, key: &str, entry: &str) -> Option<Position> {
        self.node.get(key)?.entry(entry).map(|(key, _)| key.at)
    }

    /// Whether `key` is there, right or wrong.
    pub fn has(&self, key: &str) -> bool {
        self.node.get(key).is_some_and(|node| !node.is_null())
    }

    /// Where `key` stands, if it does.
    pub fn key_at(&self, key: &str) -> Option<Position> {
        self.node.entry(key).map(|(key, _)| key.at)
    }

    /// Whether this is a mapping at all.
    pub fn is_mapping(&self) -> bool {
        matches!(self.node.value, Value::Map(_))
    }

    /// Where the mapping itself stands.
    pub fn at(&self) -> Position {
        self.node.at
    }
}

fn mapping<T>(
    path: Path<'_>,
    node: &Node,
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
