//! A record's file: its name and its form.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use winddown_shared::{PodUid, WallTime};

/// The form that this agent writes.
pub(super) const VERSION: u32 = 1;
/// What the names of half-written files begin with.
const DRAFT: &str = ".tmp-";
/// A name for a half-written file of this process, and of no other that writes at the same time.
pub(super) fn draft_name(turn: u64) -> String {
    format!("{DRAFT}{}-{turn}", std::process::id())
}

/// Whether it is the name of a half-written file that an earlier process has left.
pub(super) fn is_left_over(name: &str) -> bool {
    name.starts_with(DRAFT) && !name.starts_with(&format!("{DRAFT}{}-", std::process::id()))
}

/// What the names of records end with.
pub(super) const RECORD: &str = ".json";
/// What is put behind the name of a file that cannot be read.
pub(super) const BAD: &str = ".bad";
/// A larger file is none of ours.
pub(super) const LARGEST: u64 = 4 << 20;

/// A record with what is needed to know it again.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Envelope<R> {
    pub(super) version: u32,
    pub(super) uid: PodUid,
    pub(super) at: WallTime,
    pub(super) record: R,
}

/// Why a file is none of ours.
#[derive(Debug, thiserror::Error)]
pub(super) enum FormError {
    #[error("it is not a record of a pod")]
    Json(#[source] serde_json::Error),
    #[error("its form has version {0}, and this agent knows {VERSION}")]
    Newer(u32),
}

impl<R> Envelope<R> {
    pub(super) fn new(uid: &PodUid, at: WallTime, record: R) -> Self {
        Self { version: VERSION, uid: uid.clone(), at, record }
    }
}

impl<R: for<'de> Deserialize<'de>> Envelope<R> {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, FormError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } = serde_json::from_slice(bytes).map_err(FormError::Json)?;
        if version > VERSION {
            return Err(FormError::Newer(version));
        }
        serde_json::from_slice(bytes).map_err(FormError::Json)
    }
}

/// The name of a pod's file. A UID is any text; what could leave the directory, or is too long for a
/// name, is written otherwise.
pub(super) fn file_name(uid: &PodUid) -> String {
    let mut name = String::with_capacity(uid.as_str().len() + RECORD.len());
    for byte in uid.as_str().bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "%{byte:02x}");
        }
    }
    // Longer than any UID of an API server, and shorter than the longest name of a file.
    name.truncate(200);
    name.push_str(RECORD);
    name
}
