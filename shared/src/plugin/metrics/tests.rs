use super::*;

#[test]
fn a_counter_starts_from_zero_and_a_gauge_has_what_was_set_last() {
    let looks = Counter::new("max_age_looks", "Looks");
    let shown = || PluginMetric::from(&looks).value();
    assert_eq!(shown(), MetricValue::Count(0));
    looks.add(2);
    looks.clone().inc();
    assert_eq!(shown(), MetricValue::Count(3));

    let oldest = Gauge::new("max_age_oldest_seconds", "The oldest");
    oldest.set(2.0);
    oldest.set(1.5);
    assert_eq!(PluginMetric::from(&oldest).value(), MetricValue::Level(1.5));
}
