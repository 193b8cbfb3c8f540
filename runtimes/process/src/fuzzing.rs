//! Properties that hold for any content of a process's files in /proc. Called by tests/fuzz.

use crate::programs::stats::processes;

/// Parses the text as `/proc/PID/statm`, `stat` and `schedstat`. Panics if a property is violated.
pub fn memory(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let _ = (processes::own_ticks(text), processes::ran(text));
    if let Some(own) = processes::own_pages(text) {
        let resident = text.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok());
        assert!(resident.is_some_and(|resident: u64| own <= resident), "{text:?}");
    }
}

#[test]
fn any_memory_of_a_process_keeps_the_laws() {
    winddown_fuzz::short("procfs", memory);
}
