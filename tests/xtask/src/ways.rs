//! What the product does in one way only: the words of another way are allowed in the file that has it, and nowhere else.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::rooms;

/// Something that has one place.
struct Way {
    /// The words by which another way is known.
    words: &'static [&'static str],
    files: Files,
    instead: &'static str,
}

/// Where the words are refused.
enum Files {
    /// Everywhere but in the file that has it, and in files in which the words mean something else.
    AllBut(&'static [&'static str]),
    /// Only in these.
    These(&'static [&'static str]),
}

const WAYS: [Way; 2] = [
    Way {
        words: &["* 2).min(", "* 2).clamp(", "_mul(1 <<", "_mul(2).min("],
        files: Files::AllBut(&[
            "shared/src/base/backoff.rs",
            // The window of a log line.
            "programs/daemon/src/logging/rate_limit.rs",
            // The wait of a container that crashed, by the run before.
            "runtimes/engine/src/container_plan/backoff.rs",
        ]),
        instead: "a delay doubles in `winddown_shared::Backoff`, or `doubled` without jitter",
    },
    Way {
        words: &["Backoff", "doubled(", " in 0..", "RETRY", "ROUNDS", "_PAUSE"],
        files: Files::These(&[
            "cluster/companion/src/restart_guard.rs",
            "cluster/companion/src/stop.rs",
            "cluster/companion/src/stop/asking.rs",
            "cluster/companion/src/stop/responders.rs",
            "runtimes/cri/src/stop/container.rs",
            "runtimes/engine/src/sync.rs",
            "runtimes/process/src/process/end.rs",
            "runtimes/process/src/process/watcher.rs",
            "runtimes/process/src/programs/end.rs",
            "runtimes/process/src/systemd/end.rs",
            "runtimes/shim/src/members.rs",
            "runtimes/shim/src/tree.rs",
            "shared/src/intake/leftovers.rs",
            "shared/src/workers/state/steps.rs",
        ]),
        instead: "how a stop is retried, and until when, is a row of `winddown_shared::Retry`",
    },
];

/// Checks that nothing is done in a second way.
///
/// # Errors
/// A source cannot be read, or does so.
pub(crate) fn check(repository: &Path) -> Result<()> {
    let mut second = Vec::new();
    for way in &WAYS {
        let (Files::AllBut(named) | Files::These(named)) = way.files;
        let gone = named.iter().filter(|file| !repository.join(file).is_file());
        second.extend(gone.map(|file| format!("{file} is gone; name the file it moved to")));
    }
    for source in rooms::sources(repository)?.iter().flat_map(|(_, sources)| sources) {
        let path = source.path.strip_prefix(repository).unwrap_or(&source.path);
        second.extend(second_ways(&path.display().to_string(), &source.text));
    }
    ensure!(second.is_empty(), "{}", second.join("\n"));
    Ok(())
}

/// One line for each line of `text` that has the words of another way.
fn second_ways(file: &str, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    let wrong = lines.flat_map(|(at, line)| {
        let has = move |way: &&Way| {
            let counts = match way.files {
                Files::AllBut(files) => !files.contains(&file),
                Files::These(files) => files.contains(&file),
            };
            counts && way.words.iter().any(|words| line.contains(words))
        };
        WAYS.iter().filter(has).map(move |way| format!("{file}:{}: {}", at + 1, way.instead))
    });
    wrong.collect()
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
        assert!(second_ways("shared/src/base/backoff.rs", by_hand).is_empty());
        let rounds = "for round in 0..4 {\n";
        let wrong = second_ways("runtimes/process/src/programs/end.rs", rounds);
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(second_ways("runtimes/process/src/programs/launch.rs", rounds).is_empty());
    }
}
