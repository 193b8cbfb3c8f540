use winddown_control::api::{ApiState, ClusterStatus, DrainStatus, LastBootStatus, Protection};

use super::*;

/// The verdict on a status that says nothing but what `change` makes of it.
fn verdict(condition: WaitCondition, change: impl FnOnce(&mut Status)) -> Result<String, String> {
    let time = "2026-11-20T12:00:00Z".parse().unwrap();
    let mut status = Status { time, ..Status::default() };
    change(&mut status);
    judge(condition, &status)
}

#[test]
fn the_lock_is_waited_for_until_it_is_held() {
    let waiting = verdict(WaitCondition::Lock, |status| {
        status.lock.state = LockState::Waiting;
        status.lock.why = Some("logind does not answer".to_owned());
    });
    let why = "the shutdown lock is not held: logind does not answer".to_owned();
    assert_eq!(waiting, Err(why));
    let released = verdict(WaitCondition::Lock, |status| status.lock.state = LockState::Released);
    assert!(released.is_err());
    assert!(verdict(WaitCondition::Lock, |status| status.lock.state = LockState::Held).is_ok());
}

#[test]
fn a_node_is_protected_only_if_the_agent_says_so() {
    let with = |state: ProtectionState| {
        verdict(WaitCondition::Protected, |status| {
            let text = "winddown holds the lock".to_owned();
            status.protection = Some(Protection { state, text, ..Protection::default() });
        })
    };
    assert_eq!(with(ProtectionState::Protected), Ok("winddown holds the lock".to_owned()));
    for other in [ProtectionState::Limited, ProtectionState::Unprotected, ProtectionState::Unknown]
    {
        assert!(with(other).is_err(), "{other:?}");
    }
    assert!(verdict(WaitCondition::Protected, |_| ()).is_err());
}

/// Such an agent terminates the pods through the container runtime, without order: that is to be known before the
/// kubelet's own graceful shutdown is switched off.
#[test]
fn a_companion_that_has_not_got_its_pods_from_the_api_server_is_waited_for_unless_that_is_merely_away()
 {
    let of = |state_of: ProtectionState, state: ApiState, why: Option<&str>, message: &str| {
        verdict(WaitCondition::Protected, |status| {
            let text = "the lock is held".to_owned();
            status.protection = Some(Protection { state: state_of, text, ..Protection::default() });
            let mut cluster = ClusterStatus { mode: "companion".to_owned(), ..Default::default() };
            cluster.api.state = state;
            cluster.api.why = why.map(str::to_owned);
            status.cluster = Some(cluster);
            status.runtime.message = message.to_owned();
            status.runtime.healthy = message.is_empty();
            status.pods_unknown = message.contains("yet");
        })
    };
    let with = |state, why, message| of(ProtectionState::Protected, state, why, message);
    assert_eq!(with(ApiState::Connected, None, ""), Ok("the lock is held".to_owned()));
    let away =
        with(ApiState::Unreachable, Some("nothing listens there"), "no list of the pods yet");
    let wanted = "the lock is held; BUT the API server cannot be reached: nothing listens there";
    assert_eq!(away, Ok(wanted.to_owned()));
    for state in [ApiState::Unsigned, ApiState::Unauthorized, ApiState::Untrusted] {
        let told = with(state, Some("it expired"), "").unwrap_err();
        assert!(told.ends_with(": it expired"), "{told}");
    }
    let told = with(ApiState::Unknown, None, "no list of the pods yet").unwrap_err();
    assert_eq!(told, "the API server has not answered yet");
    let told = with(ApiState::Connected, None, "no list of the pods yet").unwrap_err();
    assert_eq!(told, "the kubelet's pods: no list of the pods yet");
    let failing = with(ApiState::Connected, None, "as last known").unwrap();
    assert_eq!(failing, "the lock is held; BUT the kubelet's pods: as last known");
    let told = of(ProtectionState::Limited, ApiState::Connected, None, "as last known");
    assert!(told.is_err(), "it refuses to list them");
    let told = of(ProtectionState::Limited, ApiState::Unauthorized, Some("it expired"), "");
    let wanted = "the node is protected only in part: the lock is held (the API server rejects the credentials: it expired)";
    assert_eq!(told, Err(wanted.to_owned()));
}

#[test]
fn a_node_is_drained_when_no_pod_is_left_and_none_is_admitted() {
    let with = |closed: &[ClosedBy], drain: Option<DrainStatus>| {
        verdict(WaitCondition::Drained, |status| {
            status.admission_closed_by = closed.to_vec();
            status.drain = drain;
        })
    };
    let to_go = |pods_remaining, pods_unknown| {
        Some(DrainStatus { pods_remaining, pods_unknown, ..DrainStatus::default() })
    };
    assert_eq!(with(&[], None), Err("the node is not being drained".to_owned()));
    assert!(with(&[ClosedBy::Shutdown], None).is_err());
    assert_eq!(with(&[ClosedBy::Drain], to_go(3, false)), Err("pods that still run: 3".to_owned()));
    assert!(with(&[ClosedBy::Drain], to_go(0, true)).is_err());
    assert!(with(&[ClosedBy::Drain], None).is_ok());
}

#[test]
fn a_report_is_waited_for_until_the_agent_knows_how_the_node_went_down() {
    assert!(verdict(WaitCondition::Report, |_| ()).is_err());
    let last = LastBootStatus { text: "Clean shutdown".to_owned(), ..LastBootStatus::default() };
    let known = verdict(WaitCondition::Report, |status| status.last_boot = Some(last));
    assert_eq!(known, Ok("Clean shutdown".to_owned()));
}

#[test]
fn a_wait_for_a_report_that_was_in_vain_is_not_sent_to_the_status_which_says_no_more() {
    let condition = WaitCondition::Report;
    let args = WaitArgs { condition, timeout: std::time::Duration::from_secs(1) };
    let hint = LastAnswer::Unmet("it is not known".to_owned()).after(&args).hint;
    assert!(hint.contains("journalctl -u winddown") && !hint.contains("status"), "{hint}");
}
