use super::*;

#[test]
fn the_values_are_read() {
    use MetadataValue::{Maintenance, Preempted};
    let cases = [
        (Preempted, "TRUE", Some(30)),
        (Preempted, "TRUE\n", Some(30)),
        (Preempted, "FALSE", None),
        (Maintenance, "NONE", None),
        (Maintenance, "MIGRATE_ON_HOST_MAINTENANCE", None),
        (Maintenance, "TERMINATE_ON_HOST_MAINTENANCE", Some(3600)),
    ];
    for (value, body, seconds) in cases {
        let told = value.read(body).expect("a value");
        let expected = seconds.map(|s| When::In(Duration::from_secs(s)));
        assert_eq!(told.map(|a| a.when), expected, "{value:?} {body:?}");
    }
    for (value, body) in [(Preempted, ""), (Preempted, "NONE"), (Maintenance, "TRUE")] {
        assert!(value.read(body).is_err(), "{value:?} {body:?}");
    }
}

#[test]
fn an_etag_that_could_change_the_question_is_not_used() {
    assert!(is_plain("411261ca6c9e4ff6"));
    for odd in ["", "a&b=c", "a b", "\"quoted\"", &"a".repeat(65)] {
        assert!(!is_plain(odd), "{odd:?}");
    }
}
