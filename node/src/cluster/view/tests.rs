use std::sync::Arc;
use std::time::Duration;

use super::*;

#[test]
fn the_api_server_is_said_to_be_as_it_is_and_why() {
    let why = || Arc::from("no route");
    for (state, said) in [
        (ConnectionState::Unknown, "unknown"),
        (ConnectionState::Connected, "connected"),
        (ConnectionState::Unreachable { why: why() }, "unreachable"),
        (ConnectionState::Unauthorized { why: why() }, "unauthorized"),
        (ConnectionState::Unsigned { why: why() }, "unsigned"),
        (ConnectionState::Untrusted { why: why() }, "untrusted"),
    ] {
        let status = api_status(&state, Some(WallTime::UNIX_EPOCH));
        assert_eq!(serde_json::to_value(status.state).unwrap(), said);
        let has_reason = !matches!(state, ConnectionState::Unknown | ConnectionState::Connected);
        assert_eq!(status.why.as_deref(), has_reason.then_some("no route"), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_moment_of_the_agents_own_clock_is_told_by_the_wall_clock() {
    let wall = WallClock::fixed(WallTime::from_second(1000).unwrap());
    let then = Instant::now();
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(at(then, &wall), Some(WallTime::from_second(970).unwrap()));
}
