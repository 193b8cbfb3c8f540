//! Tables where people read them: benches/notebook.md.

use std::path::Path;

const END: &str = "<!-- end -->";

/// Puts `text` between `<!-- winddown-bench COMMAND -->` and `<!-- end -->` of a document.
///
/// # Errors
/// The document cannot be read or written, or has no such place.
pub(crate) fn replace(path: &Path, command: &str, text: &str) -> Result<(), String> {
    let failed = |what: &str| format!("{}: {what}", path.display());
    let old = std::fs::read_to_string(path).map_err(|error| failed(&error.to_string()))?;
    let new = replaced(&old, command, text)
        .ok_or_else(|| failed(&format!("no place for the tables of {command}")))?;
    std::fs::write(path, new).map_err(|error| failed(&error.to_string()))
}

/// The machine, for the line below a table.
pub(crate) fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let release = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or("unknown");
    format!("{processors} processors, Linux {}, load {load} at the end.", release.trim())
}

fn replaced(old: &str, command: &str, text: &str) -> Option<String> {
    let start = format!("<!-- winddown-bench {command} -->");
    let (before, rest) = old.split_once(&start)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{start}\n\n{}\n\n{END}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::replaced;

    #[test]
    fn every_command_that_measures_has_its_place_on_the_page() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/notebook.md");
        let page = std::fs::read_to_string(page).unwrap();
        let parts = ["agent", "containers", "pressure", "workers", "preemption"];
        let growth = ["planners", "kills", "scaling", "processes", "fleet"];
        for command in parts.into_iter().chain(growth) {
            assert!(replaced(&page, command, "new").is_some(), "no place for {command}");
        }
    }

    #[test]
    fn a_table_takes_the_place_of_the_one_before_and_of_no_other() {
        let old = "a\n<!-- winddown-bench one -->\nold\n<!-- end -->\nb\n\
                   <!-- winddown-bench two -->\nold\n<!-- end -->\nc\n";
        let new = replaced(old, "two", "new\n").unwrap();
        assert!(new.contains("<!-- winddown-bench one -->\nold\n<!-- end -->\nb"), "{new}");
        assert!(new.contains("<!-- winddown-bench two -->\n\nnew\n\n<!-- end -->\nc"), "{new}");
        assert_eq!(replaced(&new, "two", "new\n").unwrap(), new, "twice is once");
        assert_eq!(replaced(old, "three", "new"), None);
    }
}
