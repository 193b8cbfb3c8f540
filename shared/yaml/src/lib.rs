//! A YAML or JSON file as a tree that remembers all positions.
//!
//! The author of a file needs the line and the field of each mistake, and all mistakes at once. serde's derived readers
//! know neither position nor field, and the Kubernetes types drop unknown fields. So a file is first read into a
//! [`YamlNode`] tree, from which both the configuration and the pod manifests are read.
//!
//! YAML is read as the kubelet reads it where manifests rely on it (`yes` is a bool, `0644` is
//! octal, `<<` merges) and more strictly where it guesses: duplicate keys, tags, a second document
//! and text that YAML takes for a number are errors. [`parse_first_leniently`] reads what was written for other programs,
//! which accept more.

mod check;
mod decode;
mod fields;
pub mod names;
mod parse;
mod path;
mod problem;
mod scalar;
#[cfg(test)]
mod tests;

use std::io::{self, Read};
use std::rc::Rc;

pub use check::FieldCheck;
pub use decode::decode;
pub use fields::{Dialect, Fields, Located};
pub use parse::{EMPTY, parse, parse_first_leniently, parse_if_any};
pub use path::{Path, Shortened};
pub use problem::{Problem, Problems};
pub use scalar::{Meaning, Scalar};

/// The maximum size of a file, in bytes. etcd refuses API objects above 1.5 MiB; a pod needs a few KiB.
pub const MAX_BYTES: usize = 1024 * 1024;
/// How deep lists and mappings may be nested.
pub const MAX_DEPTH: usize = 64;
/// How many values a file may have after following its aliases.
pub const MAX_NODES: usize = 100_000;

/// Reads an open file, at most one byte more than [`MAX_BYTES`], so that [`text`] can tell that it is too large. Blocks
/// on `file`.
///
/// # Errors
/// The file cannot be read.
pub fn read(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the text of a file of at most [`MAX_BYTES`].
///
/// # Errors
/// The file is larger, or not UTF-8.
pub fn text(bytes: &[u8]) -> Result<&str, Problem> {
    if bytes.len() > MAX_BYTES {
        return Err(Problem::of_file(format!("the file is larger than {MAX_BYTES} bytes")));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    str::from_utf8(bytes).map_err(|error| {
        let good = &bytes[..error.valid_up_to()];
        let line = 1 + good.iter().filter(|b| **b == b'\n').count();
        let start = good.iter().rposition(|b| *b == b'\n').map_or(0, |place| place + 1);
        // Up to the bad byte the text is valid, so this counts characters.
        let column = 1 + good[start..].iter().filter(|b| **b & 0xc0 != 0x80).count();
        let what = "this is not UTF-8 text: save the file as UTF-8";
        Problem::new(Position { line, column }, "", what)
    })
}

/// A position in a file, counted from 1 as editors do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
}

/// A value and where it starts.
#[derive(Debug)]
pub struct YamlNode {
    /// Where the value starts.
    pub at: Position,
    /// The value itself.
    pub value: Value,
    /// The number of values in here after following all aliases, including this one.
    weight: usize,
    /// The number of nesting levels, including this one; 0 for a scalar.
    height: usize,
}

/// What a [`YamlNode`] holds.
#[derive(Debug)]
pub enum Value {
    /// A text, a number, a bool or null.
    Scalar(Scalar),
    /// A sequence.
    List(Vec<Rc<YamlNode>>),
    /// A mapping, in the order of the file; no key occurs twice.
    Map(Vec<(Key, Rc<YamlNode>)>),
}

/// A mapping's key and where it starts.
#[derive(Debug, Clone)]
pub struct Key {
    /// The key.
    pub text: Rc<str>,
    /// Where the key starts.
    pub at: Position,
}

impl YamlNode {
    /// The value of `key`, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&YamlNode> {
        self.entry(key).map(|(_, node)| node)
    }

    /// The key and the value of `key`, if this is a mapping that has it.
    pub fn entry(&self, key: &str) -> Option<(&Key, &YamlNode)> {
        match &self.value {
            Value::Map(entries) => {
                entries.iter().find(|(k, _)| &*k.text == key).map(|(k, v)| (k, &**v))
            }
            _ => None,
        }
    }

    /// Whether the value is null: empty, `null` or `~`.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(scalar) if scalar.meaning() == Meaning::Null)
    }

    /// The text of a scalar; none for a list or a mapping.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    /// Describes the value, in the words of an error message.
    pub fn describe(&self) -> String {
        match &self.value {
            Value::Scalar(scalar) => scalar.describe(),
            _ => self.kind().to_owned(),
        }
    }

    /// Describes the kind of the value without quoting it, because it may be a secret.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar(scalar) => scalar.kind(),
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
