//! `plan … -f` for the recorded cases.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::fmt::Write as _;
use std::io::Read as _;

use flate2::read::GzDecoder;
use sha2::{Digest as _, Sha256};

use super::world::run;
use crate::Exit;

/// The kinds of cases, their files, and the digest of all answers in JSON.
const ANSWERS: [(&str, &str, &str); 3] = [
    ("shutdown", "shutdown", "759785205a0c47dd6ecb5bc64fafa02afe6845c5cd7058cf4beefd406098d9c2"),
    (
        "preemption",
        "preemption",
        "d58bdcf0152adddae429322d02e9f996efe396e8da384289eb4eaf205354d682",
    ),
    (
        "eviction",
        "eviction-ranking",
        "0add902c00d90eb0dd5c8fd8b2f1261041854a18cd90a1f86865ff79fe156e84",
    ),
];

#[test]
fn the_answers_to_all_recorded_cases_keep_each_of_their_bytes() {
    for (kind, name, wanted) in ANSWERS {
        let root = env!("CARGO_MANIFEST_DIR");
        let recorded = format!("{root}/../tests/corpus/{name}-kubelet-1.36.jsonl.gz");
        let mut cases = Vec::new();
        let recorded = std::fs::File::open(recorded).unwrap();
        GzDecoder::new(recorded).read_to_end(&mut cases).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), cases).unwrap();
        let ran = run(&format!("winddown plan {kind} -f {} -o json", file.path().display()));
        assert_eq!((ran.exit, &*ran.err), (Exit::Success, ""), "{kind}");
        let digest =
            Sha256::digest(ran.out.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
        assert_eq!(digest, wanted, "{kind}: {}", ran.out.lines().next().unwrap_or_default());
    }
}
