//! Tables where people read them: docs/performance.md and tests/bench/notebook.md.

const END: &str = "<!-- End of it. -->";

/// Puts `text` between ``<!-- Written by `winddown-bench COMMAND`. -->`` and `<!-- End of it. -->` of each document that has that place.
///
/// # Errors
/// A document cannot be read or written, or none has such a place.
pub(crate) fn replace(paths: &[String], command: &str, text: &str) -> Result<(), String> {
    let mut places = 0;
    for path in paths {
        let failed = |error: std::io::Error| format!("{path}: {error}");
        let old = std::fs::read_to_string(path).map_err(failed)?;
        if let Some(new) = replaced(&old, command, text) {
            std::fs::write(path, new).map_err(failed)?;
            places += 1;
        }
    }
    match places {
        0 => Err(format!("{}: no place for the tables of {command}", paths.join(", "))),
        _ => Ok(()),
    }
}

/// What was measured, and on what, for the line below a table.
pub(crate) fn machine() -> String {
    let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let release = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or("unknown");
    let linux = release.trim();
    format!("Commit {COMMIT}, {processors} processors, Linux {linux}, load {load} at the end.")
}

/// The commit that this program was built of. `make bench` says it to the compiler: the folder of the sources may be at
/// another one by now.
const COMMIT: &str = match option_env!("WINDDOWN_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

fn replaced(old: &str, command: &str, text: &str) -> Option<String> {
    let start = format!("<!-- Written by `winddown-bench {command}`. -->");
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
        let old = "a\n<!-- Written by `winddown-bench one`. -->\nold\n<!-- End of it. -->\nb\n\
                   <!-- Written by `winddown-bench two`. -->\nold\n<!-- End of it. -->\nc\n";
        let new = replaced(old, "two", "new\n").unwrap();
        assert!(
            new.contains("<!-- Written by `winddown-bench one`. -->\nold\n<!-- End of it. -->\nb"),
            "{new}"
        );
        assert!(
            new.contains(
                "<!-- Written by `winddown-bench two`. -->\n\nnew\n\n<!-- End of it. -->\nc"
            ),
            "{new}"
        );
        assert_eq!(replaced(&new, "two", "new\n").unwrap(), new, "twice is once");
        assert_eq!(replaced(old, "three", "new"), None);
    }
}
