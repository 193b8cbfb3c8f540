//! The platforms on which winddown is tested: systemd, control groups, runtimes, and how often.
//!
//! `make pages` writes the table into documents, and a test fails if theirs is outdated. A
//! [`Scenario`](crate::scenario::Scenario) refuses to run on a platform that is not in the list. A new kind of node is a
//! recipe in `tests/node/base.sh`, a line of `KINDS` and, with the runtime, one of `TRIED`.

use std::fmt::Write as _;

use crate::{Flavour, Recipe, Suite};

/// The line before the table in a document.
pub const START_OF_TABLE: &str = "<!-- Written by `make pages`. -->";
/// The line after the table in a document.
pub const END_OF_TABLE: &str = "<!-- End of the platforms. -->";

const NEVER: &str = "never";

/// The runtimes, as the configuration names them.
const RUNTIMES: [&str; 3] = ["process", "systemd", "cri"];

/// The tested combinations of node and runtime, each with a module of `tests/` that uses it.
const TRIED: [(Recipe, &str, &str); 13] = [
    (Recipe { suite: Suite::Bookworm, flavour: Flavour::Plain }, "process", "shutdown"),
    (Recipe { suite: Suite::Bookworm, flavour: Flavour::Plain }, "systemd", "services"),
    (Recipe { suite: Suite::Bookworm, flavour: Flavour::Containerd }, "cri", "cri"),
    (Recipe { suite: Suite::Trixie, flavour: Flavour::Plain }, "process", "ways"),
    (Recipe { suite: Suite::Trixie, flavour: Flavour::Plain }, "systemd", "ways"),
    (Recipe { suite: Suite::Trixie, flavour: Flavour::OwnKernel }, "process", "limits"),
    (Recipe { suite: Suite::Trixie, flavour: Flavour::OwnKernel }, "systemd", "eviction"),
    (Recipe { suite: Suite::Trixie, flavour: Flavour::OwnKernelContainerd }, "cri", "cri"),
    (Recipe { suite: Suite::Trixie, flavour: Flavour::Emulated }, "process", "ways"),
    (Recipe { suite: Suite::Sid, flavour: Flavour::Plain }, "process", "ways"),
    (Recipe { suite: Suite::Sid, flavour: Flavour::Plain }, "systemd", "ways"),
    (Recipe { suite: Suite::Sid, flavour: Flavour::OwnKernelContainerd }, "cri", "cri"),
    (Recipe { suite: Suite::Sid, flavour: Flavour::Emulated }, "process", "ways"),
];

/// The control groups of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Groups {
    /// Those of the host, in either version.
    Hosts,
    /// Version 2 only, with the controllers that the host has in version 2.
    Unified,
    /// Version 2 with all controllers.
    Complete,
}

/// Whether scenarios may run on such a node with that runtime.
pub(crate) fn is_listed(recipe: Recipe, runtime: &str) -> bool {
    TRIED.iter().any(|(tried, with, _)| (*tried, *with) == (recipe, runtime))
}

/// The table, in Markdown.
#[must_use]
pub fn table() -> String {
    let mut text =
        "| systemd | control groups | `process` | `systemd` | `cri` |\n|---|---|---|---|---|\n"
            .to_owned();
    for suite in Suite::EACH {
        for groups in [Groups::Hosts, Groups::Unified, Groups::Complete] {
            let each = RUNTIMES.map(|runtime| often(suite, groups, runtime));
            if each == [NEVER; 3] {
                continue;
            }
            let [process, systemd, cri] = each;
            let (version, groups) = (suite.systemd(), groups.name());
            let containerd = suite.containerd();
            // Writing to a text cannot fail.
            let _ = writeln!(
                text,
                "| {version} | {groups} | {process} | {systemd} | containerd {containerd}: {cri} |"
            );
        }
    }
    text
}

/// How often this combination is tested.
fn often(suite: Suite, groups: Groups, runtime: &str) -> &'static str {
    let mut tried = TRIED.iter().filter(|(recipe, with, _)| {
        recipe.suite == suite && Groups::of(*recipe) == groups && *with == runtime
    });
    match tried.clone().any(|(recipe, ..)| recipe.left_because().is_none()) {
        true => "`make test`",
        false if tried.next().is_some() => "`make test-all`",
        false => NEVER,
    }
}

impl Groups {
    fn of(recipe: Recipe) -> Self {
        match recipe {
            Recipe {
                flavour: Flavour::OwnKernel | Flavour::OwnKernelContainerd | Flavour::Emulated,
                ..
            } => Self::Complete,
            Recipe { suite: Suite::Bookworm, .. } => Self::Hosts,
            Recipe { .. } => Self::Unified,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Hosts => "the host's",
            Self::Unified => "version 2, the host's controllers",
            Self::Complete => "version 2, all controllers",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{END_OF_TABLE, START_OF_TABLE, TRIED, table};
    use crate::{Flavour, Recipe, Suite};

    #[test]
    fn the_page_on_support_has_the_table_of_today() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(here.join("../../docs/reference/support.md")).unwrap();
        let (_, rest) = text.split_once(START_OF_TABLE).unwrap();
        let (written, _) = rest.split_once(END_OF_TABLE).unwrap();
        assert_eq!(written.trim_start(), table(), "run `make pages`");
    }

    #[test]
    fn what_is_tried_is_tried_somewhere() {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        for (recipe, runtime, folder) in TRIED {
            let module = tests.join(folder);
            let parts = std::fs::read_dir(&module).into_iter().flatten();
            let parts = parts.map(|part| part.unwrap().path());
            let mut files = parts.chain([module.with_extension("rs")]);
            let tries = |file: PathBuf| {
                asks_for(&std::fs::read_to_string(file).unwrap_or_default(), recipe, runtime)
            };
            assert!(files.any(tries), "{recipe:?} with {runtime}: not in {}", module.display());
        }
    }

    /// Whether a function in this text asks for such a node with this runtime. A release that is not named is the
    /// oldest that has what is needed.
    fn asks_for(text: &str, recipe: Recipe, runtime: &str) -> bool {
        let (need, oldest) = match recipe.flavour {
            Flavour::OwnKernel | Flavour::OwnKernelContainerd => {
                ("Need::Controllers", Suite::Trixie)
            }
            Flavour::Emulated => ("Need::PowerKey", Suite::Trixie),
            _ => ("", Suite::Bookworm),
        };
        let begins = match runtime {
            "process" => ["Scenario::installed", "Scenario::running"],
            "systemd" => ["Scenario::with_services"; 2],
            _ => ["Scenario::with_containerd"; 2],
        };
        let release = format!("Suite::{:?}", recipe.suite);
        let is_named = text.contains(&release) || text.contains("on_each_release!");
        let asks = |function: &str| {
            function.contains(need) && begins.iter().any(|begin| function.contains(*begin))
        };
        (recipe.suite == oldest || is_named) && text.split("\n}\n").any(asks)
    }
}
