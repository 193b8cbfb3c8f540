//! Reads the memory that is reserved for huge pages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::file::{self, ReadError, Roots};
use crate::if_exists;

/// Returns the sizes in bytes of the huge pages that the kernel supports, whether or not it has any. Empty on a kernel
/// without huge pages.
///
/// # Errors
/// `sys`, the kernel's `/sys`, cannot be read.
pub fn huge_page_sizes(sys: &Path) -> Result<Vec<i64>, ReadError> {
    Ok(folders(sys)?.into_iter().map(|(size, _)| size).collect())
}

/// Returns the bytes reserved, by the size of a page in bytes. Empty on a kernel without huge pages.
pub(super) fn set_aside(roots: &Roots) -> Result<BTreeMap<i64, i64>, ReadError> {
    let mut sizes = BTreeMap::new();
    for (size, folder) in folders(&roots.sys)? {
        let pages = file::number(&folder.join("nr_hugepages"))?;
        sizes.insert(size, size.saturating_mul(pages));
    }
    Ok(sizes)
}

/// Returns the size in bytes and the directory of each kind of huge page.
fn folders(sys: &Path) -> Result<Vec<(i64, PathBuf)>, ReadError> {
    let folder = sys.join("kernel/mm/hugepages");
    let entries = if_exists(std::fs::read_dir(&folder));
    let entries = entries.map_err(|error| ReadError::unreadable(&folder, error))?;
    let mut found = Vec::new();
    for entry in entries.into_iter().flatten() {
        let entry = entry.map_err(|error| ReadError::unreadable(&folder, error))?;
        let name = entry.file_name();
        let Some(kibibytes) = name.to_str().and_then(page_kibibytes) else { continue };
        found.push((kibibytes.saturating_mul(1024), entry.path()));
    }
    Ok(found)
}

/// Parses the size from the name of a directory such as `hugepages-2048kB`.
pub(super) fn page_kibibytes(name: &str) -> Option<i64> {
    let size = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok();
    size.filter(|size| *size > 0)
}
