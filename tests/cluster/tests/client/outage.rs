//! A server that is away, silent, busy or in another time.

use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use tokio::time::{Instant, timeout};
use winddown_apiserver::Fault;

use super::*;

#[tokio::test]
async fn an_outage_is_one_change_and_so_is_its_end() {
    let scene = Scene::new().await;
    let connection = open(scene.with_certificate()).await;
    list(&connection).await.unwrap();
    let mut health = connection.health();
    health.mark_unchanged();

    scene.server.cut_off().await.unwrap();
    for _ in 0..3 {
        let error = list(&connection).await.unwrap_err();
        let cause = cause(&error);
        assert!(
            matches!(cause, RequestError::Unreachable { .. } | RequestError::Lost { .. }),
            "{cause}"
        );
    }
    let down = health.borrow_and_update().clone();
    assert!(matches!(down.state, ConnectionState::Unreachable { .. }), "{down:?}");
    list(&connection).await.unwrap_err();
    assert!(!health.has_changed().unwrap());
    assert!(connection.last_contact().unwrap() <= down.since);

    scene.server.come_back().await.unwrap();
    list(&connection).await.unwrap();
    assert!(health.borrow_and_update().is_connected());
}

#[tokio::test]
async fn a_server_that_is_silent_is_left_with_all_its_connections() {
    // Long enough for a new connection on a busy machine.
    let (silence, patience) = (Duration::from_secs(6), Duration::from_secs(8));
    // Who gives up first, and whether anything is said of that.
    for (answer_timeout, is_callers) in [(silence, false), (2 * patience, true)] {
        let scene = Scene::new().await;
        let config = ClusterConfig { answer_timeout, ..scene.with_certificate() };
        let connection = open(config).await;
        // Two that are under way at once need a connection each.
        scene.server.fault(Fault::on("list", "pods").times(2).delay(Duration::from_millis(200)));
        let (first, second) = tokio::join!(list(&connection), list(&connection));
        first.and(second).unwrap();

        scene.server.fault(Fault::on("list", "pods").times(1).hang());
        let after = match timeout(patience, list(&connection)).await {
            Err(_) => {
                assert!(is_callers);
                patience
            }
            Ok(answer) => {
                let error = answer.unwrap_err();
                assert!(matches!(cause(&error), RequestError::Silent { .. }), "{error:?}");
                silence
            }
        };
        let why = text(&connection.health().borrow().state);
        // A busy machine notes it later.
        let said =
            why.split_once("no answer from ").and_then(|(_, rest)| rest.split_once(" within "));
        let seconds = said.and_then(|(_, time)| time.strip_suffix('s')?.parse().ok());
        assert!(seconds.is_some_and(|seconds: u64| seconds >= after.as_secs()), "{why}");

        let before = scene.server.connections();
        list(&connection).await.unwrap();
        assert_eq!(scene.server.connections(), before + 1, "{is_callers}");
        assert!(connection.health().borrow().is_connected());
    }
}

#[tokio::test]
async fn a_read_whose_connection_was_closed_is_repeated_once() {
    let scene = Scene::new().await;
    let connection = open(scene.with_certificate()).await;
    scene.server.fault(Fault::on("list", "pods").times(1).close());
    list(&connection).await.unwrap();
    assert_eq!(scene.server.count("list", "pods"), 2);

    scene.server.fault(Fault::on("list", "pods").times(2).close());
    let error = list(&connection).await.unwrap_err();
    assert!(matches!(cause(&error), RequestError::Lost { .. }), "{error:?}");
    assert_eq!(scene.server.count("list", "pods"), 4);
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_is_not_repeated() {
    let scene = Scene::new().await;
    scene.pod("a");
    let connection = open(scene.with_certificate()).await;
    list(&connection).await.unwrap();
    scene.server.fault(Fault::on("patch", "pods").times(1).lose_answer());
    let pods: Api<Pod> = Api::default_namespaced(connection.client());
    let patch = json!({"metadata": {"labels": {"x": "y"}}});
    let error = pods.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap_err();
    assert!(matches!(cause(&error), RequestError::Lost { .. }), "{error:?}");
    assert_eq!(scene.server.count("patch", "pods"), 1);
}

#[tokio::test]
async fn a_busy_server_gets_time_from_all_but_what_is_urgent() {
    let scene = Scene::new().await;
    scene.pod("a");
    let connection = open(scene.with_certificate()).await;
    let nodes: Api<Node> = Api::all(connection.client());
    let params = ListParams::default();
    scene.server.fault(Fault::on("list", "nodes").times(1).status(429).retry_after(2));
    let asked = Instant::now();
    let error = nodes.list(&params).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 429), "not hidden");
    nodes.list(&params).await.unwrap();
    assert!(asked.elapsed() >= Duration::from_secs(2), "{:?}", asked.elapsed());

    // Longer than any machine takes for what follows.
    scene.server.fault(Fault::on("list", "nodes").times(1).status(429).retry_after(60));
    nodes.list(&params).await.unwrap_err();
    let pods: Api<Pod> = Api::default_namespaced(connection.client());
    let patch = json!({"status": {"phase": "Running"}});
    let urgent = async {
        // A shutdown waits for what the pods' list and watch tell.
        list(&connection).await.unwrap();
        let params = PatchParams::default();
        pods.patch_status("a", &params, &Patch::Strategic(&patch)).await.unwrap();
        assert_eq!(connection.waiting(), 1, "the other one still waits");
    };
    tokio::select! {
        biased;
        _ = nodes.list(&params) => panic!("it is not urgent"),
        () = urgent => {}
    }
    assert_eq!(connection.waiting(), 0);
}

#[tokio::test]
async fn clocks_that_differ_are_noticed_and_the_servers_is_known() {
    let scene = Scene::new().await;
    scene.server.set_clock_skew(jiff::SignedDuration::from_mins(7));
    scene.write("token", &scene.server.new_token(NODE, &[], None));
    let connection = open(scene.kubeconfig(&json!({"tokenFile": "token"}))).await;
    let ahead = connection.api_clock().now().duration_since(wall().now());
    assert!(ahead.as_secs() < 60, "unknown, it is taken to be this node's: {ahead:?}");
    list(&connection).await.unwrap();
    let ahead = connection.api_clock().now().duration_since(wall().now()).as_secs();
    assert!((410..430).contains(&ahead), "{ahead} s");
}

#[tokio::test]
async fn a_load_balancer_without_a_server_is_an_outage_and_a_refusal_is_none() {
    let scene = Scene::new().await;
    let connection = open(scene.with_certificate()).await;
    scene.server.deny("list", "pods");
    list(&connection).await.unwrap_err();
    assert!(connection.health().borrow().is_connected());

    scene.server.fault(Fault::on("list", "pods").times(1).status(503));
    list(&connection).await.unwrap_err();
    let why = text(&connection.health().borrow().state);
    assert_eq!(&*why, "the answer is 503 Service Unavailable");
}
