//! Reads files of recorded answers.

use std::io::Read;
use std::path::Path;

/// The rows of a file in `tests/corpus/`.
pub(crate) fn rows(name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus").join(name);
    let file = std::fs::File::open(&path).expect(name);
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect(name);
    text.lines().map(str::to_owned).collect()
}
