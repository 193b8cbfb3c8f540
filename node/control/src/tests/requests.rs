//! Requests and responses.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{PATIENCE, serve, until};
use crate::api::{
    Check, DrainEvent, DrainRequest, ErrorCode, KillBody, LogQuery, NoticeBody, PodStatus, Status,
};
use crate::fake::FakeAgent;
use crate::{ApiError, ClientError, Limits, Peer, Server};

#[tokio::test]
async fn every_read_is_answered_with_what_the_agent_knows() {
    let running = serve(Limits::default()).await;
    let client = &running.client;
    assert_eq!(client.status().await.unwrap(), *running.agent.status.lock());
    let plan = client.shutdown_plan(None).await.unwrap();
    assert_eq!(plan.requested_seconds, 40.0);
    let within = Some(std::time::Duration::from_secs(9));
    assert_eq!(client.shutdown_plan(within).await.unwrap().requested_seconds, 9.0);
    assert_eq!(client.reports().await.unwrap().reports.len(), 1);
    assert_eq!(client.report("latest").await.unwrap()["outcome"], "clean");
    assert_eq!(client.config().await.unwrap().yaml, "a: 1\n");
}

#[tokio::test]
async fn a_log_is_sent_as_text_with_what_was_asked_for_and_with_what_went_wrong() {
    let running = serve(Limits::default()).await;
    let query = LogQuery {
        container: Some("main".to_owned()),
        previous: true,
        timestamps: true,
        tail_lines: Some(3),
        ..LogQuery::default()
    };
    let mut blocks = running.client.log("default", "web", &query).await.unwrap();
    let mut text = Vec::new();
    while let Some(block) = blocks.next().await.unwrap() {
        text.extend_from_slice(&block);
    }
    let wanted = format!("{query:?}\nwinddown: the log cannot be read further: the disk is gone\n");
    assert_eq!(String::from_utf8(text).unwrap(), wanted);
    let error = running.client.log("default", "other", &query).await.err().unwrap();
    assert!(matches!(error, ClientError::Agent { status: 404, .. }), "{error:?}");
    let wrong = running.get("/v1/pods/default/web/log?tailLines=all").await;
    assert!(wrong.starts_with("HTTP/1.1 400") && wrong.contains("tailLines"), "{wrong}");
}

