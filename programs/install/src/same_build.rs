//! Tells whether the programs to install are of one version: each has a mark in it that names its own.
//!
//! The mark is read, not asked for with `--version`: what lies beside this program is not run before it is known what it
//! is, and an image may be for another machine.

use std::io::{self, BufRead as _, BufReader, Read};

/// What a mark begins and ends with.
const EDGE: u8 = 1;
const BEGINNING: &str = "winddown's program of version ";
/// The longest mark that is read.
const MAX_MARK_BYTES: u64 = 128;

/// The mark of this version. Each program refers to it when it starts, so that it is in the program's file.
pub const BUILD_MARK: &str =
    concat!("\u{1}winddown's program of version ", env!("CARGO_PKG_VERSION"), "\u{1}");

/// Returns the version that the first mark in `program` names; `None` without a mark.
pub(super) fn version_in(program: impl Read) -> io::Result<Option<String>> {
    let mut program = BufReader::new(program);
    loop {
        let mut part = Vec::new();
        if program.by_ref().take(MAX_MARK_BYTES).read_until(EDGE, &mut part)? == 0 {
            return Ok(None);
        }
        let Some(text) = part.strip_suffix(&[EDGE]) else {
            program.skip_until(EDGE)?;
            continue;
        };
        if let Some(version) = text.strip_prefix(BEGINNING.as_bytes()) {
            return Ok(Some(String::from_utf8_lossy(version).into_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_wherever_it_is_and_nothing_else_is_taken_for_one() {
        let found = |program: &str| version_in(program.as_bytes()).unwrap();
        let own = Some(env!("CARGO_PKG_VERSION").to_owned());
        let far = "x".repeat(100_000);
        for before in ["", "x", "\u{1}", "\u{1}\u{1}", "winddown's program of version \u{1}", &far]
        {
            let before = format!("\u{7f}ELF{before}");
            assert_eq!(found(&format!("{before}{BUILD_MARK}after")), own, "{before:?}");
        }
        for without in ["", &far, "winddown's program of version 1", "\u{1}winddown 1\u{1}"] {
            assert_eq!(found(without), None, "{without:?}");
        }
        assert_eq!(found("\u{1}winddown's program of version 2.0\u{1}"), Some("2.0".to_owned()));
    }
}
