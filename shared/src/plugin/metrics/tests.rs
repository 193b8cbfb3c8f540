use super::*;

#[test]
fn a_label_has_the_values_it_was_given_and_one_for_all_others() {
    let looks = Counter::with_label("max_age_looks", "Looks", "found", &["old", "none"]);
    let shown = || PluginMetric::from(&looks).samples().collect::<Vec<_>>();
    assert_eq!(shown(), [("old", MetricValue::Count(0)), ("none", MetricValue::Count(0))]);
    looks.with_label_value("none").add(2);
    for unknown in ["a", "b", "c"] {
        looks.with_label_value(unknown).inc();
    }
    assert_eq!(shown()[1..], [("none", MetricValue::Count(2)), ("other", MetricValue::Count(3))]);

    let oldest = Gauge::new("max_age_oldest_seconds", "The oldest");
    oldest.set(1.5);
    let shown: Vec<_> = PluginMetric::from(&oldest).samples().collect();
    assert_eq!(shown, [("", MetricValue::Level(1.5))]);
}
