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

const WAYS: [Way; 1] = [Way {
    words: &["* 2).min(", "* 2).clamp(", "_mul(1 <<", "_mul(2).min("],
    places: &[
        "shared/src/base/backoff.rs",
        // The window of a log line.
        "programs/daemon/src/logging/rate_limit.rs",
        // The wait of a container that crashed, by the run before.
        "runtimes/engine/src/container_plan/backoff.rs",
    ],
    instead: "a delay doubles in `winddown_shared::Backoff`, or `doubled` without jitter",
}];

/// Checks that nothing is done in a second way.
///
/// # Errors
/// A source cannot be read, or does so.
pub(crate) fn check(repository: &Path) -> Result<()> {
    let mut second = Vec::new();
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
            !way.places.contains(&file) && way.words.iter().any(|words| line.contains(words))
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
    }
}
