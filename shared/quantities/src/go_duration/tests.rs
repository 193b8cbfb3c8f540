use std::time::Duration;

use proptest::prelude::*;

use super::{DurationError, GoDuration, GoDurationRangeError, parse_duration};

fn go(text: &str) -> GoDuration {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn go_durations_print_as_go_prints_them() {
    for (nanos, text) in [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1µs"),
        (2_200_000, "2.2ms"),
        (3_300_000_000, "3.3s"),
        (245_000_000_000, "4m5s"),
        (245_001_000_000, "4m5.001s"),
        (18_367_001_000_000, "5h6m7.001s"),
        (480_000_000_001, "8m0.000000001s"),
        (i64::MAX, "2562047h47m16.854775807s"),
        (i64::MIN, "-2562047h47m16.854775808s"),
    ] {
        assert_eq!(GoDuration::from_nanos(nanos).to_string(), text);
        assert_eq!(go(text).as_nanos(), nanos);
    }
}

#[test]
fn go_durations_read_as_go_reads_them() {
    for (text, nanos) in [
        ("-5.6s", -5_600_000_000),
        ("+5.s", 5_000_000_000),
        ("12\u{b5}s", 12_000),
        ("12\u{3bc}s", 12_000),
        ("39h9m14.425s", 140_954_425_000_000),
        ("0.3333333333333333333h", 1_200_000_000_000),
        ("0.100000000000000000000h", 360_000_000_000),
        ("0.830103483285477580700h", 2_988_372_539_827),
        ("9007199254740993ns", 9_007_199_254_740_993),
        ("-9223372036854775808ns", i64::MIN),
        ("-9223372036854775.808us", i64::MIN),
        ("-2562047h47m16.854775808s", i64::MIN),
    ] {
        assert_eq!(go(text).as_nanos(), nanos, "{text}");
    }
}

#[test]
fn text_that_is_no_go_duration_is_refused_with_what_was_expected() {
    let long = "is too long: at most 2562047h47m16.854775807s fit";
    for (text, error) in [
        ("", "empty duration: expected a number with a unit, such as 90s or 1m30s".to_owned()),
        ("-", "empty duration: expected a number with a unit, such as 90s or 1m30s".to_owned()),
        (
            "3",
            "duration \"3\" has a number without a unit: expected ns, us, ms, s, m or h".to_owned(),
        ),
        (
            "1d",
            "duration \"1d\" has the unknown unit \"d\": expected ns, us, ms, s, m or h".to_owned(),
        ),
        (
            "1m 30s",
            "duration \"1m 30s\" has the unknown unit \"m \": expected ns, us, ms, s, m or h"
                .to_owned(),
        ),
        ("+.s", "duration \"+.s\": expected a number at \".s\", as in 90s or 1m30s".to_owned()),
        ("9223372036854775810ns", format!("duration \"9223372036854775810ns\" {long}")),
        ("9223372036854775808ns", format!("duration \"9223372036854775808ns\" {long}")),
        ("-9223372036854775809ns", format!("duration \"-9223372036854775809ns\" {long}")),
        ("9223372036854776us", format!("duration \"9223372036854776us\" {long}")),
        ("3000000h", format!("duration \"3000000h\" {long}")),
    ] {
        assert_eq!(text.parse::<GoDuration>().unwrap_err().to_string(), error);
    }
}

#[test]
fn a_sum_that_wraps_to_nothing_is_too_long() {
    let text = "9223372036854775808ns9223372036854775808ns";
    let error = text.parse::<GoDuration>().unwrap_err();
    assert!(matches!(error, super::GoDurationError::TooLong { .. }), "{error:?}");
    assert!(matches!(parse_duration(text), Err(DurationError::TooLong { .. })));
    let lowest = "-9223372036854775807ns1ns".parse::<GoDuration>();
    assert_eq!(
        lowest.map(|duration| duration.to_string()).as_deref(),
        Ok("-2562047h47m16.854775808s")
    );
}

#[test]
fn negative_and_endless_durations_do_not_convert() {
    assert_eq!(Duration::try_from(go("1m30s")), Ok(Duration::from_secs(90)));
    let error = Duration::try_from(go("-1s")).unwrap_err();
    assert_eq!(error, GoDurationRangeError::Negative(go("-1s")));
    assert_eq!(error.to_string(), "duration -1s is negative: expected 0s or more");
    assert_eq!(GoDuration::try_from(Duration::from_secs(90)), Ok(go("1m30s")));
    assert!(GoDuration::try_from(Duration::MAX).is_err());
}

#[test]
fn json_strings_are_read_and_written() {
    assert_eq!(serde_json::from_str::<GoDuration>("\"90s\"").unwrap(), go("1m30s"));
    assert_eq!(serde_json::to_string(&go("90s")).unwrap(), "\"1m30s\"");
    assert!(serde_json::from_str::<GoDuration>("90").is_err());
}

#[test]
fn a_configuration_takes_both_forms() {
    for (text, millis) in [
        ("1m30s", 90_000),
        ("1min 30s", 90_000),
        ("1m 30s", 90_000),
        ("2 hours", 7_200_000),
        ("1.5h", 5_400_000),
        ("1day", 86_400_000),
        ("1d 2h", 93_600_000),
        ("1week", 604_800_000),
        ("250ms", 250),
        (" 5s ", 5_000),
        ("5 s", 5_000),
        ("0", 0),
        ("0s", 0),
        ("-0", 0),
    ] {
        assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text:?}");
    }
}

