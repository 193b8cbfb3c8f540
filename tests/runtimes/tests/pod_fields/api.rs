//! The structs of the API and their fields, as its own types name them when they are read.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde::de::value::{BorrowedStrDeserializer, Error, MapDeserializer, SeqDeserializer};
use serde::de::{Deserialize, Deserializer, IntoDeserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

/// A struct's fields, each with the struct that it holds, if it holds any.
pub(crate) type Fields = BTreeMap<&'static str, Option<&'static str>>;

/// The structs that `T` is made of, by their names.
pub(crate) fn structs<'de, T: Deserialize<'de>>() -> BTreeMap<&'static str, Fields> {
    let seen = RefCell::default();
    T::deserialize(Asked { seen: &seen, place: None }).unwrap();
    seen.into_inner()
}

type Seen = RefCell<BTreeMap<&'static str, Fields>>;

/// Gives its reader every struct that is asked for, and writes down which they were.
#[derive(Clone, Copy)]
struct Asked<'a> {
    seen: &'a Seen,
    /// The struct and the field that is read.
    place: Option<(&'static str, &'static str)>,
}

/// The fields of a struct, one after the other.
struct Each<'a> {
    seen: &'a Seen,
    name: &'static str,
    left: std::slice::Iter<'static, &'static str>,
    field: &'static str,
}

// === impl Asked ===

impl<'de> Deserializer<'de> for Asked<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut seen = self.seen.borrow_mut();
        if let Some((parent, field)) = self.place {
            seen.entry(parent).or_default().insert(field, Some(name));
        }
        let is_new = !seen.contains_key(name);
        let known = seen.entry(name).or_default();
        for field in fields {
            known.entry(field).or_default();
        }
        drop(seen);
        let left = if is_new { fields.iter() } else { [].iter() };
        visitor.visit_map(Each { seen: self.seen, name, left, field: "" })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(SeqDeserializer::new([self].into_iter()))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(MapDeserializer::new([("", self)].into_iter()))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(false)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i32(0)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(0)
    }

    /// A text that is also a time.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str("1970-01-01T00:00:00Z")
    }

    forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple
        tuple_struct enum identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de> for Asked<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

// === impl Each ===

impl<'de> MapAccess<'de> for Each<'_> {
    type Error = Error;

    fn next_key_seed<K: serde::de::DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some(field) = self.left.next() else { return Ok(None) };
        self.field = field;
        seed.deserialize(BorrowedStrDeserializer::new(field)).map(Some)
    }

    fn next_value_seed<V: serde::de::DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, Error> {
        seed.deserialize(Asked { seen: self.seen, place: Some((self.name, self.field)) })
    }
}
