//! The pure planners: instructions and allocations for more and more pods.

mod cases;

use std::hint::black_box;

use tokio::time::Instant;

use crate::counted::{Counting, per_time};
use crate::figure::{exact, median, micros};
use crate::table::Grid;

pub(crate) use cases::Planner;

/// How many pods are planned for.
const PODS: [usize; 4] = [10, 100, 1000, 5000];
/// Runs of which the counts are the mean; they are all alike.
const COUNTED: u64 = 2;
/// Runs of which the median time counts.
const RUNS: usize = 31;

/// Counts for every planner and number of pods.
pub(crate) fn measure() -> Result<Grid, String> {
    let title = format!(
        "the pure planners; one thread, instructions and allocations counted by valgrind, time is the \
         median of {RUNS} runs"
    );
    let head = ["planner", "pods", "instructions", "per pod", "allocations", "time"];
    let mut grid = Grid::titled(title, &head);
    for planner in Planner::ALL {
        for pods in PODS {
            let counted = |counting| {
                let args = |times: u64| {
                    ["planner", planner.as_str(), &pods.to_string(), &times.to_string()]
                        .map(str::to_owned)
                        .to_vec()
                };
                per_time(counting, COUNTED, args)
            };
            let instructions = counted(Counting::Instructions);
            let text = |count: Option<u64>| {
                count.map_or_else(|| "no valgrind".to_owned(), |count| count.to_string())
            };
            let pods_counted = u64::try_from(pods).unwrap_or(u64::MAX);
            let per_pod = instructions.map_or_else(String::new, |instructions| {
                format!("{:.0}", exact(instructions) / exact(pods_counted))
            });
            let plan = planner.prepare(pods)?;
            let mut runs = Vec::with_capacity(RUNS);
            for _ in 0..RUNS {
                let begun = Instant::now();
                black_box(plan());
                runs.push(begun.elapsed());
            }
            grid.row(vec![
                planner.title().to_owned(),
                pods.to_string(),
                text(instructions),
                per_pod,
                text(counted(Counting::Allocations)),
                micros(median(runs)).to_string(),
            ]);
        }
    }
    Ok(grid)
}

/// Plans so many times and does nothing else: what is counted.
pub(crate) fn repeat(name: &str, pods: &str, times: &str) -> Result<String, String> {
    let planner = Planner::named(name).ok_or_else(|| format!("{name}: no planner"))?;
    let pods = pods.parse().map_err(|_| format!("{pods}: not a whole number"))?;
    let times: u64 = times.parse().map_err(|_| format!("{times}: not a whole number"))?;
    let plan = planner.prepare(pods)?;
    // The first plan works out the facts of the pods.
    black_box(plan());
    for _ in 1..times {
        black_box(again(&*plan));
    }
    Ok(format!("{times} times"))
}

/// By this name, the growth test finds what to count.
#[inline(never)]
fn again(plan: &dyn Fn() -> usize) -> usize {
    plan()
}
