//! What a process costs while nothing happens.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// Counts by thread, because what a thread had used goes with it when it ends.
#[derive(Debug)]
pub(crate) struct Cost {
    pid: u32,
    last: HashMap<u32, [u64; 2]>,
    sum: [u64; 2],
}

// === impl Cost ===

impl Cost {
    /// From now on.
    pub(crate) fn of(pid: u32) -> Self {
        Self { pid, last: threads(pid), sum: [0; 2] }
    }

    /// Adds what was used since the last look. Of a thread that ended in between, that is lost.
    pub(crate) fn look(&mut self) {
        let now = threads(self.pid);
        for (thread, used) in &now {
            let before = self.last.get(thread).copied().unwrap_or_default();
            for ((sum, used), before) in self.sum.iter_mut().zip(used).zip(before) {
                *sum += used.saturating_sub(before);
            }
        }
        self.last = now;
    }

    /// The time on a processor up to the last look, and how often a thread was switched to.
    pub(crate) fn so_far(&self) -> (Duration, u64) {
        (Duration::from_nanos(self.sum[0]), self.sum[1])
    }
}

fn threads(pid: u32) -> HashMap<u32, [u64; 2]> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let used = tasks.filter_map(|task| {
        // Nanoseconds on a processor, nanoseconds waited, how often.
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let mut fields = text.split_whitespace().map(str::parse);
        let (time, _, switches) = (fields.next()?.ok()?, fields.next()?, fields.next()?.ok()?);
        Some((task.file_name().to_str()?.parse().ok()?, [time, switches]))
    });
    used.collect()
}
