//! The objects, with the changes that are still kept.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::selector::Selector;

/// The number of changes kept for watches. Older ones are compacted, as a real server does every five minutes.
const KEPT_CHANGES: usize = 50_000;

/// The key of an object. Its order is that of lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(kind: &'static Kind, namespace: Option<&str>, name: &str) -> Self {
        Self {
            group: kind.group,
            plural: kind.plural,
            namespace: namespace.unwrap_or_default().to_owned(),
            name: name.to_owned(),
        }
    }

    fn is_of(&self, kind: &Kind) -> bool {
        self.group == kind.group && self.plural == kind.plural
    }
}

/// A write, as a watch reports it.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) version: u64,
    key: Key,
    /// The previous object; `None` if it was created.
    before: Option<Arc<Value>>,
    /// The object, or its last state if it was deleted.
    object: Arc<Value>,
    gone: bool,
}

impl Change {
    /// The event that a watch with this selector sends for the change, if any.
    pub(crate) fn seen_by(&self, kind: &Kind, by: &Selector) -> Option<(&'static str, Arc<Value>)> {
        if !self.key.is_of(kind) || !by.in_namespace(&self.key.namespace) {
            return None;
        }
        let was = self.before.as_deref().is_some_and(|before| by.matches(before));
        let is = !self.gone && by.matches(&self.object);
        let what = match (was, is) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => return None,
        };
        Some((what, Arc::clone(&self.object)))
    }
}

/// All objects.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    objects: BTreeMap<Key, Arc<Value>>,
    changes: VecDeque<Change>,
    version: u64,
    /// The oldest version at which a watch may start.
    compacted: u64,
    /// The newest change that is no longer kept.
    lost: u64,
    seed: u64,
    drawn: u64,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            changes: VecDeque::new(),
            version: 1,
            compacted: 0,
            lost: 0,
            seed: std::collections::hash_map::RandomState::new().build_hasher().finish(),
            drawn: 0,
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The oldest version at which a watch may start.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Forgets all changes: clients with an earlier version get 410.
    pub(crate) fn compact(&mut self) {
        self.version += 1;
        self.compacted = self.version;
        if let Some(last) = self.changes.back() {
            self.lost = last.version;
        }
        self.changes.clear();
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(key)
    }

    /// Objects of a kind, sorted by namespace and name.
    pub(crate) fn list<'a>(
        &'a self,
        kind: &'a Kind,
        by: &'a Selector,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> {
        self.of_kind(kind)
            .filter(|(key, object)| by.in_namespace(&key.namespace) && by.matches(object))
    }

    pub(crate) fn of_kind<'a>(
        &'a self,
        kind: &'a Kind,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> {
        self.objects.iter().filter(move |(key, _)| key.is_of(kind))
    }

    /// Writes an object under a new resource version.
    pub(crate) fn put(&mut self, key: Key, mut object: Value) -> Arc<Value> {
        self.version += 1;
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), json!(self.version.to_string()));
        }
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), Arc::clone(&object));
        self.keep(Change {
            version: self.version,
            key,
            before,
            object: Arc::clone(&object),
            gone: false,
        });
        object
    }

    /// Removes an object; its last state carries the version of its removal.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let before = self.objects.remove(key)?;
        self.version += 1;
        let mut last = Value::clone(&before);
        if let Some(metadata) = last.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), json!(self.version.to_string()));
        }
        let object = Arc::new(last);
        self.keep(Change {
            version: self.version,
            key: key.clone(),
            before: Some(before),
            object: Arc::clone(&object),
            gone: true,
        });
        Some(object)
    }

    /// The changes after a version, oldest first. `None` if some of them are no longer kept.
    pub(crate) fn since(&self, version: u64) -> Option<impl Iterator<Item = &Change>> {
        let from = self.changes.partition_point(|change| change.version <= version);
        (version >= self.lost).then(|| self.changes.range(from..))
    }

    /// The store as of a version. `None` if that version is no longer kept.
    pub(crate) fn at(&self, version: u64) -> Option<Self> {
        let mut past = self.clone();
        for change in self.since(version)?.collect::<Vec<_>>().into_iter().rev() {
            match &change.before {
                Some(before) => past.objects.insert(change.key.clone(), Arc::clone(before)),
                None => past.objects.remove(&change.key),
            };
        }
        past.version = version.min(self.version);
        Some(past)
    }

    pub(crate) fn restore(&mut self, version: u64) {
        if let Some(past) = self.at(version) {
            *self = past;
            self.changes.retain(|change| change.version <= version);
        }
    }

    /// A new unique UID.
    pub(crate) fn new_uid(&mut self) -> String {
        let drawn = self.draw();
        let (high, low) = (self.seed ^ drawn, drawn.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            low >> 52,
            (low ^ drawn) & 0xffff_ffff_ffff
        )
    }

    /// The five characters that are appended to a `generateName`.
    pub(crate) fn new_suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut rest = self.draw().wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ self.seed;
        let mut suffix = String::with_capacity(5);
        for _ in 0..5 {
            let index = usize::try_from(rest % 27).unwrap_or_default();
            suffix.push(char::from(LETTERS[index]));
            rest /= 27;
        }
        suffix
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    fn keep(&mut self, change: Change) {
        self.changes.push_back(change);
        if self.changes.len() > KEPT_CHANGES
            && let Some(dropped) = self.changes.pop_front()
        {
            self.lost = dropped.version;
            self.compacted = self.compacted.max(dropped.version);
        }
    }
}
