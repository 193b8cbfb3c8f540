//! Reads the memory that is reserved for huge pages.

use std::collections::BTreeMap;
use std::io;

use crate::file::{self, ReadError, Roots};

/// Returns the bytes reserved, by the size of a page in bytes. Empty on a kernel without huge pages.
pub(super) fn set_aside(roots: &Roots) -> Result<BTreeMap<i64, i64>, ReadError> {
    let folder = roots.sys.join("kernel/mm/hugepages");
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(ReadError::unreadable(&folder, error)),
    };
    let mut sizes = BTreeMap::new();
    for entry in entries {
        let entry = entry.map_err(|error| ReadError::unreadable(&folder, error))?;
        let name = entry.file_name();
        let Some(kibibytes) = name.to_str().and_then(page_kibibytes) else { continue };
        let pages = file::number(&entry.path().join("nr_hugepages"))?;
        let size = kibibytes.saturating_mul(1024);
        sizes.insert(size, size.saturating_mul(pages));
    }
    Ok(sizes)
}

/// Parses the size from the name of a directory such as `hugepages-2048kB`.
pub(super) fn page_kibibytes(name: &str) -> Option<i64> {
    let size = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok();
    size.filter(|size| *size > 0)
}
