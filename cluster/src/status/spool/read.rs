//! Reads a spool's directory after a restart.

use std::path::Path;

use serde::de::DeserializeOwned;
use winddown_host::if_exists;
use winddown_shared::error_chain;

use super::file::{BAD, MAX_RECORD_BYTES, RECORD, RecordEnvelope, is_left_over};
use super::{SpoolError, SpoolShared, StoredRecord};

/// How many unreadable files are kept for inspection.
const MOST_BAD: usize = 16;

/// Reads the records in the directory, oldest first.
pub(super) fn all<R: DeserializeOwned>(
    inner: &SpoolShared,
) -> Result<Vec<StoredRecord<R>>, SpoolError> {
    let unread = |source| SpoolError::Io { what: "read", path: inner.directory.clone(), source };
    let listed = if_exists(inner.disk.list(&inner.directory)).map_err(unread)?;
    let Some(names) = listed else { return Ok(Vec::new()) };
    let mut bad = names.iter().filter(|name| name.ends_with(BAD)).count();
    let mut records = Vec::new();
    for name in &names {
        let path = inner.directory.join(name);
        if is_left_over(name) {
            let _ = inner.disk.remove(&path);
        } else if name.ends_with(RECORD) {
            match one(inner, &path) {
                Ok(kept) => records.extend(kept),
                Err(error) => {
                    bad += 1;
                    set_aside(inner, &path, &*error, bad <= MOST_BAD);
                }
            }
        }
    }
    records.sort_by(|a: &StoredRecord<R>, b| (a.at, &a.uid).cmp(&(b.at, &b.uid)));
    let surplus = records.len().saturating_sub(inner.most);
    for dropped in records.drain(..surplus) {
        let path = inner.path(&dropped.uid);
        tracing::warn!(path = %path.display(), "too many records; dropping the oldest");
        let _ = inner.disk.remove(&path);
    }
    let mut state = inner.state.lock();
    // Records written since the start are newer than any file that was read.
    records.retain(|kept| !state.turns.contains_key(&kept.uid));
    for kept in &records {
        state.claim(&kept.uid);
    }
    drop(state);
    Ok(records)
}

fn one<R: DeserializeOwned>(
    inner: &SpoolShared,
    path: &Path,
) -> Result<Option<StoredRecord<R>>, Box<dyn std::error::Error>> {
    // It may have been removed meanwhile.
    let Some(bytes) = if_exists(inner.disk.read(path, MAX_RECORD_BYTES))? else { return Ok(None) };
    let RecordEnvelope { uid, at, record, .. } = RecordEnvelope::parse(&bytes)?;
    Ok(Some(StoredRecord { uid, at, record }))
}

fn set_aside(inner: &SpoolShared, path: &Path, error: &dyn std::error::Error, keep: bool) {
    inner.state.lock().set_aside += 1;
    let mut aside = path.as_os_str().to_owned();
    aside.push(BAD);
    let moved =
        if keep { inner.disk.rename(path, Path::new(&aside)) } else { inner.disk.remove(path) };
    tracing::error!(
        path = %path.display(),
        error = error_chain(error),
        set_aside = keep && moved.is_ok(),
        "cannot read a pod's stored status; the API may keep the old one"
    );
}
