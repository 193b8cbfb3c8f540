use winddown_shared::fake::static_pod;

use super::*;

fn memory() -> Conditions {
    [Condition::Memory].into_iter().collect()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn a_pod_comes_back_when_its_time_and_the_pressure_are_over() {
    let now = Instant::now();
    let mut returns = Returns::default();
    returns.note(&static_pod("u", "web"), Condition::Memory, now);
    assert!(returns.due(Conditions::NONE, now + secs(9)).is_empty());
    assert!(returns.due(memory(), now + secs(60)).is_empty());
    let disk = [Condition::Disk].into_iter().collect();
    assert_eq!(returns.due(disk, now + secs(60)).len(), 1);
    assert!(returns.due(Conditions::NONE, now + secs(600)).is_empty(), "once");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_ended_again_and_again_stays_away_longer_up_to_five_minutes() {
    let mut now = Instant::now();
    let mut returns = Returns::default();
    let mut waits = Vec::new();
    for round in 0..8 {
        // Its manifest may have changed: another UID, the same name.
        returns.note(&static_pod(&format!("u{round}"), "web"), Condition::Memory, now);
        let (_, back) = returns.away().next().unwrap();
        waits.push((back - now).as_secs());
        now = back;
        assert_eq!(returns.due(Conditions::NONE, now).len(), 1);
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
    now += FORGIVEN;
    returns.note(&static_pod("u", "web"), Condition::Memory, now);
    assert_eq!(returns.away().next().unwrap().1 - now, FIRST, "long ago is forgotten");
}
