//! Collects the problems of a value that was read, with the positions in its file.

use std::fmt;

use super::problem::MOST_PROBLEMS;
use super::{Path, Position, Problem, Value, YamlNode};

/// Tracks the current field and records its problems.
pub struct FieldCheck<'n> {
    root: &'n YamlNode,
    steps: Vec<OwnedStep>,
    problems: Vec<Problem>,
}

enum OwnedStep {
    Key(String),
    Index(usize),
}

impl<'n> FieldCheck<'n> {
    /// Creates a check of the file that was read as `root`, without problems so far.
    pub fn new(root: &'n YamlNode) -> Self {
        Self { root, steps: Vec::new(), problems: Vec::new() }
    }

    /// Checks the field `key` of the current value.
    pub fn key<T>(&mut self, key: &str, look: impl FnOnce(&mut Self) -> T) -> T {
        self.steps.push(OwnedStep::Key(key.to_owned()));
        let result = look(self);
        self.steps.pop();
        result
    }

    /// Checks the item `index` of the current list.
    pub fn index<T>(&mut self, index: usize, look: impl FnOnce(&mut Self) -> T) -> T {
        self.steps.push(OwnedStep::Index(index));
        let result = look(self);
        self.steps.pop();
        result
    }

    /// Checks each item of the list `key`.
    pub fn each<I: IntoIterator>(
        &mut self,
        key: &str,
        items: I,
        mut look: impl FnMut(&mut Self, I::Item),
    ) {
        self.key(key, |check| {
            for (index, item) in items.into_iter().enumerate() {
                check.index(index, |check| look(check, item));
            }
        });
    }

    /// Records a problem of the current field.
    pub fn fail(&mut self, message: impl fmt::Display) {
        // One more than is shown, to know that there are more. Finding a position takes time in a long file, which must
        // not add up in a file that is wrong everywhere.
        if self.problems.len() > MOST_PROBLEMS {
            return;
        }
        let at = self.position();
        let problem = Problem::new(at, self.field(), message);
        self.problems.push(problem);
    }

    /// Records a problem of the field `key` of the current value.
    pub fn fail_at(&mut self, key: &str, message: impl fmt::Display) {
        self.key(key, |check| check.fail(message));
    }

    /// Returns all problems.
    pub fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    fn position(&self) -> Position {
        let (mut node, mut at) = (self.root, self.root.at);
        for step in &self.steps {
            let next = match (step, &node.value) {
                (OwnedStep::Key(key), _) => node.entry(key).map(|(k, node)| (node, k.at)),
                (OwnedStep::Index(index), Value::List(items)) => {
                    items.get(*index).map(|node| (&**node, node.at))
                }
                _ => None,
            };
            match next {
                Some(next) => (node, at) = next,
                // The field is missing: its parent's position is the best there is.
                None => break,
            }
        }
        at
    }

    fn field(&self) -> String {
        fn print(steps: &[OwnedStep], path: &Path<'_>) -> String {
            match steps.split_first() {
                None => path.to_string(),
                Some((OwnedStep::Key(key), rest)) => print(rest, &path.key(key)),
                Some((OwnedStep::Index(index), rest)) => print(rest, &path.index(*index)),
            }
        }
        print(&self.steps, &Path::ROOT)
    }
}
