//! What the product does in one way only: the words of another way are allowed in the file that has it, and nowhere else.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::rooms;

/// Something that has one place.
struct Way {
    /// The words by which another way is known.
    words: &'static [&'static str],
    /// The file that has it, and files in which the words mean something else.
    places: &'static [&'static str],
    instead: &'static str,
}

const WAYS: [Way; 4] = [
    Way {
        words: &["* 2).min(", "* 2).clamp(", "_mul(1 <<", "_mul(2).min("],
        places: &[
            "shared/quantities/src/backoff.rs",
            // The window of a log line.
            "programs/daemon/src/logging/rate_limit.rs",
            // The wait of a container that crashed, by the run before.
            "runtimes/engine/src/container_plan/backoff.rs",
        ],
        instead: "a delay doubles in `winddown_shared::Backoff`, or `doubled` without jitter",
    },
    Way {
        words: &["PoisonError", ".is_poisoned()"],
        places: &["shared/src/base/lock.rs"],
        instead: "a lock that stays usable after a panic is `winddown_shared::Mutex`",
    },
    Way {
        words: &["debug_assertions"],
        places: &[],
        instead: "what tests run does what ships does: a fault comes from outside, by a preloaded library",
    },
    Way {
        words: &[
            "== Resource::",
            "!= Resource::",
            "== PressureCondition::",
            "[PressureCondition::",
        ],
        places: &[],
        instead: "what is decided by a resource or a condition is a column of its row",
    },
];

/// How stops are retried: a row for each kind of failure.
const RETRIES: &str = "shared/quantities/src/retry.rs";
/// The words of another back-off and of a fixed wait, which a file that takes delays from the rows must not have.
const BACKOFFS: [&str; 7] =
    ["{Backoff", "::Backoff", " Backoff", "doubled(", " in 0..", "_ROUNDS", "sleep(Duration::"];

/// The files that sleep for an interval, because there is no event: each with the reason.
const INTERVALS: [(&str, &str); 16] = [
    (
        "cluster/client/src/list_and_watch.rs",
        "restored data makes a watch silent, without an error",
    ),
    ("cluster/companion/src/api_outage.rs", "a server that is silent says nothing"),
    (
        "cluster/companion/src/runtime.rs",
        "mounts of two namespaces, directories and a sandbox: no one event",
    ),
    (
        "cluster/companion/src/runtime_poller.rs",
        "container runtimes from before 2023 have no events",
    ),
    ("cluster/companion/src/shared_look.rs", "bounds the looks of many callers"),
    ("cluster/companion/src/stop.rs", "as for runtime.rs"),
    ("cluster/node-api/src/lib.rs", "in case the kernel loses an event of its files"),
    ("node/src/guard.rs", "timers stand still while the machine sleeps"),
    ("node/src/recorders.rs", "bounds the looks after events"),
    ("programs/src/drill/progress.rs", "the clock that it draws"),
    ("programs/src/watch/live.rs", "the age that it draws"),
    ("runtimes/cri/src/exits.rs", "puts a question off after an event"),
    ("runtimes/cri/src/logs.rs", "the growth of a file that another writes"),
    ("runtimes/engine/src/machine_lock.rs", "for a second, at the start"),
    ("runtimes/engine/src/state_lock.rs", "for a second, at the start"),
    ("shared/conformance/src/steps.rs", "it looks from outside"),
];

/// Checks that nothing is done in a second way.
///
/// # Errors
/// A source cannot be read, or does so.
pub(crate) fn check(repository: &Path) -> Result<()> {
    let crates = rooms::sources(repository)?;
    let all = crates.iter().flat_map(|(_, sources)| sources).map(|source| {
        let path = source.path.strip_prefix(repository).unwrap_or(&source.path);
        let product = source.text.split("\nmod tests {").next().unwrap_or_default();
        (path.display().to_string(), product)
    });
    let all: Vec<_> = all.collect();
    let mut second: Vec<_> = all.iter().flat_map(|(file, text)| second_ways(file, text)).collect();
    second.extend(unused_retries(&all));
    second.extend(idle_intervals(&all));
    ensure!(second.is_empty(), "{}", second.join("\n"));
    Ok(())
}

/// One line for each row of the retries from which no file takes delays.
fn unused_retries(files: &[(String, &str)]) -> Vec<String> {
    let rows = files.iter().filter(|(file, _)| file == RETRIES).flat_map(|(_, text)| text.lines());
    let names =
        rows.filter_map(|row| Some(row.trim().strip_prefix("pub const ")?.split_once(':')?.0));
    let is_unused = |name: &&str| {
        let row = format!("Retry::{name}");
        let is_whole = |rest: &str| !rest.starts_with(|c: char| c == '_' || c.is_alphabetic());
        !files.iter().any(|(_, text)| text.split(&row).skip(1).any(is_whole))
    };
    names.filter(is_unused).map(|name| format!("{RETRIES}: nothing uses {name}")).collect()
}

/// One line for each line of `text` that has the words of another way.
fn second_ways(file: &str, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    let takes_retries = text.contains("Retry::") || text.contains(" Retry,");
    let retries = takes_retries.then_some(Way {
        words: &BACKOFFS,
        places: &[RETRIES],
        instead: "how a stop is retried, and until when, is a row of `winddown_shared::Retry`",
    });
    let mut wrong = waits_for_ever(file, text);
    wrong.extend(intervals(file, text));
    wrong.extend(lines.flat_map(|(at, line)| {
        let has = move |way: &&Way| {
            !way.places.contains(&file) && way.words.iter().any(|words| line.contains(words))
        };
        let ways = WAYS.iter().chain(&retries).filter(has);
        ways.map(move |way| format!("{file}:{}: {}", at + 1, way.instead))
    }));
    wrong
}