#[test]
fn a_configuration_takes_no_month_year_sign_or_bare_number() {
    let calendar = "months and years are not accepted, write m for minutes or count days";
    let bare = "has a number without a unit: expected one such as 90s or 1m30s";
    let malformed = "is not one: expected one such as 90s, 1m30s or \"1min 30s\"";
    let long = "is too long: at most 2562047h47m16.854775807s fit";
    for (text, error) in [
        ("", "empty duration: expected one such as 90s, 1m30s or \"1min 30s\"".to_owned()),
        ("  ", "empty duration: expected one such as 90s, 1m30s or \"1min 30s\"".to_owned()),
        ("-1s", "duration \"-1s\" is negative: expected 0s or more".to_owned()),
        ("-1min 3s", "duration \"-1min 3s\" is negative: expected 0s or more".to_owned()),
        ("2M", format!("duration \"2M\" has the unit \"M\": {calendar}")),
        ("1s 2months", format!("duration \"1s 2months\" has the unit \"months\": {calendar}")),
        ("1 Year", format!("duration \"1 Year\" has the unit \"Year\": {calendar}")),
        ("1y", format!("duration \"1y\" has the unit \"y\": {calendar}")),
        ("30", format!("duration \"30\" {bare}")),
        ("1m 30", format!("duration \"1m 30\" {bare}")),
        ("1m30", format!("duration \"1m30\" {bare}")),
        ("1 30s", format!("duration \"1 30s\" {bare}")),
        ("soon", format!("duration \"soon\" {malformed}")),
        ("1h-30m", format!("duration \"1h-30m\" {malformed}")),
        ("1fortnight", format!("duration \"1fortnight\" {malformed}")),
        ("9999999h", format!("duration \"9999999h\" {long}")),
        ("9999999 hours", format!("duration \"9999999 hours\" {long}")),
        ("99999999999999999999 days", format!("duration \"99999999999999999999 days\" {long}")),
    ] {
        assert_eq!(parse_duration(text).map_err(|error| error.to_string()), Err(error));
    }
}

proptest! {
    #[test]
    fn what_is_printed_reads_back_the_same(
        nanos: i64,
        small in -10_000_000_000_i64..10_000_000_000,
    ) {
        for duration in [nanos, small].map(GoDuration::from_nanos) {
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }
    }

    #[test]
    fn both_parsers_agree_where_go_has_an_answer(nanos in 0..=i64::MAX) {
        let duration = GoDuration::from_nanos(nanos);
        let parsed = parse_duration(&duration.to_string());
        prop_assert_eq!(parsed, Ok(Duration::from_nanos(nanos.unsigned_abs())));
    }

    #[test]
    fn whatever_the_unit_a_month_or_year_is_refused(
        count in 1_u32..100,
        unit in "(M|months?|years?|yrs?|y)",
    ) {
        let answer = parse_duration(&format!("{count}{unit}"));
        let refused = matches!(answer, Err(DurationError::Calendar { .. }));
        prop_assert!(refused, "{:?}", answer);
    }
}
