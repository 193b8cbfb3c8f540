//! Random input: whatever the bytes, there is a result, and never a panic.

use std::path::Path;

use proptest::prelude::*;
use winddown_config::{Config, default_yaml};
use winddown_static_pods::read_manifest;

const GOOD: &str = include_str!("../../node/static-pods/tests/data/good.yaml");

fn read_both(bytes: &[u8]) {
    if let Err(error) = Config::parse(Path::new("c.yaml"), bytes) {
        assert!(error.to_string().starts_with("c.yaml:"), "{error}");
    }
    match read_manifest(Path::new("p.yaml"), bytes, "node1") {
        Ok(pod) => assert!(pod.name().ends_with("-node1")),
        Err(error) => assert!(error.to_string().starts_with("p.yaml:"), "{error}"),
    }
}

/// A good file with a few pieces replaced by others, most of which mean something to YAML.
fn mutated(good: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "",
            " ",
            "\n",
            "\n  ",
            "- ",
            ": ",
            "{",
            "}",
            "[",
            "]",
            "&a ",
            "*a",
            "<<: ",
            "!x ",
            "|\n",
            ">",
            "'",
            "\"",
            "#",
            "---\n",
            "~",
            "-1",
            "0",
            "99999999999999999999",
            "1e999",
            ".nan",
            "null",
            "yes",
            "\t",
            "\u{feff}",
            "\u{0}",
            "é",
            "%",
            "@",
            "`",
            "? ",
            ",",
            "\\",
            "..",
        ])
        .prop_map(|piece| piece.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
    ];
    let edit = (any::<prop::sample::Index>(), 0_usize..12, piece);
    prop::collection::vec(edit, 1..6).prop_map(move |edits| {
        let mut bytes = good.as_bytes().to_vec();
        for (place, length, piece) in edits {
            let start = place.index(bytes.len().max(1)).min(bytes.len());
            let end = (start + length).min(bytes.len());
            bytes.splice(start..end, piece);
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn arbitrary_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_both(&bytes);
    }

    #[test]
    fn arbitrary_text_of_yaml_is_answered(text in "[-a-c:{}\\[\\]&*!|>'\"#%@,? \n\t~<0-9.]{0,120}") {
        read_both(text.as_bytes());
    }

    #[test]
    fn a_mutated_manifest_is_answered(bytes in mutated(GOOD)) {
        read_both(&bytes);
    }

    #[test]
    fn a_mutated_configuration_is_answered(bytes in mutated(default_yaml())) {
        read_both(&bytes);
    }

    #[test]
    fn a_manifest_that_is_cut_off_is_answered(end in 0..GOOD.len()) {
        read_both(&GOOD.as_bytes()[..end]);
    }
}
