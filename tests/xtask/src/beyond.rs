//! What goes beyond the three controllers is a plug-in that one commit can delete: which files name each, and that no
//! other does.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::rooms;

/// A feature that can be deleted: its folder, its lines elsewhere, and nothing more.
struct Beyond {
    name: &'static str,
    /// The words by which it is known, in code.
    words: &'static [&'static str],
    /// Its own folders and files, by prefix.
    own: &'static [&'static str],
    /// The files with a line of it: its registration, its option, its part of the status, what shows that.
    lines: &'static [&'static str],
}

const BEYOND: [Beyond; 1] = [Beyond {
    name: "guard",
    words: &[
        "ShutdownGuard",
        "shutdown_guard",
        "shutdownGuard",
        "shutdown-guard",
        "GuardedN",
        "GuardStatus",
        "GuardPolicy",
        "GUARD_LABEL",
        "HoldingPod",
        "mod guard",
        ".guard",
    ],
    own: &["node/src/guard", "node/control/src/api/guard.rs"],
    lines: &[
        "node/config/src/lib.rs",
        "node/config/src/reference/shutdown.rs",
        "node/config/src/shutdown.rs",
        "node/control/src/api.rs",
        "node/control/src/api/status.rs",
        "node/src/lib.rs",
        "programs/daemon/src/service.rs",
        "programs/doctor/src/checks/shutdown.rs",
        "programs/render/src/live.rs",
        "programs/render/src/rows.rs",
    ],
}];

/// Checks that no file but its own and those with a line of it names a feature, and prints how many files of each room
/// do.
///
/// # Errors
/// A source cannot be read, or another file does, or a file that may has no such line any more.
pub(crate) fn show(repository: &Path) -> Result<()> {
    let mut sources = Vec::new();
    for source in rooms::sources(repository)?.into_iter().flat_map(|(_, sources)| sources) {
        let path = source.path.strip_prefix(repository).unwrap_or(&source.path);
        sources.push((path.display().to_string(), source.text));
    }
    let wrong: Vec<String> = BEYOND.iter().flat_map(|one| one.wrong(&sources)).collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    for one in &BEYOND {
        println!("{:<14} {}", one.name, one.by_room(&sources));
    }
    Ok(())
}

impl Beyond {
    fn is_own(&self, file: &str) -> bool {
        self.own.iter().any(|own| file.starts_with(own))
    }

    /// The files that name it, and the line of the first mention.
    fn named<'a>(&self, sources: &'a [(String, String)]) -> impl Iterator<Item = (&'a str, usize)> {
        sources.iter().filter_map(|(file, text)| {
            let names = |line: &str| self.words.iter().any(|word| line.contains(word));
            let at = text.lines().position(names)?;
            Some((&**file, at + 1))
        })
    }

    /// One line for each file that names it and should not, and for each that no longer does.
    fn wrong(&self, sources: &[(String, String)]) -> Vec<String> {
        let name = self.name;
        let named: Vec<_> = self.named(sources).filter(|(file, _)| !self.is_own(file)).collect();
        let others = named.iter().filter(|(file, _)| !self.lines.contains(file));
        let others = others.map(|(file, at)| {
            format!(
                "{file}:{at}: names {name}, a plug-in that can be deleted: offer it a seam instead"
            )
        });
        let has_line = |file: &&str| named.iter().any(|(named, _)| named == file);
        let gone = self.lines.iter().filter(|file| !has_line(file));
        let gone =
            gone.map(|file| format!("{file}: no longer names {name}: remove it from the list"));
        others.chain(gone).collect()
    }

    /// How many files of each room name it: `node 5, programs 3`.
    fn by_room(&self, sources: &[(String, String)]) -> String {
        let mut rooms = BTreeMap::<&str, usize>::new();
        for (file, _) in self.named(sources) {
            *rooms.entry(file.split('/').next().unwrap_or(file)).or_default() += 1;
        }
        let rooms: Vec<_> = rooms.iter().map(|(room, files)| format!("{room} {files}")).collect();
        rooms.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_names_a_plug_in_that_can_be_deleted_but_its_own_and_those_with_a_line_of_it() {
        show(&crate::repository()).unwrap();
    }

    #[test]
    fn another_file_is_refused_with_its_line_and_a_list_that_is_too_long_as_well() {
        let one =
            Beyond { name: "guard", words: &["Guard"], own: &["node/src/guard"], lines: &["a"] };
        let sources = |files: &[&str]| -> Vec<_> {
            files.iter().map(|file| ((*file).to_owned(), "use x;\nGuard".to_owned())).collect()
        };
        assert_eq!(one.wrong(&sources(&["a", "node/src/guard/view.rs"])), Vec::<String>::new());
        let wrong = one.wrong(&sources(&["shutdown/src/run.rs"]));
        assert_eq!(wrong.len(), 2);
        assert!(wrong[0].starts_with("shutdown/src/run.rs:2: names guard"), "{wrong:?}");
        assert!(wrong[1].starts_with("a: no longer names guard"), "{wrong:?}");
    }
}
