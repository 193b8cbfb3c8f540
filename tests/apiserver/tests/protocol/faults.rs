use std::pin::pin;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::time::timeout;
use winddown_apiserver::{ApiServer, Fault};

use crate::client::Client;
use crate::{PODS, pod, started};

const SOON: Duration = Duration::from_millis(150);

/// For what is sure to come, on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_fault_meets_what_it_matches_as_often_as_it_says() {
    let (server, client) = started().await;
    client.post(PODS, &pod("a")).await;
    let fault = Fault::on("get|list", "pods").name("a").skip(1).times(2).status(429);
    server.fault(fault.retry_after(7));
    let path = format!("{PODS}/a");
    let mut codes = Vec::new();
    for _ in 0..4 {
        codes.push(client.get(&path).await.code);
    }
    assert_eq!(codes, [200, 429, 429, 200]);
    assert_eq!(client.get(PODS).await.code, 200);

    let id = server.fault(Fault::on("*", "*").status(410).reason("Gone").retry_after(7));
    let refused = client.get(&path).await;
    assert_eq!((refused.code, refused.headers["retry-after"].to_str().unwrap()), (410, "7"));
    assert_eq!(refused.body["reason"], "Gone");
    server.lift(id);
    assert_eq!(client.get(&path).await.code, 200);
}

#[tokio::test]
async fn what_is_refused_is_not_carried_out_and_what_is_lost_is() {
    let (server, client) = started().await;
    let json = "application/json";
    for (name, fault, kept) in [
        ("refused", Fault::on("create", "pods").times(1).status(500), false),
        ("reset", Fault::on("create", "pods").times(1).reset(), false),
        ("closed", Fault::on("create", "pods").times(1).close(), false),
        ("lost", Fault::on("create", "pods").times(1).lose_answer(), true),
        ("garbled", Fault::on("create", "pods").times(1).garble(), true),
    ] {
        server.fault(fault);
        let answer = client.try_ask("POST", PODS, json, &pod(name)).await;
        assert!(answer.is_err() || answer.is_ok_and(|a| a.body["kind"] != "Pod"), "{name}");
        assert_eq!(server.get(&format!("pods/default/{name}")).is_some(), kept, "{name}");
        let met = server.requests().pop().unwrap();
        assert!(met.fault.is_some(), "{met}");
    }
}

#[tokio::test]
async fn what_hangs_is_carried_out_or_not_and_never_answered() {
    let (server, client) = started().await;
    server.fault(Fault::on("create", "pods").name("never").hang());
    server.fault(Fault::on("create", "pods").name("done").hang_after());
    for (name, kept) in [("never", false), ("done", true)] {
        is_carried_out_but_not_answered(&server, &client, name, kept).await;
    }
}

#[tokio::test]
async fn a_delay_is_before_the_write_or_before_the_answer() {
    let (server, client) = started().await;
    server.fault(Fault::on("create", "pods").name("late").delay(Duration::from_secs(60)));
    server.fault(Fault::on("create", "pods").name("slow").delay_answer(Duration::from_secs(60)));
    for (name, kept) in [("late", false), ("slow", true)] {
        is_carried_out_but_not_answered(&server, &client, name, kept).await;
    }
}

