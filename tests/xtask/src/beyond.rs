//! What goes beyond the three controllers is a plug-in that one commit can delete: no other part of the node, and none of
//! the crates below it, names one.
//!
//! To delete one: `cargo run -p xtask -- plugins` prints the files that name it. Delete its folder, its lines there, its
//! page and its row in `BEYOND`.
//!
//! To add a plug-in of the node's own: add a feature to `winddown-node` and a module of that name with an `impl
//! NodePlugin`, whose `register` adds to the `PluginRegistry` its admission checks, its section of the status, its answers
//! on the control socket, what it offers to others (`links.rs`) and, with `start`, its tasks. Add it to each list that
//! uses it (`daemon`, `programs/src/drill.rs`), to `PLUGINS` in `plugins.rs`, and to `node/tests/left_out.rs`.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::rooms;

/// A plug-in that can be deleted.
struct Beyond {
    name: &'static str,
    /// The words by which the code knows it, as a list with spaces. So are the paths.
    words: &'static str,
    /// Its own folders and files, by prefix.
    own: &'static str,
    /// The files of [`BELOW`] that have a line of it nevertheless.
    lines: &'static str,
}

const BEYOND: [Beyond; 6] = [
    Beyond {
        name: "guard",
        words: "ShutdownGuard GuardedN GuardS GuardPolicy shutdown-guard shutdown_guard guard:: .guard",
        own: "node/src/guard",
        lines: "node/src/lib.rs",
    },
    Beyond {
        name: "ordered start",
        words: "OrderedStart ordered_start StartReport StartS StartPlan start_plan StartingGroup",
        own: "node/src/ordered_start",
        lines: "node/src/api.rs node/src/lib.rs node/src/plugin.rs",
    },
    Beyond {
        name: "order between nodes",
        words: "AfterNode after_nodes",
        own: "cluster/src/after_nodes node/src/cluster/after_nodes.rs",
        lines: "cluster/src/lib.rs node/src/cluster.rs",
    },
    Beyond {
        name: "memory reclaim",
        words: "MemoryReclaim ReclaimMemory memory_reclaim reclaim_memory",
        own: "eviction/src/memory_reclaim node/src/memory_reclaim.rs",
        lines: "eviction/src/lib.rs node/src/configured.rs node/src/lib.rs node/src/pressure/runtime.rs shared/src/runtime.rs",
    },
    Beyond {
        name: "termination notices",
        words: "TerminationNotice termination_notices",
        own: "runtimes/engine/src/termination_notices",
        lines: "",
    },
    Beyond {
        name: "cloud notices",
        words: "Cloud cloud::",
        own: "shutdown/notices/src/cloud",
        lines: "shutdown/notices/src/lib.rs",
    },
];

/// Where no file may name one: the controllers and what is below them, and the node that joins them.
const BELOW: [&str; 7] = [
    "cluster/src/",
    "eviction/",
    "node/src/",
    "preemption/",
    "shared/src/",
    "shutdown/",
    "systemd/",
];

/// Prints which files name each.
///
/// # Errors
/// A source cannot be read, or names one where none may.
pub(crate) fn show(repository: &Path) -> Result<()> {
    let mut sources = Vec::new();
    for source in rooms::sources(repository)?.into_iter().flat_map(|(_, sources)| sources) {
        let path = source.path.strip_prefix(repository).unwrap_or(&source.path);
        sources.push((path.display().to_string(), source.text));
    }
    for one in &BEYOND {
        let wrong = one.wrong(&sources);
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        let named: Vec<_> = one.named(&sources).map(|(file, _)| file).collect();
        println!("{}: {}", one.name, named.join(" "));
    }
    Ok(())
}

impl Beyond {
    /// The files that name it, each with the line of the first mention.
    fn named<'a>(&self, sources: &'a [(String, String)]) -> impl Iterator<Item = (&'a str, usize)> {
        sources.iter().filter_map(|(file, text)| {
            let names = |line: &str| self.words.split(' ').any(|word| line.contains(word));
            Some((&**file, text.lines().position(names)? + 1))
        })
    }

    /// One line for each file that names it where none may.
    fn wrong(&self, sources: &[(String, String)]) -> Vec<String> {
        let may = |file: &str| {
            let own = self.own.split(' ').any(|own| file.starts_with(own));
            own || self.lines.split(' ').any(|line| file == line)
        };
        let wrong = self
            .named(sources)
            .filter(|(file, _)| BELOW.iter().any(|below| file.starts_with(below)) && !may(file));
        let instead = "which can be deleted: offer it a seam instead";
        wrong.map(|(file, at)| format!("{file}:{at}: names {}, {instead}", self.name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_below_a_plug_in_that_can_be_deleted_names_it() {
        show(&crate::repository()).unwrap();
    }

    #[test]
    fn a_controller_that_names_one_is_refused_with_its_line() {
        let files = ["node/src/guard/view.rs", "node/src/lib.rs", "shutdown/src/run.rs"];
        let sources = files.map(|file| (file.to_owned(), "use x;\nShutdownGuard".to_owned()));
        let wrong = BEYOND[0].wrong(&sources);
        assert!(wrong[0].starts_with("shutdown/src/run.rs:2: names guard"), "{wrong:?}");
        assert_eq!(wrong.len(), 1);
    }
}
