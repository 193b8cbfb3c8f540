//! Checks that the table in `README.md` matches the tests.

const TABLE: &str = include_str!("README.md");

const FILES: [(&str, &str); 10] = [
    ("active", include_str!("active.rs")),
    ("defects", include_str!("defects.rs")),
    ("exclusion", include_str!("exclusion.rs")),
    ("golden", include_str!("golden.rs")),
    ("housekeeping", include_str!("housekeeping.rs")),
    ("kill", include_str!("kill.rs")),
    ("known_pods", include_str!("known_pods.rs")),
    ("queries", include_str!("queries.rs")),
    ("retries", include_str!("retries.rs")),
    ("update", include_str!("update.rs")),
];

#[test]
fn every_test_that_the_table_names_is_there() {
    let named = TABLE.split('`').filter_map(|text| text.split_once("::"));
    let mut checked = 0;
    for (module, test) in named {
        let text = FILES.iter().find(|(name, _)| *name == module).map_or("", |(_, text)| text);
        assert!(text.contains(&format!("fn {test}(")), "`{module}::{test}` is not there");
        checked += 1;
    }
    assert!(checked > 30, "{checked}");
}