/// Fails unless the pod is there when the server has met the request, or is not, as it is to be, and goes on so
/// without an answer.
async fn is_carried_out_but_not_answered(
    server: &ApiServer,
    client: &Client,
    name: &str,
    is_carried_out: bool,
) {
    let (object, path) = (pod(name), format!("pods/default/{name}"));
    server.forget_requests();
    let mut asking = pin!(client.post(PODS, &object));
    let is_there = || server.get(&path).is_some();
    let met = async {
        while server.count("create", "pods") != 1 || is_there() != is_carried_out {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = &mut asking => panic!("{name} was answered"),
        met = timeout(LIMIT, met) => assert!(met.is_ok(), "{name} was not met"),
    }
    assert!(timeout(SOON, asking).await.is_err(), "{name} was answered");
    assert_eq!(is_there(), is_carried_out, "{name}");
}

#[tokio::test]
async fn a_stale_list_shows_what_was() {
    let (server, client) = started().await;
    let before = server.version();
    client.post(PODS, &pod("a")).await;
    server.fault(Fault::on("list", "pods").times(1).stale(before));
    let list = client.get(PODS).await.body;
    assert_eq!(list["items"], json!([]));
    assert_eq!(list["metadata"]["resourceVersion"], before.to_string());
    assert_eq!(client.get(PODS).await.body["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_server_that_is_cut_off_comes_back_on_its_port_with_its_objects() {
    let (server, client) = started().await;
    client.post(PODS, &pod("a")).await;
    let address = server.address();
    let mut watch = client.watch(PODS, &format!("resourceVersion={}", server.version())).await;
    server.cut_off().await.unwrap();
    assert_eq!(watch.told().await, "the end");
    for _ in 0..3 {
        let refused = client.try_ask("GET", PODS, "", &Value::Null).await.unwrap_err();
        assert!(refused.to_string().contains("refused"), "{refused}");
    }
    server.come_back().await.unwrap();
    assert_eq!(server.address(), address);
    assert_eq!(client.get(&format!("{PODS}/a")).await.code, 200);
    server.restart().await.unwrap();
    assert_eq!(client.get(&format!("{PODS}/a")).await.code, 200);
}

#[tokio::test]
async fn a_silent_server_swallows_everything_and_goes_on_where_it_was() {
    let (server, client) = started().await;
    let mut watch = client.watch(PODS, &format!("resourceVersion={}", server.version())).await;
    server.set_silent(true);
    server.apply(pod("a")).unwrap();
    assert!(timeout(SOON, watch.next()).await.is_err());
    assert!(timeout(SOON, client.get(PODS)).await.is_err());
    server.set_silent(false);
    assert_eq!(watch.told().await, "ADDED a");
    assert_eq!(client.get(PODS).await.code, 200);
}

#[tokio::test]
async fn connections_are_dropped_and_new_ones_are_taken() {
    let (server, client) = started().await;
    let mut watch = client.watch(PODS, "").await;
    server.drop_connections();
    assert_eq!(watch.told().await, "the end");
    assert_eq!(client.get(PODS).await.code, 200);
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_skewed_clock_shows_in_the_date_and_in_what_is_written() {
    let (server, client) = started().await;
    let now = client.get("/version").await.headers["date"].to_str().unwrap().to_owned();
    server.set_clock_skew(SignedDuration::from_hours(24 * 800));
    let skewed = client.get("/version").await.headers["date"].to_str().unwrap().to_owned();
    let year = |date: &str| date.split(' ').nth(3).unwrap().parse::<u32>().unwrap();
    assert!(year(&skewed) >= year(&now) + 2, "{now} and {skewed}");
    let made = client.post(PODS, &pod("a")).await.body;
    let created = made["metadata"]["creationTimestamp"].as_str().unwrap();
    assert!(created.starts_with(&year(&skewed).to_string()), "{created}");
}

#[tokio::test]
async fn the_journal_says_who_did_what_to_what_and_how_it_went() {
    let (server, client) = started().await;
    client.post(PODS, &pod("a")).await;
    client.patch(&format!("{PODS}/a/status"), &json!({"status": {"phase": "Running"}})).await;
    Client::http1(&server).get("/apis/coordination.k8s.io/v1/leases?limit=5").await;
    let lines: Vec<String> = server.requests().iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "create pods in default named a -> 201",
            "patch pods/status in default named a -> 200",
            "list leases.coordination.k8s.io -> 200",
        ]
    );
    let patch = &server.requests()[1];
    assert_eq!(
        (patch.user.as_str(), &patch.body["status"]["phase"]),
        ("test-admin", &json!("Running"))
    );
    let rights: Vec<String> = server.rights().iter().map(ToString::to_string).collect();
    assert_eq!(rights, ["create pods", "list leases.coordination.k8s.io", "patch pods/status"]);
    server.forget_requests();
    assert_eq!(server.count("*", "*"), 0);
}

#[tokio::test]
async fn what_does_not_come_about_is_told_with_the_last_requests() {
    let (server, client) = started().await;
    client.get("/version").await;
    let waited = server.within(SOON, "a pod", |o| o.get("pods/default/a")).await.unwrap_err();
    assert_eq!(
        waited.to_string(),
        "not within 150ms: a pod; the last requests:\n  get /version -> 200"
    );
}

#[tokio::test]
async fn a_request_is_held_back_while_something_else_happens() {
    let (server, client) = started().await;
    client.post(PODS, &pod("a")).await;
    let held = server.fault(Fault::on("patch", "pods/status").times(1).hold());
    let answered = server.fault(Fault::on("delete", "pods").times(1).hold_answer());
    let late = tokio::spawn({
        let client = client.clone();
        async move {
            let patch = json!({"status": {"reason": "mine"}});
            client.patch(&format!("{PODS}/a/status"), &patch).await.body
        }
    });
    server.until("held", |o| (o.count("patch", "pods/status") == 1).then_some(())).await.unwrap();
    server.patch("pods/default/a", &json!({"status": {"message": "theirs"}})).unwrap();
    server.lift(held);
    let status = late.await.unwrap()["status"].clone();
    assert_eq!((&status["reason"], &status["message"]), (&json!("mine"), &json!("theirs")));

    let grace = json!({"gracePeriodSeconds": 0});
    let deleting = tokio::spawn({
        let client = client.clone();
        async move { client.delete(&format!("{PODS}/a"), &grace).await.code }
    });
    let gone =
        |o: &winddown_apiserver::Objects<'_>| o.get("pods/default/a").is_none().then_some(());
    server.until("it is gone", gone).await.unwrap();
    assert!(server.requests().last().unwrap().code.is_none());
    server.lift(answered);
    assert_eq!(deleting.await.unwrap(), 200);
}
