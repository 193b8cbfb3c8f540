//! The identity of a pod, optimized for lookups.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

/// `metadata.uid`: the identity of a pod. Cheap to clone, compare and look up: it carries its hash,
/// computed once with a per-process key.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
#[serde(from = "Arc<str>", into = "Arc<str>")]
pub struct PodUid {
    text: Arc<str>,
    hash: u64,
}

/// A map by pod UID.
pub type PodUidMap<V> = HashMap<PodUid, V, BuildHasherDefault<UidHasher>>;

/// A hasher that uses the hash carried by a [`PodUid`].
#[derive(Clone, Copy, Debug, Default)]
pub struct UidHasher(u64);

/// Random per process, so that UIDs cannot be chosen to collide.
static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

// === impl PodUid ===

impl PodUid {
    /// Creates a UID from the API server's, or from the hash of a manifest.
    pub fn new(uid: impl Into<Arc<str>>) -> Self {
        let text = uid.into();
        let hash = KEY.hash_one(&*text);
        Self { text, hash }
    }

    /// The UID as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl From<Arc<str>> for PodUid {
    fn from(text: Arc<str>) -> Self {
        Self::new(text)
    }
}

impl From<PodUid> for Arc<str> {
    fn from(uid: PodUid) -> Self {
        uid.text
    }
}

impl PartialEq for PodUid {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && (Arc::ptr_eq(&self.text, &other.text) || self.text == other.text)
    }
}

impl Eq for PodUid {}

impl PartialOrd for PodUid {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PodUid {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for PodUid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PodUid({})", self.text)
    }
}

// === impl UidHasher ===

impl Hasher for UidHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    /// Not used by [`PodUid`]; anything else still gets a valid hash.
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_equal_uids_and_are_found() {
        let mut map = PodUidMap::default();
        map.insert(PodUid::new("a"), 1);
        map.insert(PodUid::new(String::from("a")), 2);
        map.insert(PodUid::new("b"), 3);
        assert_eq!(map.len(), 2);
        assert_eq!(map[&PodUid::new("a")], 2);
    }

    #[test]
    fn it_is_its_text_in_json() {
        let uid = PodUid::new("a-b");
        assert_eq!(serde_json::to_string(&uid).unwrap(), "\"a-b\"");
        assert_eq!(serde_json::from_str::<PodUid>("\"a-b\"").unwrap(), uid);
    }
}
