//! Events, written to an API server that does not always behave.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_apiserver::{ApiServer, Fault};
use winddown_cluster::events::{EventDraft, Events, NodeRef, Subject};
use winddown_shared::{Event, PodRef, PodUid, Recorder as _, WallClock, WallTime};

/// An API server, and an agent that writes events.
struct Bed {
    server: ApiServer,
    client: kube::Client,
    events: Events,
    cancel: CancellationToken,
}

impl Bed {
    async fn new() -> Self {
        let server = ApiServer::start().await.unwrap();
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        server.apply(namespace).unwrap();
        let client = crate::connect::client(&server.kubeconfig()).await;
        let wall = WallClock::fixed(WallTime::from_second(1_800_000_000).unwrap());
        let (events, writer) = Events::new(client.clone(), NodeRef::new("n1"), 100, wall);
        let cancel = CancellationToken::new();
        tokio::spawn(writer.run(cancel.clone()));
        Self { server, client, events, cancel }
    }

    /// The events of a namespace, oldest first.
    fn written(&self, namespace: &str) -> Vec<Arc<Value>> {
        let mut all = self.server.list(&format!("events.events.k8s.io/{namespace}"));
        all.sort_by_key(|e| e["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        all
    }

    /// All that was sent is written, or given up.
    async fn settled(&self) {
        let left = self.events.flush(Instant::now() + Duration::from_secs(30)).await;
        assert!(left.is_empty(), "{left:?}: {:?}", self.events.counts());
    }

    /// From now on a shutdown waits for the events.
    fn goes_down(&self) {
        let events = self.events.clone();
        tokio::spawn(async move { events.flush(Instant::now() + Duration::from_secs(60)).await });
    }

    /// As many requests to write an event have come, answered or not.
    async fn asked(&self, requests: usize) {
        let asked = self
            .server
            .until("the events come", |o| (o.count("create", "events") >= requests).then_some(()));
        asked.await.unwrap();
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

fn pod(name: &str) -> PodRef {
    PodRef { namespace: "shop".into(), name: name.into(), uid: PodUid::new(format!("uid-{name}")) }
}

fn draft(name: &str, message: &str) -> EventDraft {
    EventDraft::warning(Subject::pod(&pod(name)), "FailedSync", message)
}

fn notes(events: &[Arc<Value>]) -> Vec<&str> {
    events.iter().map(|e| e["note"].as_str().unwrap_or_default()).collect()
}

#[tokio::test]
async fn a_decision_becomes_an_event_of_its_object() {
    let bed = Bed::new().await;
    bed.events.record(&Event::ExceededGracePeriod { pod: pod("web") });
    bed.events.record(&Event::ShutdownStarted { pods: 1, budget: Duration::ZERO });
    bed.settled().await;
    let of_pod = &bed.written("shop")[0];
    assert_eq!(of_pod["reason"], "ExceededGracePeriod");
    assert_eq!(of_pod["regarding"]["uid"], "uid-web");
    assert_eq!(of_pod["reportingController"], "winddown");
    let of_node = &bed.written("default")[0];
    assert_eq!(of_node["note"], "Shutdown manager detected shutdown event");
    assert_eq!(of_node["regarding"]["kind"], "Node");
    assert_eq!(bed.events.counts().written, 2);
}

#[tokio::test]
async fn the_same_again_is_counted_on_the_same_event() {
    let bed = Bed::new().await;
    for _ in 0..3 {
        bed.events.send(draft("web", "no image"));
    }
    bed.settled().await;
    let written = bed.written("shop");
    assert_eq!(written.len(), 1);
    assert_eq!(written[0]["series"]["count"], 3);
    assert_eq!((bed.events.counts().written, bed.events.counts().repeated), (1, 2));
}

#[tokio::test]
async fn a_series_whose_event_has_expired_begins_anew() {
    let bed = Bed::new().await;
    bed.events.send(draft("web", "no image"));
    bed.settled().await;
    let name = bed.written("shop")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    bed.server.remove(&format!("events.events.k8s.io/shop/{name}"));
    bed.events.send(draft("web", "no image"));
    bed.settled().await;
    assert_eq!(notes(&bed.written("shop")), ["no image"]);
    bed.events.send(draft("web", "no image"));
    bed.settled().await;
    assert_eq!(bed.written("shop")[0]["series"]["count"], 2);
}

#[tokio::test]
async fn sending_never_waits_and_an_outage_loses_nothing_that_has_room() {
    let bed = Bed::new().await;
    bed.server.cut_off().await.unwrap();
    let started = Instant::now();
    for i in 0..20 {
        bed.events.send(draft(&format!("pod-{i}"), "no image"));
    }
    assert!(started.elapsed() < Duration::from_secs(10), "it waits for the server");
    assert_eq!(bed.events.counts().waiting, 20);
    bed.server.come_back().await.unwrap();
    bed.settled().await;
    assert_eq!(bed.written("shop").len(), 20);
}

#[tokio::test]
async fn an_answer_that_is_lost_does_not_make_two_events() {
    let bed = Bed::new().await;
    bed.server.fault(Fault::on("create", "events").times(1).lose_answer());
    bed.events.send(draft("web", "no image"));
    bed.settled().await;
    assert_eq!(bed.written("shop").len(), 1);
    assert!(bed.server.count("create", "events") >= 2, "it asked again");
}

#[tokio::test]
async fn a_busy_server_is_left_alone_for_as_long_as_it_asks() {
    let bed = Bed::new().await;
    bed.server.fault(Fault::on("create", "events").times(1).status(429).retry_after(1));
    let started = Instant::now();
    bed.events.send(draft("web", "no image"));
    let written = bed.server.until("it is written", |o| {
        (!o.list("events.events.k8s.io/shop").is_empty()).then_some(())
    });
    written.await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn an_event_that_is_refused_holds_up_no_other() {
    let bed = Bed::new().await;
    bed.server.fault(Fault::on("create", "events").times(1).status(403));
    bed.events.send(draft("refused", "x"));
    bed.asked(1).await;
    let nowhere = PodRef { namespace: "no-such-namespace".into(), ..pod("lost") };
    bed.events.send(EventDraft::normal(Subject::pod(&nowhere), "Killing", "x"));
    bed.events.send(draft("web", "no image"));
    bed.settled().await;
    assert_eq!(notes(&bed.written("shop")), ["no image"]);
    assert_eq!(bed.events.counts().refused, 2);
}

#[tokio::test]
async fn an_event_that_the_server_never_manages_to_store_holds_up_no_other() {
    let bed = Bed::new().await;
    bed.server.fault(Fault::on("create", "events").namespace("broken").status(500));
    let stuck = PodRef { namespace: "broken".into(), ..pod("stuck") };
    bed.events.send(EventDraft::normal(Subject::pod(&stuck), "Killing", "x"));
    bed.asked(2).await;
    bed.events.send(draft("web", "no image"));
    bed.settled().await;
    assert_eq!(notes(&bed.written("shop")), ["no image"]);
    assert_eq!(bed.events.counts().refused, 1);
}

#[tokio::test]
async fn a_shutdown_waits_for_events_no_longer_than_it_says() {
    let bed = Bed::new().await;
    bed.server.set_silent(true);
    for i in 0..6 {
        bed.events.send(draft(&format!("pod-{}", i % 3), &format!("no image {i}")));
    }
    let limit = Duration::from_millis(500);
    let started = Instant::now();
    let left = bed.events.flush(started + limit).await;
    let names: Vec<&str> = left.iter().map(Subject::name).collect();
    assert_eq!(names, ["pod-0", "pod-1", "pod-2"], "each object once");
    assert!(started.elapsed() >= limit && started.elapsed() < limit + Duration::from_secs(5));
    bed.server.set_silent(false);
    bed.settled().await;
    assert_eq!(bed.written("shop").len(), 6);
}

#[tokio::test]
async fn events_leave_room_for_what_ends_pods_until_a_shutdown_waits_for_them() {
    let bed = Bed::new().await;
    let _held = bed.server.fault(Fault::on("create", "events").hold());
    for i in 0..20 {
        bed.events.send(draft(&format!("pod-{i}"), "no image"));
    }
    bed.asked(2).await;
    // Anything that was sent beside these comes before the answers to a few requests that are made now.
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::all(bed.client.clone());
    for _ in 0..5 {
        pods.list(&kube::api::ListParams::default()).await.unwrap();
    }
    assert_eq!(bed.server.count("create", "events"), 2);
    bed.goes_down();
    bed.asked(16).await;
}

#[tokio::test]
async fn events_of_many_objects_are_written_at_once_and_those_of_one_in_order() {
    let bed = Bed::new().await;
    let held = bed.server.fault(Fault::on("create", "events").hold());
    for message in ["first", "second"] {
        for i in 0..20 {
            bed.events.send(draft(&format!("pod-{i}"), message));
        }
    }
    bed.goes_down();
    bed.asked(16).await;
    // What is asked for now comes behind anything that was sent beside it.
    assert!(bed.events.flush(Instant::now() + Duration::from_millis(100)).await.len() == 20);
    assert_eq!(bed.server.count("create", "events"), 16, "it asks for no more at once");
    bed.server.lift(held);
    bed.settled().await;
    let mut notes = std::collections::BTreeMap::<String, Vec<String>>::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for request in bed.server.requests().iter().filter(|r| r.is("create", "events")) {
        let of = notes.entry(text(&request.body["regarding"]["name"])).or_default();
        of.push(text(&request.body["note"]));
    }
    assert_eq!(notes.len(), 20);
    for (pod, mut notes) in notes {
        // What the held server answered too late on a busy machine was sent once more.
        notes.dedup();
        assert_eq!(notes, ["first", "second"], "{pod}");
    }
}

#[tokio::test]
async fn an_event_that_hangs_holds_up_no_other_object() {
    let bed = Bed::new().await;
    bed.server.fault(Fault::on("create", "events").times(1).hang());
    bed.events.send(draft("hangs", "no image"));
    bed.asked(1).await;
    bed.events.send(draft("hangs", "behind it"));
    bed.events.send(draft("web", "no image"));
    let written = bed.server.until("the other is written", |o| {
        (!o.list("events.events.k8s.io/shop").is_empty()).then_some(())
    });
    written.await.unwrap();
    assert_eq!(bed.written("shop")[0]["regarding"]["name"], "web");
    bed.settled().await;
    assert_eq!(bed.written("shop").len(), 3);
}

#[tokio::test]
async fn a_server_that_fails_is_asked_by_one_request_at_a_time() {
    let bed = Bed::new().await;
    let failing = bed.server.fault(Fault::on("create", "events").status(503));
    bed.events.send(draft("pod-0", "no image"));
    bed.asked(2).await;
    for i in 1..20 {
        bed.events.send(draft(&format!("pod-{i}"), "no image"));
    }
    bed.asked(4).await;
    let of_others = |r: &winddown_apiserver::Request| {
        r.is("create", "events") && r.body["regarding"]["name"] != "pod-0"
    };
    assert!(!bed.server.requests().iter().any(of_others));
    bed.server.lift(failing);
    bed.settled().await;
    assert_eq!(bed.written("shop").len(), 20);
}

#[tokio::test]
async fn decisions_are_written_first_when_the_node_goes_down() {
    let bed = Bed::new().await;
    let held = bed.server.fault(Fault::on("create", "events").status(500));
    bed.events.send(draft("pod-0", "routine"));
    // From now on it is one request at a time.
    bed.asked(2).await;
    for i in 1..5 {
        bed.events.send(draft(&format!("pod-{i}"), "routine"));
    }
    bed.events.record(&Event::ExceededGracePeriod { pod: pod("web") });
    bed.goes_down();
    assert_eq!(bed.events.flush(Instant::now() + Duration::from_millis(50)).await.len(), 6);
    bed.server.lift(held);
    bed.settled().await;
    let order: Vec<String> = bed
        .server
        .requests()
        .iter()
        .filter(|r| r.is("create", "events") && r.code == Some(201))
        .map(|r| r.body["reason"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(order.len(), 6);
    // The one that was being written when the shutdown came is finished first.
    assert!(order[..2].contains(&"ExceededGracePeriod".to_owned()), "{order:?}");
}
