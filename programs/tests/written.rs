//! Tables of pages that the tests know: compared, or written by `make pages`.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::Path;

use winddown_node_tests::document::replace_between;

/// `make pages` sets it.
const WRITE: &str = "WINDDOWN_WRITE_PAGES";

/// Checks that this table is between its marks on the page, or writes it there.
pub(crate) fn is_on_page(page: &str, what: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page);
    let start = format!("<!-- Written by `make pages`: {what}. -->");
    let end = format!("<!-- End of {what}. -->");
    if std::env::var_os(WRITE).is_some() {
        replace_between(&path, [&start, &end], table).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(&format!("{start}\n{table}{end}")), "{page}: run `make pages`: {what}");
}
