//! Documents with a generated part.

use std::io;
use std::path::Path;

/// Replaces the text between the two lines that mark its place in the document.
///
/// # Errors
/// The document cannot be read or written, or has no such place.
pub fn replace_between(document: &Path, [start, end]: [&str; 2], text: &str) -> io::Result<()> {
    let old = std::fs::read_to_string(document)?;
    let place = old
        .split_once(start)
        .and_then(|(before, rest)| rest.split_once(end).map(|(_, after)| (before, after)));
    let missing = || io::Error::other(format!("{} has no line {start:?}", document.display()));
    let (before, after) = place.ok_or_else(missing)?;
    std::fs::write(document, format!("{before}{start}\n{text}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::replace_between;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "a\n<!-- s -->\nold\n<!-- e -->\nb\n").unwrap();
        replace_between(file.path(), ["<!-- s -->", "<!-- e -->"], "new\n").unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert_eq!(text, "a\n<!-- s -->\nnew\n<!-- e -->\nb\n");
        assert!(replace_between(file.path(), ["<!-- x -->", "<!-- e -->"], "").is_err());
    }
}
