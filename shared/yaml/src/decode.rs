//! Decodes a tree into serde types, and finds every unknown field and every wrong type.

mod access;
mod error;

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde::de::{DeserializeOwned, Visitor};
use serde::forward_to_deserialize_any;

use self::access::{Entries, SequenceItems};
use self::error::DecodeError;
use super::path::Path;
use super::problem::MOST_PROBLEMS;
use super::{Meaning, Position, Problem, Scalar, Value, YamlNode};

/// The value that was decoded from a tree, and the problems of the rest.
pub struct Decoded<T> {
    /// The value without the invalid parts; none if there are too many.
    pub value: Option<T>,
    /// Every field that `T` does not know and every value of the wrong type.
    pub problems: Vec<Problem>,
    /// The fields that `value` lacks because their values are of the wrong type.
    pub left_out: BTreeSet<String>,
}

/// Reads `T` from a tree.
pub fn decode<T: DeserializeOwned>(root: &YamlNode) -> Decoded<T> {
    let mut problems = Vec::new();
    let mut left_out = BTreeSet::new();
    loop {
        let run = DecodePass { unknown: RefCell::default(), left_out: &left_out };
        let (path, key_at) = (Path::ROOT, root.at);
        let run = &run;
        let read =
            T::deserialize(Decoder { node: root, key_at, path, known: &[], outer: &[], run });
        let value = match read {
            Ok(value) => {
                problems.append(&mut run.unknown.borrow_mut());
                // If an item of a list was left out, the indexes of the items after it are wrong.
                Some(value).filter(|_| !left_out.iter().any(|field| field.ends_with(']')))
            }
            Err(error) => {
                let (field, problem) = error.into_problem(root.at);
                problems.push(problem);
                // Decode again without the wrong value, to find other problems. A file may have any number of wrong
                // values; people want to see the first few.
                if problems.len() < MOST_WRONG_VALUES && left_out.insert(field) {
                    continue;
                }
                None
            }
        };
        return Decoded { value, problems, left_out };
    }
}

const MOST_WRONG_VALUES: usize = 20;

/// The state that is shared during one pass over the tree.
struct DecodePass<'a> {
    unknown: RefCell<Vec<Problem>>,
    left_out: &'a BTreeSet<String>,
}

/// Reads one node.
#[derive(Clone, Copy)]
struct Decoder<'a> {
    node: &'a YamlNode,
    /// The position of this value's key.
    key_at: Position,
    path: Path<'a>,
    /// The fields of the surrounding struct.
    known: &'static [&'static str],
    /// The fields of the struct around that one.
    outer: &'static [&'static str],
    run: &'a DecodePass<'a>,
}

impl<'a> Decoder<'a> {
    /// The error for a value of the wrong type. The value is quoted only where a number, bool, quantity or duration is
    /// expected.
    /// Any other value may be a secret (a variable, a header, an argument, an annotation), and errors are logged.
    fn wrong(&self, wanted: &str) -> DecodeError {
        let hint = match &self.node.value {
            Value::Scalar(scalar) => scalar.hint(wanted == TEXT, true),
            _ => String::new(),
        };
        let is = match [NUMBER, BOOL, QUANTITY, DURATION].contains(&wanted) {
            true => self.node.describe(),
            false => self.node.kind().to_owned(),
        };
        DecodeError::at(self, format!("needs {wanted}, this is {is}{hint}"))
    }

    fn located<T>(&self, result: Result<T, DecodeError>) -> Result<T, DecodeError> {
        result.map_err(|error| error.or_at(self))
    }

