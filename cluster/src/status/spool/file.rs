//! The file of a record: its name and its format.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use winddown_shared::{PodUid, WallTime};

/// The version of the format that this agent writes.
pub(super) const VERSION: u32 = 1;
/// The prefix of the names of half-written files.
const DRAFT: &str = ".tmp-";
/// A name for a half-written file, which no other process uses at the same time.
pub(super) fn draft_name(turn: u64) -> String {
    format!("{DRAFT}{}-{turn}", std::process::id())
}

/// Whether it is the name of a half-written file that an earlier process left.
pub(super) fn is_left_over(name: &str) -> bool {
    name.starts_with(DRAFT) && !name.starts_with(&format!("{DRAFT}{}-", std::process::id()))
}

/// The suffix of records.
pub(super) const RECORD: &str = ".json";
/// The suffix that is appended to the name of an unreadable file.
pub(super) const BAD: &str = ".bad";
/// The maximum size of a file. A larger one is no record.
pub(super) const MAX_RECORD_BYTES: u64 = 4 << 20;

/// A record with what identifies it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordEnvelope<R> {
    pub(super) version: u32,
    pub(super) uid: PodUid,
    pub(super) at: WallTime,
    pub(super) record: R,
}

/// Why a file is not a valid record.
#[derive(Debug, thiserror::Error)]
pub(super) enum FormError {
    #[error("it is not a record of a pod")]
    Json(#[source] serde_json::Error),
    #[error("its format has version {0}, and this agent knows {VERSION}")]
    Newer(u32),
}

impl<R> RecordEnvelope<R> {
    pub(super) fn new(uid: &PodUid, at: WallTime, record: R) -> Self {
        Self { version: VERSION, uid: uid.clone(), at, record }
    }
}

impl<R: for<'de> Deserialize<'de>> RecordEnvelope<R> {
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

/// The name of a pod's file. A UID can be any text: characters that could leave the directory are
/// escaped, and what is too long is cut.
pub(super) fn file_name(uid: &PodUid) -> String {
    let mut name = String::with_capacity(uid.as_str().len() + RECORD.len());
    for byte in uid.as_str().bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "%{byte:02x}");
        }
    }
    // Longer than any UID of an API server, and shorter than the longest file name.
    name.truncate(200);
    name.push_str(RECORD);
    name
}
