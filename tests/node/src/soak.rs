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
    /// How many drains more this machine was too busy to call off in time.
    pub too_late: usize,
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
        let hours = self.took.as_secs_f64() / 3600.0;
        let (deeds, otherwise) = (self.deeds, self.differences.len());
        write!(f, "{deeds} deeds in {hours:.1} hours, {otherwise} otherwise")?;
        writeln!(f, ", {} drains more not called off in time", self.too_late)?;
        writeln!(f, "\n| the agent at rest | early | at the end |\n|---|--:|--:|")?;
        let figures = self.early.figures().into_iter().zip(self.late.figures());
        for ((what, early), (_, late)) in figures {
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
    let Some(stage) = Stage::set(test, runtime, None).await? else { return Ok(None) };
    let (rng, deeds) = (SeededRng::new(seed), deeds.to_vec());
    let mut play = Play {
        stage,
        runtime,
        rng,
        deeds,
        past: vec![],
        done: 0,
        too_late: 0,
        differences: vec![],
    };
    let begun = Instant::now();
    play.rounds(begun + times.settled, &mut told).await?;
    let early = Sample::take(&mut play.stage).await?;
    play.rounds(begun + times.long, &mut told).await?;
    let late = Sample::take(&mut play.stage).await?;
    if late.pid != early.pid {
        return Err(format!("another agent runs: {early:?}, {late:?}").into());
    }
    let Play { done, too_late, differences, .. } = play;
    let took = begun.elapsed();
    Ok(Some(Soak { deeds: done, too_late, took, differences, early, late }))
}

/// The deeds on a node.
struct Play {
    stage: Stage,
    runtime: Runtime,
    rng: SeededRng,
    deeds: Vec<Deed>,
    past: Vec<PastDeed>,
    done: usize,
    too_late: usize,
    differences: Vec<String>,
}

/// A deed that was done.
struct PastDeed {
    deed: Deed,
    /// What was seen of it the first time.
    first: Seen,
    /// When it last began.
    last: Instant,
}

// === impl Play ===

impl Play {
    /// Does all deeds, again and again until then, but at least once.
    async fn rounds(
        &mut self,
        until: Instant,
        told: &mut impl FnMut(Deed, &[String]),
    ) -> TestResult {
        loop {
            self.rng.shuffle(&mut self.deeds);
            for deed in self.deeds.clone() {
                if self.is_due(deed) {
                    self.play(deed, told).await?;
                }
            }
            if self.runtime == Runtime::Containerd {
                self.stage.restarts_the_runtime().await?;
            }
            if Instant::now() >= until {
                return Ok(());
            }
        }
    }

    fn is_due(&self, deed: Deed) -> bool {
        let sends_away = matches!(deed, Deed::Preemption | Deed::Eviction);
        let is_recent = |past: &PastDeed| past.deed == deed && past.last.elapsed() < FORGIVEN;
        !(sends_away && self.past.iter().any(is_recent))
    }

    async fn play(&mut self, deed: Deed, told: &mut impl FnMut(Deed, &[String])) -> TestResult {
        let last = Instant::now();
        let seen = self.stage.play(deed, None).await?;
        self.stage.is_asked().await?;
        if seen.was_late {
            self.too_late += 1;
            return Ok(());
        }
        self.done += 1;
        let Some(past) = self.past.iter_mut().find(|past| past.deed == deed) else {
            told(deed, &[]);
            self.past.push(PastDeed { deed, first: seen, last });
            return Ok(());
        };
        past.last = last;
        let found = judge(&past.first, &seen);
        told(deed, &found);
        self.differences.extend(found.into_iter().map(|line| format!("{deed}: {line}")));
        Ok(())
    }
}
