use super::*;

#[test]
fn an_answer_of_the_api_server_itself_is_no_outage_and_that_of_a_load_balancer_is() {
    let table = [
        (200, true, AnswerVerdict::Up),
        (200, false, AnswerVerdict::Up),
        (403, true, AnswerVerdict::Up),
        (404, false, AnswerVerdict::Up),
        (429, true, AnswerVerdict::Up),
        (401, true, AnswerVerdict::Unauthorized),
        (401, false, AnswerVerdict::Unauthorized),
        (500, false, AnswerVerdict::Up),
        (503, true, AnswerVerdict::Up),
        (502, false, AnswerVerdict::Down("the answer is 502 Bad Gateway".into())),
        (503, false, AnswerVerdict::Down("the answer is 503 Service Unavailable".into())),
        (504, false, AnswerVerdict::Down("the answer is 504 Gateway Timeout".into())),
    ];
    for (status, signed, verdict) in table {
        assert_eq!(judge(StatusCode::from_u16(status).unwrap(), signed), verdict, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_one_change_however_many_requests_fail() {
    let health = ConnectionHealth::new(Instant::now());
    let mut watch = health.watch();
    health.set(ConnectionState::Connected);
    assert!(watch.has_changed().unwrap());
    watch.mark_unchanged();

    tokio::time::advance(Duration::from_secs(5)).await;
    let down_at = Instant::now();
    for why in ["refused", "silent", "refused"] {
        health.set(ConnectionState::Unreachable { why: why.into() });
        tokio::time::advance(Duration::from_secs(5)).await;
    }
    assert_eq!(
        *watch.borrow_and_update(),
        ApiHealth { state: ConnectionState::Unreachable { why: "refused".into() }, since: down_at }
    );
    assert_eq!(health.last_contact(), Some(down_at - Duration::from_secs(5)));

    health.set(ConnectionState::Connected);
    health.set(ConnectionState::Connected);
    assert!(watch.borrow_and_update().is_connected());
    assert_eq!(health.last_contact(), Some(Instant::now()));
    assert!(!watch.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_server_is_unreachable_if_nothing_was_answered_while_a_caller_waited_long_enough() {
    let server = Uri::from_static("https://10.0.0.1");
    // Seconds until another request is answered, if one is, and until the caller gives up.
    for (answered, gave_up, reachable) in
        [(None, 1, true), (None, 2, false), (None, 10, false), (Some(3), 7, true)]
    {
        let health = ConnectionHealth::new(Instant::now());
        health.set(ConnectionState::Connected);
        tokio::time::advance(Duration::from_secs(60)).await;
        let since = Instant::now();
        if let Some(answered) = answered {
            tokio::time::advance(Duration::from_secs(answered)).await;
            health.set(ConnectionState::Connected);
        }
        tokio::time::advance(Duration::from_secs(gave_up) - since.elapsed()).await;
        health.gave_up(since, &server);
        assert_eq!(health.watch().borrow().is_connected(), reachable, "{answered:?} {gave_up}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_clocks_are_compared_once_a_minute() {
    let health = ConnectionHealth::new(Instant::now());
    let ours: Timestamp = "1994-11-06T08:49:00Z".parse().unwrap();
    health.clock(Some("not a date"), || ours);
    health.clock(None, || ours);
    assert_eq!(health.api_time(), None);

    health.clock(Some("Sun, 06 Nov 1994 08:49:37 GMT"), || ours);
    assert_eq!(health.api_time(), Some("1994-11-06T08:49:37Z".parse().unwrap()));
    health.clock(Some("Sun, 06 Nov 1994 09:49:00 GMT"), || panic!("not yet"));

    tokio::time::advance(COMPARE_EVERY).await;
    health.clock(Some("Sun, 06 Nov 1994 07:49:00 GMT"), || ours);
    assert_eq!(health.api_time(), Some("1994-11-06T07:49:00Z".parse().unwrap()));
}

/// A step of this node's clock between two comparisons would end the grace periods of deleted pods.
#[tokio::test(start_paused = true)]
async fn the_servers_time_goes_on_from_the_comparison_whatever_this_node_s_clock_does() {
    let health = ConnectionHealth::new(Instant::now());
    assert_eq!(health.api_time(), None);
    let behind: Timestamp = "1970-01-01T00:00:00Z".parse().unwrap();
    health.clock(Some("Sun, 06 Nov 1994 08:49:37 GMT"), || behind);
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(health.api_time(), Some("1994-11-06T08:49:57Z".parse().unwrap()));
}
