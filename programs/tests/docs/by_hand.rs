//! Counts the words that people wrote.

/// Whether `make pages` writes the page: it is counted separately.
pub(crate) fn is_generated(page: &str) -> bool {
    page.ends_with("pod-fields.md")
}

/// The number of words of a page, as `wc -w` counts them, without the generated tables in it. A table without an end
/// marker extends to the next table or the end of the page.
pub(crate) fn words_by_hand(page: &str) -> usize {
    let mut pieces = page.split("<!-- Written by ");
    let before = pieces.next().unwrap_or_default();
    let behind = pieces.filter_map(|piece| {
        let (_, rest) = piece.split_once("<!-- End of ")?;
        Some(rest.split_once("-->")?.1)
    });
    std::iter::once(before).chain(behind).map(|text| text.split_whitespace().count()).sum()
}

#[test]
fn a_table_that_a_command_writes_is_not_counted_and_the_words_around_it_are() {
    let table = "<!-- Written by `make it`. -->\n| one | two |\n<!-- End of it. -->\n";
    assert_eq!(words_by_hand("one two\nthree"), 3);
    assert_eq!(words_by_hand(&format!("one\n{table}two\n{table}")), 2);
}
