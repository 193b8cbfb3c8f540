//! How much memory there is.

use crate::file::{self, ReadError, Roots};

/// Bytes of memory that the kernel manages.
pub(super) fn total(roots: &Roots) -> Result<i64, ReadError> {
    let path = roots.proc.join("meminfo");
    let text = file::text(&path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes: Option<i64> =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    match kibibytes {
        Some(kibibytes) if kibibytes > 0 => Ok(kibibytes.saturating_mul(1024)),
        _ => Err(ReadError::odd(&path, "has no line MemTotal with a number of kB")),
    }
}
