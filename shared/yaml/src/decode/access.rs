//! Iterates over the items of a list and the entries of a mapping.

use std::rc::Rc;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, value::StrDeserializer};

use super::Decoder;
use super::error::DecodeError;
use crate::{Key, YamlNode};

pub(super) struct SequenceItems<'a> {
    around: Decoder<'a>,
    items: std::iter::Enumerate<std::slice::Iter<'a, Rc<YamlNode>>>,
}

pub(super) struct Entries<'a> {
    around: Decoder<'a>,
    known: &'static [&'static str],
    entries: std::slice::Iter<'a, (Key, Rc<YamlNode>)>,
    value: Option<&'a (Key, Rc<YamlNode>)>,
}

// === impl SequenceItems ===

impl<'a> SequenceItems<'a> {
    pub(super) fn new(around: Decoder<'a>, items: &'a [Rc<YamlNode>]) -> Self {
        Self { around, items: items.iter().enumerate() }
    }
}

impl<'de> SeqAccess<'de> for SequenceItems<'_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        for (index, node) in self.items.by_ref() {
            let path = self.around.path.index(index);
            let run = self.around.run;
            if !run.left_out.is_empty() && run.left_out.contains(&path.to_string()) {
                continue;
            }
            // A list stands for what is in it: the struct around an item is the one around the list.
            let Decoder { known, outer, .. } = self.around;
            return seed
                .deserialize(Decoder { node, key_at: node.at, path, known, outer, run })
                .map(Some);
        }
        Ok(None)
    }
}

// === impl Entries ===

impl<'a> Entries<'a> {
    pub(super) fn new(
        around: Decoder<'a>,
        entries: &'a [(Key, Rc<YamlNode>)],
        known: &'static [&'static str],
    ) -> Self {
        Self { around, known, entries: entries.iter(), value: None }
    }
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, DecodeError> {
        for entry in self.entries.by_ref() {
            let left_out = self.around.run.left_out;
            let path = self.around.path.key(&entry.0.text);
            if !left_out.is_empty() && left_out.contains(&path.to_string()) {
                continue;
            }
            self.value = Some(entry);
            let key: StrDeserializer<'_, DecodeError> = StrDeserializer::new(&entry.0.text);
            return seed.deserialize(key).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, DecodeError> {
        let Some((key, node)) = self.value.take() else {
            return Err(serde::de::Error::custom("a value was asked for before its key"));
        };
        let path = self.around.path.key(&key.text);
        let run = self.around.run;
        let (known, outer) = (self.known, self.around.known);
        seed.deserialize(Decoder { node, key_at: key.at, path, known, outer, run })
    }
}
