//! Parsers for the files of a cgroup. Pure: the caller reads the files.
//!
//! Both versions are supported, and any bytes are accepted: what does not parse is absent.

use std::time::Duration;

/// The memory of one cgroup, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CgroupMemory {
    /// Total usage, page cache included.
    pub usage: u64,
    /// Page cache that was not used recently.
    pub inactive_file: u64,
    /// Page cache that was used recently.
    pub active_file: u64,
    /// Memory that can be swapped out: anonymous and shared memory, and pages on their way to swap.
    /// Not read for version 1.
    pub anonymous: u64,
    /// Kernel objects that can be dropped; not available with version 1.
    pub slab_reclaimable: u64,
    /// The limit; `None` without one.
    pub limit: Option<u64>,
}

/// What happened in a cgroup (version 2) because of its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CgroupMemoryEvents {
    /// Processes killed for lack of memory.
    pub oom_kill: u64,
}

/// A limit at or above this means unlimited: version 1 writes the largest number of whole pages.
const UNLIMITED: u64 = 1 << 62;

impl CgroupMemory {
    /// Parses `memory.current` (or `memory.usage_in_bytes`), `memory.stat`, and `memory.max` (or
    /// `memory.limit_in_bytes`) if given. `None` if the usage or the statistics lack a part of the
    /// working set.
    pub fn parse(usage: &[u8], stat: &[u8], limit: Option<&[u8]>) -> Option<Self> {
        let stat = MemoryStat::parse(stat);
        Some(Self {
            usage: cgroup_number(usage)?,
            inactive_file: stat.inactive_file?,
            active_file: stat.active_file.unwrap_or(0),
            anonymous: stat.anonymous.unwrap_or(0),
            slab_reclaimable: stat.slab_reclaimable.unwrap_or(0),
            limit: limit.and_then(cgroup_number).filter(|&limit| limit < UNLIMITED),
        })
    }

    /// The usage without the page cache that was not used recently: memory that cannot be reclaimed
    /// without work. The kubelet's measure.
    pub fn working_set(&self) -> u64 {
        self.usage.saturating_sub(self.inactive_file)
    }

    /// Memory that the kernel can reclaim under pressure: the whole page cache and droppable
    /// objects. Never more than the usage.
    pub fn reclaimable(&self) -> u64 {
        let cache = self.inactive_file.saturating_add(self.active_file);
        cache.saturating_add(self.slab_reclaimable).min(self.usage)
    }
}

/// The relevant parts of `memory.stat`; for version 1, the totals with descendants if present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStat {
    /// Page cache that was not used recently, in bytes.
    pub inactive_file: Option<u64>,
    /// Page cache that was used recently, in bytes.
    pub active_file: Option<u64>,
    /// Anonymous and shared memory that is not locked, and pages on their way to swap, in bytes.
    pub anonymous: Option<u64>,
    /// Kernel objects that can be dropped, in bytes.
    pub slab_reclaimable: Option<u64>,
    /// Anonymous memory and the whole page cache, tmpfs included, in bytes. Not read for version 1.
    pub anon_and_file: Option<u64>,
}

impl MemoryStat {
    /// Parses the text; malformed lines are ignored.
    pub fn parse(stat: &[u8]) -> Self {
        let (mut own, mut total) = (Self::default(), Self::default());
        let (mut anon, mut file) = (None, None);
        for (key, value) in keyed(stat) {
            let place = match key {
                // Not `anon`: it includes locked memory, lacks tmpfs, and falls before the swap is written.
                b"inactive_anon" | b"active_anon" => {
                    let sum = own.anonymous.unwrap_or(0).saturating_add(value);
                    own.anonymous = Some(sum);
                    continue;
                }
                b"inactive_file" => &mut own.inactive_file,
                b"active_file" => &mut own.active_file,
                b"slab_reclaimable" => &mut own.slab_reclaimable,
                b"anon" => &mut anon,
                b"file" => &mut file,
                b"total_inactive_file" => &mut total.inactive_file,
                b"total_active_file" => &mut total.active_file,
                _ => continue,
            };
            *place = Some(value);
        }
        Self {
            inactive_file: total.inactive_file.or(own.inactive_file),
            active_file: total.active_file.or(own.active_file),
            anonymous: own.anonymous,
            slab_reclaimable: own.slab_reclaimable,
            anon_and_file: anon.zip(file).map(|(anon, file)| u64::saturating_add(anon, file)),
        }
    }
}

impl CgroupMemoryEvents {
    /// Parses `memory.events`; a missing counter is 0.
    pub fn parse(text: &[u8]) -> Self {
        let killed = keyed(text).filter(|(key, _)| *key == b"oom_kill").last();
        Self { oom_kill: killed.map_or(0, |(_, killed)| killed) }
    }
}

/// Parses a file with a single number; `None` for `max` and anything else.
pub fn cgroup_number(text: &[u8]) -> Option<u64> {
    decimal(text.trim_ascii())
}

/// CPU time used by a cgroup so far, from the text of `cpuacct.usage` (version 1) or `cpu.stat` (version 2).
pub fn cgroup_cpu_time(text: &[u8]) -> Option<Duration> {
    let of_v2 = || keyed(text).find(|(key, _)| *key == b"usage_usec");
    let nanoseconds = cgroup_number(text).map(Duration::from_nanos);
    nanoseconds.or_else(|| of_v2().map(|(_, microseconds)| Duration::from_micros(microseconds)))
}

/// The cgroup of a process, from the text of `/proc/PID/cgroup`: its path in the hierarchy of
/// `controller`, and whether that is the unified one (version 2).
///
/// On a machine with both versions, the controller is where version 1 lists it; if no line of
/// version 1 does, it can only be in the unified hierarchy. `None` for a path that leads outside
/// the reader's cgroup namespace (`..`) or is not UTF-8.
pub fn cgroup_of_process<'a>(text: &'a [u8], controller: &str) -> Option<(&'a str, bool)> {
    let mut unified = None;
    for line in text.split(|&b| b == b'\n') {
        let mut fields = line.splitn(3, |&b| b == b':');
        let (Some(id), Some(names), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if names.split(|&b| b == b',').any(|name| name == controller.as_bytes()) {
            return inside(path).map(|path| (path, false));
        }
        if id == b"0" && names.is_empty() {
            unified = Some(path);
        }
    }
    inside(unified?).map(|path| (path, true))
}

/// The cgroup whose name contains `mark`, from the path of a process's cgroup: the topmost one, because a container may
/// make others below its own, of any name, and move its processes there. None for a process of another cgroup.
pub fn cgroup_named<'a>(path: &'a str, mark: &str) -> Option<&'a str> {
    let mut end = 0;
    path.split('/').find_map(|name| {
        end += name.len() + 1;
        name.contains(mark).then(|| &path[..end - 1])
    })
}

fn inside(path: &[u8]) -> Option<&str> {
    let path = std::str::from_utf8(path).ok()?;
    (path.starts_with('/') && path.split('/').all(|part| part != "..")).then_some(path)
}

fn keyed(text: &[u8]) -> impl Iterator<Item = (&[u8], u64)> {
    text.split(|&b| b == b'\n').filter_map(|line| {
        let at = line.iter().position(|&b| b == b' ')?;
        Some((&line[..at], cgroup_number(&line[at..])?))
    })
}

fn decimal(digits: &[u8]) -> Option<u64> {
    // Checked first, because `parse` alone would accept a sign.
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

#[cfg(test)]
mod tests;
