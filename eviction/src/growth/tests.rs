use super::*;
use crate::tests::{memory, pod};

/// The growth rates of `web` after each measurement, given as the time in ms and the usage.
fn rates(measured: &[(u64, Option<&str>)]) -> Vec<Option<i64>> {
    let (start, pods) = (Instant::now(), [pod("web", 0, &[])]);
    let mut growth = Growth::default();
    let measure = |&(ms, used): &(u64, Option<&str>)| {
        growth.note(&pods, &[used.map(memory)], start + Duration::from_millis(ms));
        growth.of(pods[0].uid())
    };
    measured.iter().map(measure).collect()
}

#[test]
fn growth_is_bytes_per_second_between_two_measurements_that_are_neither_too_near_nor_too_old() {
    const MIB: i64 = 1 << 20;
    for (what, measured, expected) in [
        ("the first says nothing", vec![(0, Some("10Mi"))], vec![None]),
        (
            "up and down",
            vec![(0, Some("10Mi")), (2000, Some("30Mi")), (3000, Some("20Mi"))],
            vec![None, Some(10 * MIB), Some(-10 * MIB)],
        ),
        (
            "too near: the rate before it stands",
            vec![
                (0, Some("10Mi")),
                (499, Some("90Mi")),
                (1000, Some("20Mi")),
                (1100, Some("90Mi")),
            ],
            vec![None, None, Some(10 * MIB), Some(10 * MIB)],
        ),
        ("too old", vec![(0, Some("10Mi")), (30_000, Some("90Mi"))], vec![None, None]),
        (
            "not measured in between",
            vec![(0, Some("10Mi")), (1000, None), (2000, Some("30Mi"))],
            vec![None, None, Some(10 * MIB)],
        ),
    ] {
        assert_eq!(rates(&measured), expected, "{what}");
    }
}