/// One line for each line of `text` that sleeps for an interval, unless the file may.
fn intervals(file: &str, text: &str) -> Vec<String> {
    let may = INTERVALS.iter().any(|(place, _)| *place == file);
    let lines = text.lines().enumerate().filter(|(_, line)| !may && sleeps_for_interval(line));
    let instead = "what has an event is awaited, and what has none is in INTERVALS with the reason";
    lines.map(|(at, _)| format!("{file}:{}: {instead}", at + 1)).collect()
}

fn sleeps_for_interval(line: &str) -> bool {
    ["sleep", "timeout("]
        .into_iter()
        .any(|waits| line.split_once(waits).is_some_and(|(_, waited)| waited.contains("_INTERVAL")))
}

/// One line for each file of [`INTERVALS`] that sleeps for none.
fn idle_intervals(files: &[(String, &str)]) -> Vec<String> {
    let sleeps = |place: &str| {
        let mut texts = files.iter().filter(|(file, _)| file == place);
        texts.any(|(_, text)| text.lines().any(sleeps_for_interval))
    };
    let idle = INTERVALS.iter().filter(|(place, _)| !sleeps(place));
    idle.map(|(place, _)| format!("{place}: sleeps for no interval")).collect()
}

/// One line for each place that waits for ever after the last delay of a row.
fn waits_for_ever(file: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let after_loop = |at: usize| {
        let indent = lines[at].len() - lines[at].trim_start().len();
        let end = format!("{}}}", " ".repeat(indent));
        let next = at + lines[at..].iter().position(|line| *line == end)? + 1;
        lines.get(next).is_some_and(|line| line.contains("pending")).then_some(next)
    };
    let place = |(at, line): (usize, &&str)| match line.contains("None =>") {
        true => (text.contains("Retry::") && line.contains("return pending")).then_some(at),
        false => line.contains(" in Retry::").then(|| after_loop(at)).flatten(),
    };
    let wrong = lines.iter().enumerate().filter_map(place);
    wrong.map(|at| format!("{file}:{}: a loop that gives up returns an error", at + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_does_each_thing_in_one_way() {
        check(&crate::repository()).unwrap();
    }

    #[test]
    fn a_second_way_is_refused_with_its_line_and_the_way_that_there_is() {
        let by_hand = "let a = 1;\nwait = (wait * 2).min(LONGEST);\n";
        let wrong = second_ways("node/src/core.rs", by_hand);
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].starts_with("node/src/core.rs:2: a delay doubles in"), "{wrong:?}");
        assert!(second_ways("shared/quantities/src/backoff.rs", by_hand).is_empty());
        let of_tests_only = second_ways("node/src/core.rs", "    #[cfg(debug_assertions)]\n");
        assert!(of_tests_only[0].contains("core.rs:1: what tests run does"), "{of_tests_only:?}");
        let by_resource = "if shortage.resource() == Resource::Memory {\n";
        let wrong = second_ways("eviction/src/decide.rs", by_resource);
        assert!(wrong[0].contains("decide.rs:1: what is decided by a resource"), "{wrong:?}");
    }

    #[test]
    fn a_file_sleeps_for_an_interval_only_where_it_is_said_why_there_is_no_event() {
        let looks = "loop {\n    sleep(LOOK_INTERVAL).await;\n}\n";
        let bounded =
            "() = tokio::time::sleep_until(until.min(now + LIMIT_CHECK_INTERVAL)) => {}\n";
        for (text, line) in [(looks, 2), (bounded, 1)] {
            let wrong = second_ways("node/src/core.rs", text);
            assert_eq!(wrong.len(), 1, "{wrong:?}");
            assert!(wrong[0].starts_with(&format!("node/src/core.rs:{line}: what has an event")));
        }
        assert!(second_ways("node/src/guard.rs", looks).is_empty());
        let none = [("node/src/guard.rs".to_owned(), "fn main() {}\n")];
        assert!(
            idle_intervals(&none).contains(&"node/src/guard.rs: sleeps for no interval".to_owned())
        );
    }

    #[test]
    fn a_file_that_retries_stops_by_the_table_has_no_other_back_off_and_each_row_is_used() {
        let rounds = "for round in 0..4 {\n";
        assert!(second_ways("runtimes/process/src/end.rs", rounds).is_empty());
        let both = format!("Retry::KILL.delays();\n{rounds}");
        let wrong = second_ways("runtimes/process/src/end.rs", &both);
        assert!(wrong.len() == 1 && wrong[0].contains("end.rs:2: how a stop"), "{wrong:?}");
        let fixed = "Retry::KILL.delays();\nsleep(SEARCH_INTERVAL).await;\n";
        assert_eq!(second_ways("a.rs", fixed).len(), 1);
        let forever = "for delay in Retry::KILL.delays() {\n}\npending().await\n";
        let last = "match Retry::KILL.delays().next() {\n    None => return pending().await,\n}\n";
        for (text, line) in [(forever, 3), (last, 2)] {
            let wrong = format!("a.rs:{line}: a loop that gives up returns an error");
            assert_eq!(second_ways("a.rs", text), [wrong]);
        }
        let table = "    pub const KILL: Self = 1;\n    pub const UNIT: Self = 2;\n";
        let files = [(RETRIES.to_owned(), table), ("end.rs".to_owned(), &*both)];
        assert_eq!(unused_retries(&files), [format!("{RETRIES}: nothing uses UNIT")]);
    }
}
