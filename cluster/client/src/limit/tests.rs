use super::*;

#[test]
fn what_the_nodes_state_depends_on_is_urgent_and_nothing_else() {
    let urgent = [
        (Method::PATCH, "/api/v1/namespaces/shop/pods/web-0/status"),
        (Method::PUT, "/api/v1/namespaces/shop/pods/web-0/status"),
        (Method::DELETE, "/api/v1/namespaces/shop/pods/web-0"),
        (Method::POST, "/api/v1/namespaces/shop/pods/web-0/eviction"),
        (Method::GET, "/version"),
        (Method::GET, "/api/v1/pods"),
        (Method::PATCH, "/api/v1/nodes/n1/status"),
        (Method::PATCH, "/api/v1/nodes/n1"),
        (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"),
        (Method::POST, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"),
    ];
    for (method, path) in urgent {
        assert_eq!(urgency(&method, path), Urgency::Urgent, "{method} {path}");
    }
    let ordinary = [
        (Method::GET, "/api/v1/nodes"),
        (Method::GET, "/api/v1/namespaces/shop/pods/web-0/status"),
        (Method::GET, "/api/v1/namespaces/shop/secrets/key"),
        (Method::POST, "/api/v1/namespaces/shop/pods"),
        (Method::POST, "/api/v1/nodes"),
        (Method::PATCH, "/api/v1/namespaces/shop/pods/web-0"),
        (Method::DELETE, "/api/v1/namespaces/shop/pods"),
        (Method::DELETE, "/api/v1/namespaces/shop/configmaps/pods"),
        (Method::POST, "/api/v1/namespaces/shop/serviceaccounts/x/token"),
        (Method::PATCH, "/apis/x.io/v1/namespaces/shop/pods/web-0/status"),
        (Method::PATCH, "/"),
        (Method::PATCH, "/api/v1/namespaces"),
    ];
    for (method, path) in ordinary {
        assert_eq!(urgency(&method, path), Urgency::Ordinary, "{method} {path}");
    }
    let event = "/apis/events.k8s.io/v1/namespaces/shop/events";
    assert_eq!(urgency(&Method::POST, event), Urgency::Late);
}

#[tokio::test(start_paused = true)]
async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
    let limits = RequestLimits::new(10, 3, Instant::now());
    let start = Instant::now();
    let mut sent = Vec::new();
    for _ in 0..6 {
        let _ = limits.admit(Urgency::Ordinary).await;
        sent.push(start.elapsed().as_millis());
    }
    assert_eq!(sent[..3], [0, 0, 0]);
    for (sent, due) in sent[3..].iter().zip([100, 200, 300]) {
        assert!((due..due + 5).contains(sent), "{sent} instead of {due}");
    }
}

#[tokio::test(start_paused = true)]
async fn urgent_requests_never_wait_and_delay_the_others_by_one_burst_at_most() {
    let limits = RequestLimits::new(10, 3, Instant::now());
    let start = Instant::now();
    for _ in 0..1000 {
        let _ = limits.admit(Urgency::Urgent).await;
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    let _ = limits.admit(Urgency::Ordinary).await;
    assert!(start.elapsed() <= Duration::from_millis(105), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_wants_to_be_left_alone_gets_its_way_except_for_what_is_urgent() {
    let limits = RequestLimits::new(10, 3, Instant::now());
    let start = Instant::now();
    limits.pause(Duration::from_secs(7));
    let _ = limits.admit(Urgency::Urgent).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    let _ = limits.admit(Urgency::Ordinary).await;
    assert!((7..8).contains(&start.elapsed().as_secs()));

    limits.pause(Duration::from_secs(100_000));
    let start = Instant::now();
    let _ = limits.admit(Urgency::Ordinary).await;
    assert!((60..61).contains(&start.elapsed().as_secs()), "an hour is not believed");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_stops_waiting_is_no_longer_counted() {
    let limits = RequestLimits::new(1, 1, Instant::now());
    let _ = limits.admit(Urgency::Ordinary).await;
    let mut waiting = Box::pin(limits.admit(Urgency::Ordinary));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    assert_eq!(limits.waiting(), 1);
    drop(waiting);
    assert_eq!(limits.waiting(), 0);
    for _ in 0..100 {
        assert!(futures_util::poll!(Box::pin(limits.admit(Urgency::Ordinary))).is_pending());
    }
    let start = Instant::now();
    let _ = limits.admit(Urgency::Ordinary).await;
    assert_eq!(start.elapsed().as_secs(), 1, "they do not delay those that come later");
}

#[tokio::test(start_paused = true)]
async fn in_haste_no_request_waits_for_the_rate_and_a_busy_server_still_gets_its_way() {
    let limits = RequestLimits::new(1, 1, Instant::now());
    let start = Instant::now();
    for _ in 0..9 {
        let _ = limits.admit(Urgency::Urgent).await;
    }
    let mut waiting = Box::pin(limits.admit(Urgency::Ordinary));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    limits.hurry(start + Duration::from_secs(9));
    let _ = waiting.await;
    for _ in 0..100 {
        let _ = limits.admit(Urgency::Ordinary).await;
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    limits.pause(Duration::from_secs(10));
    let _ = limits.admit(Urgency::Ordinary).await;
    assert!((10..11).contains(&start.elapsed().as_secs()));
    let _ = limits.admit(Urgency::Ordinary).await;
    let _ = limits.admit(Urgency::Ordinary).await;
    assert!(start.elapsed().as_secs() >= 11, "the rate is back");
}

#[tokio::test(start_paused = true)]
async fn events_wait_a_second_for_what_is_urgent_and_no_longer() {
    let limits = RequestLimits::new(10, 9, Instant::now());
    let start = Instant::now();
    let urgent = [limits.admit(Urgency::Urgent).await, limits.admit(Urgency::Urgent).await];
    let mut event = Box::pin(limits.admit(Urgency::Late));
    assert!(futures_util::poll!(&mut event).is_pending());
    let _ = limits.admit(Urgency::Ordinary).await;
    drop(urgent);
    let _ = event.await;
    assert_eq!(start.elapsed(), Duration::ZERO);

    let _hangs = limits.admit(Urgency::Urgent).await;
    let _ = limits.admit(Urgency::Late).await;
    assert!((1..2).contains(&start.elapsed().as_secs()));
}
