//! Collects what is wrong with a value that was read, with the place it came from.

use std::fmt;

use super::problem::MOST_PROBLEMS;
use super::{Node, Path, Position, Problem, Value};

/// Knows which field is looked at and notes what is wrong with it.
pub struct Check<'n> {
    root: &'n Node,
    steps: Vec<OwnedStep>,
    problems: Vec<Problem>,
}

enum OwnedStep {
    Key(String),
    Index(usize),
}

impl<'n> Check<'n> {
    /// A check of the file that was read as `root`, without a problem so far.
    pub fn new(root: &'n Node) -> Self {
        Self { root, steps: Vec::new(), problems: Vec::new() }
    }

    /// Looks at the field `key` of where we are.
    pub fn key<T>(&mut self, key: &str, look: impl FnOnce(&mut Self) -> T) -> T {
        self.steps.push(OwnedStep::Key(key.to_owned()));
        let result = look(self);
        self.steps.pop();
        result
    }

    /// Looks at the item `index` of where we are.
    pub fn index<T>(&mut self, index: usize, look: impl FnOnce(&mut Self) -> T) -> T {
        self.steps.push(OwnedStep::Index(index));
        let result = look(self);
        self.steps.pop();
        result
    }

    /// Looks at each item of the list `key`.
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

    /// Notes that something is wrong here.
    pub fn fail(&mut self, message: impl fmt::Display) {
        // One more than is shown, so that it can be said that there is more. Finding a place takes
        // time in a long file; a file that is wrong everywhere must not take all day.
        if self.problems.len() > MOST_PROBLEMS {
            return;
        }
        let at = self.position();
        let problem = Problem::new(at, self.field(), message);
        self.problems.push(problem);
    }

    /// Notes that something is wrong with the field `key` of where we are.
    pub fn fail_at(&mut self, key: &str, message: impl fmt::Display) {
        self.key(key, |check| check.fail(message));
    }

    /// Everything that was found.
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
                // The field is missing: its parent's place is the best there is.
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
