//! The time that a plan keeps for the work of plug-ins.

use winddown_shared::{PluginName, ShutdownPoint, ShutdownWork};

use super::*;
use crate::plan::WorkPlace;
use crate::plan_with;

fn work(point: ShutdownPoint, bound: Option<Duration>) -> ShutdownWork {
    let name = PluginName::new("tester");
    ShutdownWork::new(name, "work", point, bound, |_| std::future::ready(Ok(())))
}

#[test]
fn the_time_for_work_is_kept_from_the_pods_where_it_is_done() {
    let pods = [pod("app", Some(0), Some(60)), pod("dns", Some(CRITICAL_PRIORITY), Some(60))];
    let all = [
        work(ShutdownPoint::BeforeRelease, Some(secs(1))),
        work(ShutdownPoint::Before(CRITICAL_PRIORITY), Some(secs(2))),
        // Together with the one before.
        work(ShutdownPoint::After(0), Some(secs(1))),
        work(ShutdownPoint::BeforePods, Some(secs(3))),
        work(ShutdownPoint::BeforeRelease, None),
    ];
    let policy = two_fields(60, 20);
    let with = plan_with(&pods, &policy, &all, None);
    assert_eq!((allowed(&with), ends(&with)), (vec![34, 20], vec![37, 59]));
    assert_eq!(with.guaranteed(), [secs(34), secs(20)]);
    assert_eq!(ends(&plan(&pods, &policy, None)), [40, 60]);
    let of_role = plan_with(&pods, &Policy::by_role(secs(60), secs(20)).unwrap(), &all, None);
    assert_eq!(ends(&of_role), [37, 59, 59, 59, 59]);
}

#[test]
fn work_behind_a_group_comes_before_what_is_unknown() {
    let pods = [pod("app", Some(0), Some(60))];
    let mut plan = plan_with(
        &pods,
        &two_fields(60, 20),
        &[work(ShutdownPoint::After(i32::MAX), Some(secs(4)))],
        None,
    );
    assert_eq!(plan.work[0].place, WorkPlace::Before(2));
    plan.ensure_unknown(true);
    assert_eq!((plan.take_work(WorkPlace::Before(1)).len(), plan.groups.len()), (0, 3));
    assert_eq!(plan.take_work(WorkPlace::Before(2)).len(), 1);
}

fn any_point() -> impl Strategy<Value = ShutdownPoint> {
    prop_oneof![
        Just(ShutdownPoint::BeforePods),
        any::<i32>().prop_map(ShutdownPoint::Before),
        any::<i32>().prop_map(ShutdownPoint::After),
        Just(ShutdownPoint::AfterPods),
        Just(ShutdownPoint::BeforeRelease),
    ]
}

proptest! {
    #[test]
    fn work_and_pods_fit_into_the_time_and_work_takes_a_quarter_at_most(
        points in prop::collection::vec((any_point(), 0_u64..100_000), 0..8),
        priorities in prop::collection::vec((any::<i32>(), 1_i64..100), 0..8),
        available in prop::option::of(0_u64..100),
        by_role in any::<bool>(),
    ) {
        let policy = match by_role {
            true => Policy::by_role(secs(60), secs(20)).unwrap(),
            false => two_fields(60, 20),
        };
        let pods: Vec<Pod> = priorities
            .iter()
            .enumerate()
            .map(|(i, (priority, grace))| pod(&format!("p{i}"), Some(*priority), Some(*grace)))
            .collect();
        let all: Vec<_> =
            points.iter().map(|(at, ms)| work(*at, Some(Duration::from_millis(*ms)))).collect();
        let plan = plan_with(&pods, &policy, &all, available.map(secs));
        prop_assert!(plan.kept_for_work() <= plan.deadline / 4);
        let mut time = plan.endpoint_drain;
        for (index, group) in plan.groups.iter().enumerate() {
            time += plan.kept_at(WorkPlace::Before(index));
            if !group.pods.is_empty() {
                time += group.allowed;
                prop_assert!(time <= group.latest_end, "{index}: {time:?} {plan:?}");
            }
        }
        time += plan.kept_at(WorkPlace::Before(plan.groups.len())) + plan.kept_after_pods();
        prop_assert!(time <= plan.deadline, "{time:?} {plan:?}");
        if points.is_empty() {
            prop_assert_eq!(ends(&plan), ends(&super::plan(&pods, &policy, available.map(secs))));
        }
    }
}
