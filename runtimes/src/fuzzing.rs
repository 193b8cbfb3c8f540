//! What must hold of the files of processes, whatever is in them. Called by tests/fuzz.

use crate::programs::stats::processes;

/// Reads the text as the memory of a process. Panics if a law is broken.
pub fn memory(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    if let Some(own) = processes::own_pages(text) {
        let resident = text.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok());
        assert!(resident.is_some_and(|resident: u64| own <= resident), "{text:?}");
    }
}
