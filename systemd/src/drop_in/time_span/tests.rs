use std::time::Duration;

use super::parse_time_span;

/// Answers of `systemd-analyze timespan` (systemd 252), in microseconds.
const ANSWERS: [(&str, Option<u64>); 52] = [
    ("5", Some(5_000_000)),
    ("5s", Some(5_000_000)),
    ("1min 30s", Some(90_000_000)),
    ("1m30s", Some(90_000_000)),
    ("1h30min", Some(5_400_000_000)),
    ("infinity", Some(u64::MAX)),
    (" infinity ", Some(u64::MAX)),
    ("infinity s", None),
    ("5 6", Some(11_000_000)),
    ("12.34.56", None),
    ("12.34 .56", Some(12_900_000)),
    ("12.34s.56", Some(12_900_000)),
    (".5", Some(500_000)),
    ("3.", None),
    ("3.sec", None),
    ("3. 1", None),
    ("0.-0", None),
    ("-1", None),
    ("+5", Some(5_000_000)),
    ("5ms", Some(5_000)),
    ("5us", Some(5)),
    ("5µs", Some(5)),
    ("1M", Some(2_629_800_000_000)),
    ("1month", Some(2_629_800_000_000)),
    ("1y", Some(31_557_600_000_000)),
    ("1w", Some(604_800_000_000)),
    ("2d", Some(172_800_000_000)),
    ("1.5h", Some(5_400_000_000)),
    ("0.0000005s", Some(0)),
    ("18446744073709551615us", None),
    ("9223372036854775807us", Some(9_223_372_036_854_775_807)),
    ("9223372036854775808us", None),
    ("584554y", None),
    ("5 sek", None),
    ("5S", None),
    ("5min5", Some(305_000_000)),
    ("", None),
    (" ", None),
    ("s", None),
    ("1.5", Some(1_500_000)),
    ("5hr", Some(18_000_000_000)),
    ("1 week 2 days", Some(777_600_000_000)),
    ("3.+1", None),
    ("5,5", None),
    ("1e3", None),
    ("0", Some(0)),
    ("0.1us", Some(0)),
    ("5\ts", Some(5_000_000)),
    ("1minutes", Some(60_000_000)),
    ("1mins", None),
    ("5 s s", None),
    ("99999999999999999999", None),
];

#[test]
fn time_spans_read_as_systemd_reads_them() {
    for (text, micros) in ANSWERS {
        let expected = micros.map(Duration::from_micros);
        assert_eq!(parse_time_span(text), expected, "{text:?}");
    }
}
