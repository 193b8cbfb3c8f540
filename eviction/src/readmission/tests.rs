use std::time::Duration;
use winddown_shared::PressureCondition;

use winddown_shared::testing::static_pod;

use super::*;

fn memory() -> Conditions {
    [PressureCondition::Memory].into_iter().collect()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_pod_comes_back_when_its_time_and_the_pressure_are_over() {
    let now = Instant::now();
    let mut returns = Readmission::default();
    returns.note(&static_pod("u", "web"), PressureCondition::Memory, now);
    assert!(returns.due(Conditions::NONE, now + secs(9)).is_empty());
    assert!(returns.due(memory(), now + secs(60)).is_empty());
    let disk = [PressureCondition::Disk].into_iter().collect();
    assert_eq!(returns.due(disk, now + secs(60)).len(), 1);
    assert!(returns.due(Conditions::NONE, now + secs(600)).is_empty(), "once");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_ended_again_stays_away_longer_also_under_another_uid() {
    let now = Instant::now();
    let mut returns = Readmission::default();
    returns.note(&static_pod("u1", "web"), PressureCondition::Memory, now);
    returns.note(&static_pod("u2", "web"), PressureCondition::Memory, now);
    let evicted: Vec<_> =
        returns.evicted().map(|(pod, back)| (pod.uid().clone(), back - now)).collect();
    assert_eq!(evicted, [(static_pod("u2", "web").uid().clone(), secs(20))]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_asked_to_end_once_more_is_sent_away_once() {
    let now = Instant::now();
    let mut returns = Readmission::default();
    returns.note(&static_pod("u", "web"), PressureCondition::Memory, now);
    returns.note(&static_pod("u", "web"), PressureCondition::Memory, now + secs(5));
    assert_eq!(returns.due(Conditions::NONE, now + secs(10)).len(), 1);
    assert_eq!(returns.evicted().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_evicted_for_two_conditions_waits_until_both_are_over() {
    let now = Instant::now();
    let mut returns = Readmission::default();
    returns.note(&static_pod("u", "web"), PressureCondition::Memory, now);
    returns.note(&static_pod("u", "web"), PressureCondition::Disk, now + secs(5));
    assert!(returns.due(PressureCondition::Disk.into(), now + secs(60)).is_empty());
    assert!(returns.due(memory(), now + secs(60)).is_empty());
    assert_eq!(returns.due(Conditions::NONE, now + secs(60)).len(), 1);
}
