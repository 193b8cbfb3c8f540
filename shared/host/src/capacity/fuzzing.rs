//! Properties of the parsers of capacity, for any input.

use super::{cpu, huge_pages};

pub(crate) fn laws(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    for line in text.lines() {
        if let Some(processors) = cpu::count(line.trim()) {
            assert!(processors > 0, "a list of ranges has at least one number: {line:?}");
            let twice = cpu::count(&format!("{0},{0}", line.trim()));
            assert_eq!(twice, processors.checked_mul(2), "{line:?}");
        }
        if let Some(size) = huge_pages::page_kibibytes(line) {
            assert!(size > 0, "{line:?}");
        }
    }
}
