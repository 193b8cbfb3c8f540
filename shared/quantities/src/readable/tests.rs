use super::*;

#[test]
fn durations_read_as_people_write_them() {
    let table = [
        (0.0, "0s"),
        (0.0004, "1ms"),
        (0.35, "350ms"),
        (0.9996, "1s"),
        (1.0, "1s"),
        (3.24, "3.2s"),
        (30.0, "30s"),
        (59.96, "1m"),
        (60.0, "1m"),
        (90.0, "1m30s"),
        (3600.0, "1h"),
        (7500.0, "2h05m"),
        (f64::NAN, "?"),
        (-1.0, "?"),
    ];
    for (input, text) in table {
        assert_eq!(seconds(input), text, "{input}");
    }
}

#[test]
fn durations_that_are_compared_stay_seconds() {
    let table =
        [(0, "0 s"), (1, "1 ms"), (99, "99 ms"), (100, "0.1 s"), (8170, "8.2 s"), (90_000, "90 s")];
    for (millis, text) in table {
        assert_eq!(in_seconds(Duration::from_millis(millis)), text, "{millis} ms");
    }
}

#[test]
fn ages_read_as_kubectl_writes_them() {
    let table = [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (600, "10m"),
        (10_800, "3h"),
        (11_520, "3h12m"),
        (28_800, "8h"),
        (172_800, "2d"),
        (443_000, "5d3h"),
        (700_000, "8d"),
        (63_072_000, "2y"),
    ];
    for (input, text) in table {
        assert_eq!(age(input), text, "{input}");
    }
}
