//! The contents of a winddown package: every crate that is linked into the program, as a bill of materials for machines
//! and as licences for people.
//!
//! Nothing depends on the network or the clock, so the same sources produce the same files.

mod bill;
mod crates;
mod licences;

#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::{Context as _, Result};

/// Writes `licences.txt` and `winddown.cdx.json` into `out`. `made_at` is the date of the bill, in seconds since 1970.
pub(crate) fn write(repository: &Path, out: &Path, made_at: i64) -> Result<()> {
    let linked = crates::linked(repository)?;
    let licences = licences::text(repository, &linked)?;
    let bill = bill::json(&linked, made_at)?;
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    for (name, text) in [("licences.txt", licences), ("winddown.cdx.json", bill)] {
        let path = out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
