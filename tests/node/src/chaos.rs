//! Chaos tests: faults at random times in everything that a node does, and invariants that must hold nevertheless.
//!
//! A schedule is a pure function of its seed ([`Schedule::draw`]): the same seed gives the same pods, the same faults
//! and the same times, though not to the microsecond. It is played on its own node, which is powered off in the end.
//! Witnesses record what happened, mostly notified by the kernel, and the invariants are functions of these records.

mod api;
mod clock;
mod fault;
mod feature;
mod judge;
mod plan;
mod record;
mod seen;
mod stage;
mod strike;
mod table;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use tokio::runtime;
use tokio::time::Instant;

use crate::scenario::TestResult;
use crate::{Base, Flavour, Node, Suite, base_or_skip, error_chain};

pub use fault::{Fate, Fault, Phase, Service};
pub use feature::Feature;
pub use judge::Violation;
pub use plan::{Runtime, Schedule, Strike};
use stage::Stage;
pub use table::{IN_A_ROW, MARKS, table};

/// How often a worker checks whether it has to stop.
const STOP: Duration = Duration::from_millis(200);

/// The result of a schedule.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The schedule that was drawn.
    pub schedule: Schedule,
    /// The invariants that did not hold; empty if all went well.
    pub violations: Vec<Violation>,
    /// The time from the first step until the node was off.
    pub took: Duration,
}

/// How schedules share nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nodes {
    /// Each has its own, so many of them at a time.
    AtOnce(usize),
    /// All have the same one, which boots again for each.
    InARow,
}

/// Plays schedules. Calls `told` with each outcome, and with the journal if it has violations. Returns none, after
/// reporting why, if no node can be booted. Returns early with the outcomes so far once `stop` is set.
///
/// # Errors
/// There is no C compiler, or a thread cannot be started.
pub fn run(
    test: &str,
    schedules: &[Schedule],
    nodes: Nodes,
    stop: &AtomicBool,
    mut told: impl FnMut(&Outcome, &str),
) -> TestResult<Option<Vec<Outcome>>> {
    let folder = tempfile::tempdir()?;
    let parts = runtime()?.block_on(Parts::find(test, schedules, folder.path()))?;
    let Some(parts) = parts else { return Ok(None) };

    let next = AtomicUsize::new(0);
    let (sender, outcomes) = mpsc::channel();
    let failed: Mutex<Option<String>> = Mutex::new(None);
    let mut all = Vec::new();
    std::thread::scope(|scope| {
        let at_once = if let Nodes::AtOnce(most) = nodes { most } else { 1 };
        for _ in 0..at_once.clamp(1, schedules.len().max(1)) {
            let sender = sender.clone();
            // The node is killed when the thread that started it ends.
            scope.spawn(|| {
                let sender = sender;
                let work = || -> TestResult {
                    let (runtime, mut left) = (runtime()?, None);
                    while let Some(schedule) = schedules.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let played = play(schedule, &parts, left.take());
                        let played = runtime.block_on(until(stop, played));
                        let Some((outcome, journal, node)) = played else { return Ok(()) };
                        left = node.filter(|_| nodes == Nodes::InARow);
                        sender.send((outcome, journal))?;
                    }
                    Ok(())
                };
                if let Err(error) = work() {
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    *failed = Some(error.to_string());
                }
            });
        }
        drop(sender);
        for (outcome, journal) in outcomes {
            told(&outcome, &journal);
            all.push(outcome);
        }
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error.into());
    }
    all.sort_by_key(|outcome| outcome.schedule.seed);
    Ok(Some(all))
}

/// The parts that all nodes share.
#[derive(Debug)]
struct Parts {
    plain: Base,
    trixie: Option<Base>,
    containerd: Option<Base>,
    /// The preloaded library that implements the clock.
    clock: PathBuf,
}

// === impl Parts ===

impl Parts {
    /// Finds or builds what these schedules need, in a folder of their own.
    async fn find(test: &str, schedules: &[Schedule], folder: &Path) -> TestResult<Option<Self>> {
        let Some(plain) = base_or_skip(test, Flavour::Plain).await? else { return Ok(None) };
        let (mut trixie, mut containerd) = (None, None);
        if schedules.iter().any(|schedule| schedule.suite == Suite::Trixie) {
            trixie = base_or_skip(test, Suite::Trixie.with(Flavour::Plain)).await?;
            if trixie.is_none() {
                return Ok(None);
            }
        }
        if schedules.iter().any(|schedule| schedule.runtime.has_containers()) {
            containerd = base_or_skip(test, Flavour::Containerd).await?;
            if containerd.is_none() {
                return Ok(None);
            }
        }
        let clock = folder.join("clock.so");
        clock::compile(&clock)?;
        Ok(Some(Self { plain, trixie, containerd, clock }))
    }

    fn base(&self, schedule: &Schedule) -> &Base {
        let base = match (schedule.runtime.has_containers(), schedule.suite) {
            (true, _) => self.containerd.as_ref(),
            (_, Suite::Trixie) => self.trixie.as_ref(),
            // No schedule uses sid: a seed would not stand for the same node tomorrow.
            (_, Suite::Bookworm | Suite::Sid) => None,
        };
        base.unwrap_or(&self.plain)
    }
}

fn runtime() -> std::io::Result<runtime::Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

async fn until<T>(stop: &AtomicBool, done: impl Future<Output = T>) -> Option<T> {
    let stopped = async {
        while !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(STOP).await;
        }
    };
    tokio::select! {
        done = done => Some(done),
        () = stopped => None,
    }
}

/// Plays a schedule, from the boot of a node, that of an earlier one if there is any, until it is off. Also returns the
/// journal if anything was wrong, and otherwise the node.
async fn play(
    schedule: &Schedule,
    parts: &Parts,
    left: Option<Node>,
) -> (Outcome, String, Option<Node>) {
    let begun = Instant::now();
    let (mut journal, mut node) = (String::new(), None);
    let violations = match Stage::set(schedule, parts, left).await {
        Ok(mut stage) => {
            let violations = match stage.play().await {
                Ok(()) => match stage.record().await {
                    Ok(record) => {
                        let violations = judge::judge(&record);
                        if !violations.is_empty() {
                            journal = format!("{record:#?}\n");
                        }
                        violations
                    }
                    Err(error) => vec![not_finished(&*error)],
                },
                Err(error) => vec![not_finished(&*error)],
            };
            if violations.is_empty() {
                node = Some(stage.scenario.node);
            } else {
                let said = stage.scenario.node.journal(&["--output=short-precise"]).await;
                journal.push_str(&said.unwrap_or_else(|error| error.to_string()));
                journal = format!("{:#?}\n{journal}", stage.scenario.logs());
            }
            violations
        }
        Err(error) => vec![not_finished(&*error)],
    };
    let outcome = Outcome { schedule: schedule.clone(), violations, took: begun.elapsed() };
    (outcome, journal, node)
}

/// The violation if something never happened: a pod never ran, the lock was never held, or the node never went off.
fn not_finished(error: &(dyn std::error::Error + 'static)) -> Violation {
    Violation { invariant: "nothing lost", seen: error_chain(error) }
}
