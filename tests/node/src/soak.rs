//! A node that is up for hours while its agent terminates pods and starts them again, all the time.
//!
//! What leaks, grows or wears out shows in no short test. A node does each deed ([`Deed`]) again and again, is asked for
//! its plan, status and reports, and its container runtime is restarted. The judge compares each deed with the first of
//! its kind, and what the agent takes at rest at the end with what it took early on.

mod sample;

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::SeededRng;
use crate::restarts::{Deed, Runtime, Seen, Stage, judge};
use crate::scenario::TestResult;

pub use sample::Sample;

/// After this, a pod that was preempted or evicted comes back as soon as the first time: the agent keeps it away for longer
/// each time, up to five minutes, unless it was left alone for ten.
const FORGIVEN: Duration = Duration::from_secs(11 * 60);

/// How long a node is used.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// After this, what the agent takes is no longer what its start has left.
    pub settled: Duration,
    /// All in all, at least.
    pub long: Duration,
}

/// What was seen of a node.
#[derive(Debug)]
pub struct Soak {
    /// How many deeds were done.
    pub deeds: usize,
    /// How long they took, with the rest between them.
    pub took: Duration,
    /// The deeds that were done otherwise than the first time.
    pub differences: Vec<String>,
    /// What the agent took once it was settled, and at the end.
    pub early: Sample,
    /// See there.
    pub late: Sample,
}

// === impl Soak ===

impl Soak {
    /// All that is wrong; none if all went well.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        [&self.differences[..], &self.late.growth_since(&self.early)].concat()
    }
}

impl fmt::Display for Soak {
    /// A row for each figure: early, late.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { deeds, took, differences, early, late } = self;
        let hours = took.as_secs_f64() / 3600.0;
        writeln!(f, "{deeds} deeds in {hours:.1} hours, {} otherwise", differences.len())?;
        writeln!(f, "\n| the agent at rest | early | at the end |\n|---|--:|--:|")?;
        for ((what, early), (_, late)) in early.figures().into_iter().zip(late.figures()) {
            writeln!(f, "| {what} | {early} | {late} |")?;
        }
        Ok(())
    }
}

/// Uses a node with this runtime, and calls `told` with each deed and its differences. Returns none, after reporting
/// why, if no node can be booted.
///
/// # Errors
/// A deed did not come to its end, or the agent was restarted, which it never is here.
pub async fn soak(
    test: &str,
    runtime: Runtime,
    deeds: &[Deed],
    times: Times,
    seed: u64,
    mut told: impl FnMut(Deed, &[String]),
) -> TestResult<Option<Soak>> {
    let Some(mut stage) = Stage::set(test, runtime).await? else { return Ok(None) };
    let (mut rng, mut deeds) = (SeededRng::new(seed), deeds.to_vec());
    let mut firsts: Vec<(Deed, Seen)> = Vec::new();
    let mut sent_away: Vec<(Deed, Instant)> = Vec::new();
    let (mut done, mut differences, mut early) = (0, Vec::new(), None);
    let begun = Instant::now();
    loop {
        rng.shuffle(&mut deeds);
        for &deed in &deeds {
            if matches!(deed, Deed::Preemption | Deed::Eviction) {
                if sent_away.iter().any(|(one, at)| *one == deed && at.elapsed() < FORGIVEN) {
                    continue;
                }
                sent_away.retain(|(one, _)| *one != deed);
                sent_away.push((deed, Instant::now()));
            }
            let seen = stage.play(deed, None).await?;
            stage.is_asked().await?;
            let first = firsts.iter().find(|(other, _)| *other == deed);
            let found = first.map(|(_, first)| judge(first, &seen)).unwrap_or_default();
            told(deed, &found);
            differences.extend(found.into_iter().map(|line| format!("{deed}: {line}")));
            if first.is_none() {
                firsts.push((deed, seen));
            }
            done += 1;
        }
        if runtime == Runtime::Containerd {
            stage.restarts_the_runtime().await?;
        }
        let is_over = early.is_some() && begun.elapsed() >= times.long;
        if !is_over && (early.is_some() || begun.elapsed() < times.settled) {
            continue;
        }
        let sample = Sample::take(&mut stage).await?;
        let Some(early) = &early else {
            early = Some(sample);
            continue;
        };
        if sample.pid != early.pid {
            return Err(format!("another agent runs: {early:?}, {sample:?}").into());
        }
        let (early, took) = (early.clone(), begun.elapsed());
        return Ok(Some(Soak { deeds: done, took, differences, early, late: sample }));
    }
}
