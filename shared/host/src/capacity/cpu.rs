//! Counts the CPUs that are online.

use crate::file::{self, ReadError, Roots};

/// Counts the CPUs that are online: from the kernel's list, or if `/sys` does not have it, from `/proc/cpuinfo`.
pub(super) fn online(roots: &Roots) -> Result<i64, ReadError> {
    let path = roots.sys.join("devices/system/cpu/online");
    let text = match file::text(&path) {
        Ok(text) => text,
        Err(error) if error.is_missing() => return described(roots),
        Err(error) => return Err(error),
    };
    match count(text.trim()) {
        Some(processors) if processors > 0 => Ok(processors),
        _ => Err(ReadError::odd(&path, "contains no list of processors such as 0-3,8")),
    }
}

fn described(roots: &Roots) -> Result<i64, ReadError> {
    let path = roots.proc.join("cpuinfo");
    let text = file::text(&path)?;
    let keys = text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim()));
    let processors = keys.filter(|key| *key == "processor").count();
    match i64::try_from(processors) {
        Ok(processors) if processors > 0 => Ok(processors),
        _ => Err(ReadError::odd(&path, "describes no processor")),
    }
}

/// Counts the numbers in a list of ranges such as `0-3,8`.
pub(super) fn count(list: &str) -> Option<i64> {
    list.split(',').try_fold(0_i64, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        // No machine has more than `u32::MAX`, and the sum cannot overflow.
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        let length = i64::from(last.checked_sub(first)?) + 1;
        sum.checked_add(length)
    })
}