#[tokio::test]
async fn a_log_that_the_stop_of_the_agent_cuts_off_is_not_told_as_complete() {
    let running = serve(Limits::default()).await;
    let query = LogQuery { follow: true, ..LogQuery::default() };
    let mut blocks = running.client.log("default", "web", &query).await.unwrap();
    while !blocks.next().await.unwrap().unwrap().ends_with(b"is gone\n") {}
    running.stop.cancel();
    let error = blocks.next().await.unwrap_err();
    assert!(matches!(error, ClientError::Closed { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_log_is_waited_for_as_long_as_the_agent_waits_for_its_container() {
    let running = serve(Limits::default()).await;
    let query = LogQuery { follow: true, ..LogQuery::default() };
    let error = running.client.log("default", "starting", &query).await.err().unwrap();
    assert!(matches!(error, ClientError::Agent { status: 404, .. }), "{error:?}");
}

#[tokio::test]
async fn a_pod_of_the_same_name_elsewhere_explains_nothing_about_a_pod_that_is_here() {
    let running = serve(Limits::default()).await;
    running.agent.change(|status| {
        let here = status.pods.first().cloned().unwrap();
        status.pods.push(PodStatus { namespace: "shop".to_owned(), ..here });
    });
    let body = KillBody { uid: Some("another".to_owned()), ..KillBody::default() };
    let error = running.client.kill("default", "web-edge-1", &body).await.unwrap_err();
    assert!(error.hint().is_empty(), "{}", error.hint());
}

#[tokio::test]
async fn a_preemption_plan_is_for_the_pod_whose_manifest_is_sent_if_one_is() {
    let running = serve(Limits::default()).await;
    let client = &running.client;
    assert_eq!(client.preemption_plan(None, None).await.unwrap().pod, None);
    let manifest = b"kind: Pod\nname: \"\"\n".to_vec();
    let asked = client.preemption_plan(Some(manifest.clone()), Some("minimal"));
    let plan = asked.await.unwrap();
    assert_eq!(plan.strategy, "minimal");
    let wrong = running.get("/v1/plan/preemption?strategy=cheapest").await;
    assert!(wrong.starts_with("HTTP/1.1 400"), "{wrong}");
    assert_eq!(plan.pod.unwrap().pod.into_bytes(), manifest, "as it was sent, YAML and all");
    let error = client.preemption_plan(Some(Vec::new()), None).await.unwrap_err();
    assert!(matches!(error, ClientError::Agent { status: 400, .. }), "{error:?}");
}

#[tokio::test]
async fn a_manifest_may_be_much_longer_than_another_body() {
    let running = serve(Limits::default()).await;
    let client = &running.client;
    let most = Limits::default().manifest_bytes;
    let plan = client.preemption_plan(Some(vec![b'#'; most]), None).await.unwrap();
    assert_eq!(plan.pod.unwrap().pod.len(), most);
    let error = client.preemption_plan(Some(vec![b'#'; most + 1]), None).await.unwrap_err();
    assert!(matches!(error, ClientError::Agent { status: 400, .. }), "{error:?}");
    assert_eq!(error.to_string(), "the request's body is larger than 1048576 bytes");
    let text = "#".repeat(Limits::default().body_bytes);
    let error = client.drain(&DrainRequest { text, ..DrainRequest::default() }).await.unwrap_err();
    assert_eq!(error.to_string(), "the request's body is larger than 65536 bytes");
}

#[tokio::test]
async fn metrics_and_health_answer_in_their_own_formats() {
    let running = serve(Limits::default()).await;
    let metrics = running.get("/metrics").await;
    assert!(metrics.contains("application/openmetrics-text; version=1.0.0"), "{metrics}");
    assert!(metrics.ends_with("winddown_inhibitor_held 1\n# EOF\n"), "{metrics}");
    assert!(running.get("/healthz").await.ends_with("\r\n\r\nok"));
    let verbose = running.get("/healthz?verbose").await;
    assert!(verbose.ends_with("[+]control-loop ok\nhealthz check passed\n"), "{verbose}");

    running.agent.ready.lock().checks =
        vec![Check::passed("runtime"), Check::failed("lock", "logind is gone")];
    let ready = running.get("/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    let lines = "[+]runtime ok\n[-]lock failed: logind is gone\nreadyz check failed\n";
    assert!(ready.ends_with(lines), "{ready}");
}

#[tokio::test]
async fn a_kill_reaches_the_agent_with_its_grace_and_answers_when_the_pod_is_gone() {
    let running = serve(Limits::default()).await;
    let body = KillBody { grace_seconds: Some(5), ..KillBody::default() };
    let answer = running.client.kill("default", "web-edge-1", &body).await.unwrap();
    assert!(!answer.still_running);
    assert_eq!(*running.agent.kills.lock(), ["default/web-edge-1 Some(5)"]);

    let wrong = KillBody { uid: Some("other".to_owned()), ..KillBody::default() };
    let error = running.client.kill("default", "web-edge-1", &wrong).await.unwrap_err();
    assert!(matches!(error, ClientError::Agent { status: 404, .. }), "{error:?}");
}

#[tokio::test]
async fn a_static_pod_is_known_by_the_name_in_its_manifest_unless_another_pod_has_that() {
    let running = serve(Limits::default()).await;
    let killed = running.client.kill("default", "web", &KillBody::default()).await.unwrap();
    assert_eq!(killed.name, "web-edge-1");
    let error = running.client.kill("shop", "web", &KillBody::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no pod shop/web on this node");
    assert_eq!(error.hint(), "did you mean default/web-edge-1?");
    let here = running.agent.status.lock().pods.first().cloned().unwrap();
    for other in [
        PodStatus { name: "web".to_owned(), ..here.clone() },
        PodStatus { source: "api".to_owned(), ..here },
    ] {
        running.agent.change(|status| status.pods = vec![other.clone()]);
        let whole = running.agent.status.lock().pod("default", "web").cloned();
        assert_eq!(whole.map(|pod| pod.name), (other.name == "web").then_some("web".to_owned()));
    }
    let error = running.client.kill("pod", "api", &KillBody::default()).await.unwrap_err();
    assert_eq!(error.hint(), "write NAME or NAMESPACE/NAME: `pod/` is read as a namespace");
    let error = running.client.kill("shop", "web-edge-1", &KillBody::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no pod shop/web-edge-1 on this node");
}

#[tokio::test]
async fn a_pod_is_not_said_to_be_missing_before_the_pods_are_known() {
    let running = serve(Limits::default()).await;
    running.agent.change(|status| status.pods_unknown = true);
    let killed = running.client.kill("default", "api", &KillBody::default()).await.unwrap_err();
    let log = running.client.log("default", "api", &LogQuery::default()).await.err().unwrap();
    for error in [killed, log] {
        assert!(matches!(error, ClientError::Agent { status: 503, .. }), "{error:?}");
        assert!(error.to_string().starts_with("it is not known yet whether"), "{error}");
    }
}

#[tokio::test]
async fn a_client_that_gives_up_abandons_the_wait_and_nothing_else() {
    let running = serve(Limits::default()).await;
    let client = running.client.clone();
    let body = KillBody::default();
    let wait = tokio::spawn(async move { client.kill("default", "stuck", &body).await });
    until("the kill is asked", || !running.agent.kills.lock().is_empty()).await;
    wait.abort();
    until("the wait is abandoned", || Arc::strong_count(&running.agent.stuck) == 1).await;
    assert_eq!(running.agent.kills.lock().len(), 1);
    assert!(running.client.status().await.is_ok());
}

#[tokio::test]
async fn a_watcher_gets_the_node_now_and_after_every_change_and_bursts_as_one() {
    let running = serve(Limits::default()).await;
    let mut lines = running.client.watch().await.unwrap();
    let first: Status = lines.next().await.unwrap().expect("a first picture");
    assert_eq!(first.revision, 0);
    for _ in 0..1000 {
        running.agent.change(|status| status.node.uptime_seconds += 1);
    }
    let mut pictures = 0;
    loop {
        let next: Status = lines.next().await.unwrap().expect("another picture");
        pictures += 1;
        if next.revision == 1000 {
            break;
        }
    }
    assert!(pictures <= 3, "{pictures} pictures of one burst");
}

#[tokio::test]
async fn a_watcher_also_gets_what_nothing_announces_such_as_the_lock_of_a_kubelet() {
    let running = serve(Limits { look: Duration::from_millis(20), ..Limits::default() }).await;
    let mut lines = running.client.watch().await.unwrap();
    assert_eq!(lines.next::<Status>().await.unwrap().expect("a first picture").revision, 0);
    running.agent.unseen.store(true, std::sync::atomic::Ordering::SeqCst);
    let next = tokio::time::timeout(PATIENCE, lines.next::<Status>()).await;
    assert_eq!(next.expect("it looks").unwrap().expect("another picture").revision, 1);
}

#[tokio::test]
async fn many_watchers_see_the_same_last_change() {
    let running = serve(Limits::default()).await;
    let mut watchers = Vec::new();
    for _ in 0..10 {
        watchers.push(running.client.watch().await.unwrap());
    }
    until("all watch", || running.agent.watchers() == 10).await;
    running.agent.change(|status| status.node.version = "9".to_owned());
    for lines in &mut watchers {
        let see = async {
            while lines.next::<Status>().await.unwrap().expect("a picture").revision != 1 {}
        };
        tokio::time::timeout(PATIENCE, see).await.expect("the last change is seen");
    }
    drop(watchers);
    until("all are forgotten", || running.agent.watchers() == 0).await;
}

#[tokio::test]
async fn a_drain_tells_its_progress_line_by_line_and_a_second_one_is_refused() {
    let running = serve(Limits::default()).await;
    let request = DrainRequest { timeout_seconds: Some(7), ..DrainRequest::default() };
    let mut lines = running.client.drain(&request).await.unwrap();
    let first = lines.next::<DrainEvent>().await.unwrap();
    assert_eq!(
        first,
        Some(DrainEvent::Started { groups: 1, pods: 2, seconds: 7.0, pods_unknown: false })
    );

    let error = running.client.drain(&request).await.unwrap_err();
    assert!(matches!(&error, ClientError::Agent { status: 409, .. }), "{error:?}");
    assert_eq!(error.hint(), "`winddown status --watch` shows it");

    let done = DrainEvent::Finished {
        terminated: 2,
        forced: 0,
        still_running: 0,
        took_seconds: 0.5,
        pods_unknown: false,
        cancelled: false,
    };
    let events = running.agent.drains.lock().pop().expect("a drain");
    events.send(done.clone()).unwrap();
    drop(events);
    assert_eq!(lines.next::<DrainEvent>().await.unwrap(), Some(done));
    assert_eq!(lines.next::<DrainEvent>().await.unwrap(), None);
}

#[tokio::test]
async fn a_notice_is_given_with_its_progress_and_taken_back() {
    let running = serve(Limits::default()).await;
    let body = NoticeBody { in_seconds: Some(90), text: "battery".into(), ..NoticeBody::default() };
    let mut lines = running.client.give_notice(&body).await.unwrap();
    let first = lines.next::<DrainEvent>().await.unwrap();
    assert_eq!(
        first,
        Some(DrainEvent::Started { groups: 1, pods: 2, seconds: 90.0, pods_unknown: false })
    );
    let given = running.agent.notice.lock().clone().unwrap();
    assert!(matches!(given.by, Some(Peer::Local { pid: Some(_), .. })), "{given:?}");
    assert_eq!(NoticeBody { by: None, ..given }, body);
    assert!(running.client.withdraw_notice().await.unwrap().withdrawn);
    assert!(!running.client.withdraw_notice().await.unwrap().withdrawn);

    let answer = running.get("/v1/notice").await;
    assert!(answer.starts_with("HTTP/1.1 405") && answer.contains("allow: POST, DELETE"));
    let body = "{\"when\":\"soon\"}";
    let request = format!(
        "POST /v1/notice HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = running.raw(request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("unknown field"), "{answer}");
    assert!(running.agent.notice.lock().is_none());
}

#[tokio::test]
async fn what_is_not_there_is_an_error_with_a_hint() {
    let running = serve(Limits::default()).await;
    for (path, status) in [
        ("/", "404"),
        ("/v1", "404"),
        ("/v1/nothing", "404"),
        ("/v1/reports/none", "404"),
        ("/v2/status", "404"),
        ("/v1/drain", "405"),
        ("/v1/pods/a/b/kill", "405"),
        ("/v1/pods/a/b/release", "405"),
        ("/../../etc/passwd", "404"),
    ] {
        let answer = running.get(path).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
        assert!(answer.contains("\"error\":"), "{path}: {answer}");
    }
    let answer = running.raw(b"POST /v1/status HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    assert!(answer.contains("allow: GET"), "{answer}");
}

#[tokio::test]
async fn a_body_that_is_not_understood_is_named_and_nothing_is_done() {
    let running = serve(Limits::default()).await;
    for (body, said) in [
        ("{\"grace\": 3}", "unknown field `grace`"),
        ("{\"graceSeconds\": 0}", "graceSeconds: at least 1"),
        ("{\"graceSeconds\": -1}", "invalid value"),
        ("{", "EOF while parsing"),
        ("[[[[", "invalid type"),
    ] {
        let request = format!(
            "POST /v1/pods/default/web-edge-1/kill HTTP/1.1\r\nHost: x\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = running.raw(request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{body}: {answer}");
        assert!(answer.contains(said), "{body}: {answer}");
    }
    assert!(running.agent.kills.lock().is_empty());
}

#[tokio::test]
async fn a_time_that_would_overflow_the_agents_clock_is_refused() {
    let running = serve(Limits::default()).await;
    for seconds in [31_536_001, u64::MAX] {
        let request = DrainRequest { timeout_seconds: Some(seconds), ..DrainRequest::default() };
        let error = running.client.drain(&request).await.unwrap_err();
        assert_eq!(error.to_string(), "timeoutSeconds: at most 31536000");
        let within = Some(Duration::from_secs(seconds));
        let error = running.client.shutdown_plan(within).await.unwrap_err();
        assert_eq!(error.to_string(), "seconds: at most 31536000");
    }
    let none = DrainRequest { timeout_seconds: Some(0), ..DrainRequest::default() };
    let error = running.client.drain(&none).await.unwrap_err();
    assert_eq!(error.to_string(), "timeoutSeconds: at least 1", "the command refuses it too");
    assert!(running.agent.drains.lock().is_empty());
    let year = DrainRequest { timeout_seconds: Some(31_536_000), ..DrainRequest::default() };
    assert!(running.client.drain(&year).await.is_ok());
}

#[tokio::test]
async fn every_answer_names_the_version_of_the_agent() {
    let running = serve(Limits::default()).await;
    let header = format!("winddown-version: {}", env!("CARGO_PKG_VERSION"));
    for path in ["/v1/status", "/metrics", "/healthz", "/v1/nothing", "/v1/drain"] {
        let answer = running.get(path).await;
        assert!(answer.contains(&header), "{path}: {answer}");
    }
}

#[tokio::test]
async fn the_network_gets_metrics_and_health_and_not_one_name() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let server = Server::new(Arc::new(FakeAgent::new()), Limits::default(), stop.clone());
    let task = tokio::spawn(server.serve_metrics(listener));
    for (path, status) in
        [("/metrics", "200"), ("/healthz", "200"), ("/readyz", "200"), ("/v1/status", "404")]
    {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
    }
    stop.cancel();
    tokio::time::timeout(PATIENCE, task).await.expect("it stops").unwrap();
}

#[tokio::test]
async fn a_stopping_agent_ends_watches_answers_waiting_kills_and_removes_its_socket() {
    let running = serve(Limits::default()).await;
    let mut lines = running.client.watch().await.unwrap();
    lines.next::<Status>().await.unwrap().expect("a picture");
    let client = running.client.clone();
    let kill =
        tokio::spawn(async move { client.kill("default", "stuck", &KillBody::default()).await });
    until("the kill is asked", || !running.agent.kills.lock().is_empty()).await;

    running.stop.cancel();
    assert!(lines.next::<Status>().await.unwrap().is_none(), "the watch ends");
    let error = kill.await.unwrap().unwrap_err();
    let ClientError::Agent { body, .. } = &error else { panic!("{error:?}") };
    assert_eq!(body.code, ErrorCode::Unavailable);
    let told = ApiError::kill_cut_short();
    assert_eq!((&body.error, &body.hint), (&told.message, &told.hint));
    tokio::time::timeout(PATIENCE, running.task).await.expect("it stops").unwrap();
    let error = running.client.status().await.unwrap_err();
    assert!(matches!(error, ClientError::Missing { .. }), "{error:?}");
    assert!(error.is_gone());
}
