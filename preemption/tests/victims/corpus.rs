//! Every row of the recorded corpus: the same victims and errors.

use winddown_preemption::Strategy;

use crate::cases::{Case, nodes, rows};

#[test]
fn every_row_has_the_victims_of_the_kubelet_in_its_order_or_its_error() {
    for case in rows().iter().chain(nodes()) {
        let (victims, error) = match case.select(Strategy::Distance) {
            Ok(selection) => (selection.victims, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let names: Vec<&str> = victims.iter().map(|place| &**case.pods[*place].name()).collect();
        assert_eq!(names, case.victims, "{}", case.id);
        assert_eq!(error, case.error, "{}", case.id);
    }
}

/// Work is counted in pods examined. A critical pod waits while it is done, and an increase may mean that a
/// bound no longer holds. A commit that changes the number must say why.
#[test]
fn the_work_is_what_it_was_on_every_machine() {
    let work = |case: &Case, strategy| case.select(strategy).map_or(0, |found| found.work);
    let all = |strategy| rows().iter().map(|case| work(case, strategy)).sum::<u64>();
    assert_eq!((all(Strategy::Distance), all(Strategy::Minimal)), (37_201, 417_198));
    let full = [(1_036, 91_041), (6_068, 224_083), (26_462, 915_212)];
    for (case, (distance, minimal)) in nodes().iter().zip(full) {
        assert_eq!(work(case, Strategy::Distance), distance, "{}", case.id);
        assert_eq!(work(case, Strategy::Minimal), minimal, "{}", case.id);
    }
}
