//! What an agent takes while nothing happens.

use std::fs;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::restarts::{Deed, Stage};
use crate::scenario::TestResult;
use crate::usage;

/// How long the agent rests first: threads that it keeps for its next work on a disk have ended then.
const REST: Duration = Duration::from_secs(25);
/// How long its wake-ups are counted.
const LOOK: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;
/// What the threads are called in which its tasks run and wait for disks. How many of those are left depends on how many
/// looks once came together: the next looks take turns in them. The pool itself is bounded, and an agent whose whole pool
/// hangs does no deed any more.
const POOL: &str = "tokio-rt-worker";

/// What an agent takes while nothing happens.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Its process id on the host.
    pub pid: u32,
    /// Its memory that belongs to no file, in bytes.
    pub memory: u64,
    /// Its open descriptors.
    pub descriptors: usize,
    /// Its threads but those of its pool.
    pub threads: usize,
    /// Files of the agent in `/run/winddown` and `/var/lib/winddown` but its reports, of which it keeps so many.
    pub files: usize,
    /// The lines that it logs when two pods are removed and come back.
    pub lines: usize,
    /// How often it was woken in a second.
    pub wake_ups: f64,
}

// === impl Sample ===

impl Sample {
    /// Looks at the agent of a node that is at rest.
    pub(super) async fn take(stage: &mut Stage) -> TestResult<Self> {
        sleep(Duration::from_secs(2)).await;
        let begun = Instant::now();
        stage.play(Deed::Removal, None).await?;
        let lines = stage.lines_since(begun).await?;
        sleep(REST).await;
        let pid = stage.agent_on_the_host().await?;
        let mut watch = usage::Watch::new(vec![pid]);
        let until = Instant::now() + LOOK;
        while Instant::now() < until {
            sleep(Duration::from_secs(1)).await;
            watch.look();
        }
        let threads = fs::read_dir(format!("/proc/{pid}/task"))?
            // One that has ended by now is none.
            .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok());
        Ok(Self {
            pid,
            memory: usage::memory(pid).anonymous,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            threads: threads.filter(|name| name.trim_end() != POOL).count(),
            files: stage.files().await?,
            lines,
            wake_ups: watch.used().wake_ups as f64 / LOOK.as_secs_f64(),
        })
    }

    /// A name and a value for each figure.
    pub(super) fn figures(&self) -> [(&'static str, String); 6] {
        let memory = self.memory as f64 / MIB as f64;
        [
            ("memory of no file", format!("{memory:.1} MiB")),
            ("descriptors", self.descriptors.to_string()),
            ("threads outside the pool", self.threads.to_string()),
            ("files, but reports", self.files.to_string()),
            ("log lines of a removal", self.lines.to_string()),
            ("wake-ups in a second", format!("{:.2}", self.wake_ups)),
        ]
    }

    /// Each figure that has grown by more than chance explains, in words.
    pub(super) fn growth_since(&self, early: &Self) -> Vec<String> {
        let bounds = [
            self.memory <= early.memory + early.memory / 8 + MIB,
            // A connection may still stand that the last command has opened.
            self.descriptors <= early.descriptors + 2,
            self.threads <= early.threads,
            self.files <= early.files + 2,
            self.lines <= early.lines + early.lines / 5 + 5,
            self.wake_ups <= early.wake_ups * 1.3 + 0.5,
        ];
        let both = self.figures().into_iter().zip(early.figures());
        let grown = both.zip(bounds).filter(|(_, is_within)| !is_within);
        grown
            .map(|(((what, late), (_, early)), _)| format!("{what}: {early}, then {late}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_that_grows_is_named_and_what_varies_by_chance_is_not() {
        let early = Sample {
            pid: 7,
            memory: 8 * MIB,
            descriptors: 40,
            threads: 4,
            files: 30,
            lines: 100,
            wake_ups: 1.0,
        };
        let usual = Sample { memory: 9 * MIB, descriptors: 41, lines: 110, wake_ups: 1.5, ..early };
        assert_eq!(usual.growth_since(&early), [""; 0]);
        let grown = [
            (Sample { memory: 11 * MIB, ..early }, "memory of no file: 8.0 MiB, then 11.0 MiB"),
            (Sample { descriptors: 43, ..early }, "descriptors: 40, then 43"),
            (Sample { threads: 5, ..early }, "threads outside the pool: 4, then 5"),
            (Sample { files: 60, ..early }, "files, but reports: 30, then 60"),
            (Sample { lines: 150, ..early }, "log lines of a removal: 100, then 150"),
            (Sample { wake_ups: 2.0, ..early }, "wake-ups in a second: 1.00, then 2.00"),
        ];
        for (late, said) in grown {
            assert_eq!(late.growth_since(&early), [said]);
        }
    }
}