    fn scalar(&self, wanted: &str) -> Result<&'a Scalar, DecodeError> {
        match &self.node.value {
            Value::Scalar(scalar) => Ok(scalar),
            _ => Err(self.wrong(wanted)),
        }
    }

    fn integer<T: TryFrom<i128>>(&self) -> Result<T, DecodeError> {
        match self.scalar(NUMBER)?.meaning() {
            Meaning::Int(value) => T::try_from(value).map_err(|_| {
                let bits = 8 * size_of::<T>();
                let what = format!("{value} is out of range: it has to fit into {bits} bits");
                DecodeError::at(self, what)
            }),
            _ => Err(self.wrong(NUMBER)),
        }
    }

    fn text(&self) -> Result<&'a str, DecodeError> {
        match self.scalar(TEXT)?.meaning() {
            Meaning::Text(text) => Ok(text),
            // As for Go's reader.
            Meaning::Null => Ok(""),
            _ => Err(self.wrong(TEXT)),
        }
    }

    fn items(&self, visitor_wants: &str) -> Result<SequenceItems<'a>, DecodeError> {
        match &self.node.value {
            Value::List(items) => Ok(SequenceItems::new(*self, items)),
            _ => Err(self.wrong(visitor_wants)),
        }
    }

    fn entries(&self, known: &'static [&'static str]) -> Result<Entries<'a>, DecodeError> {
        match &self.node.value {
            Value::Map(entries) => Ok(Entries::new(*self, entries, known)),
            _ => Err(self.wrong("a mapping")),
        }
    }
}

/// The expected types, in the words of an error message.
const TEXT: &str = "a string";
const NUMBER: &str = "a whole number";
const BOOL: &str = "true or false";
const QUANTITY: &str = "a quantity, for example 500m or 1Gi";
const DURATION: &str = "a duration, for example 30s";

macro_rules! integers {
    ($($method:ident $visit:ident;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
            let value = self.integer()?;
            self.located(visitor.$visit(value))
        }
    )*};
}

impl<'de> serde::Deserializer<'de> for Decoder<'_> {
    type Error = DecodeError;

    integers! {
        deserialize_i8 visit_i8;
        deserialize_i16 visit_i16;
        deserialize_i32 visit_i32;
        deserialize_i64 visit_i64;
        deserialize_u8 visit_u8;
        deserialize_u16 visit_u16;
        deserialize_u32 visit_u32;
        deserialize_u64 visit_u64;
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.scalar(BOOL)?.meaning() {
            Meaning::Bool(value) => self.located(visitor.visit_bool(value)),
            _ => Err(self.wrong(BOOL)),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let text = self.text()?;
        self.located(visitor.visit_str(text))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.node.is_null() {
            true => self.located(visitor.visit_none()),
            false => visitor.visit_some(self),
        }
    }

    /// A Kubernetes duration is text with a unit. A quantity may be written as a number, which is taken as written; without one it is 0.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        // Quotes alone make no duration of a number: it lacks a unit.
        if name == "Duration"
            && !matches!(self.scalar(DURATION)?.meaning(), Meaning::Null | Meaning::Text(_))
        {
            return Err(self.wrong(DURATION));
        }
        if name == "Quantity" {
            let wanted = QUANTITY;
            return match self.scalar(wanted)?.meaning() {
                Meaning::Null => self.located(visitor.visit_str("0")),
                Meaning::Int(_) | Meaning::Float(_) | Meaning::Text(_) => {
                    self.located(visitor.visit_str(self.scalar(wanted)?.text.trim()))
                }
                _ => Err(self.wrong(wanted)),
            };
        }
        let result = visitor.visit_newtype_struct(self);
        self.located(result)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let items = self.items("a list, each item on a line that starts with `- `")?;
        self.located(visitor.visit_seq(items))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let entries = self.entries(&[])?;
        self.located(visitor.visit_map(entries))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let entries = self.entries(fields)?;
        self.located(visitor.visit_map(entries))
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let result = match &self.node.value {
            Value::List(items) => visitor.visit_seq(SequenceItems::new(self, items)),
            Value::Map(entries) => visitor.visit_map(Entries::new(self, entries, &[])),
            Value::Scalar(scalar) => match scalar.meaning() {
                Meaning::Null => visitor.visit_unit(),
                Meaning::Bool(value) => visitor.visit_bool(value),
                Meaning::Float(value) => visitor.visit_f64(value),
                Meaning::Text(text) => visitor.visit_str(text),
                Meaning::Int(_) => visitor.visit_i64(self.integer()?),
            },
        };
        self.located(result)
    }

    /// A type skips the value of a field that it does not know: that is how unknown fields are found.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let mut unknown = self.run.unknown.borrow_mut();
        if unknown.len() <= MOST_PROBLEMS {
            unknown.push(error::unknown(&self));
        }
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum identifier
    }
}
