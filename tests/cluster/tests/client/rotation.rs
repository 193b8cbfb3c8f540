//! Credentials that change while they are used.

use futures_util::{StreamExt, TryStreamExt};
use kube::api::{WatchEvent, WatchParams};
use winddown_api_client::ServiceAccount;

use super::*;

#[tokio::test]
async fn requests_carry_the_certificate_and_say_who_asks() {
    let scene = Scene::new().await;
    let connection = open(scene.with_certificate()).await;
    assert_eq!(connection.health().borrow().state, ConnectionState::Unknown);
    assert_eq!(scene.server.requests().len(), 0, "opening a connection asks the server nothing");

    assert_eq!(list(&connection).await.unwrap(), 0);
    let request = &scene.server.requests()[0];
    assert_eq!(request.user, NODE);
    assert_eq!(request.user_agent, concat!("winddown/", env!("CARGO_PKG_VERSION")));
    assert!(connection.health().borrow().is_connected());
    assert!(connection.last_contact().is_some());
    assert_eq!(connection.certificate().unwrap().common_name.as_deref(), Some(NODE));
}

#[tokio::test]
async fn a_certificate_that_is_no_longer_taken_is_read_again_and_the_request_succeeds() {
    let scene = Scene::new().await;
    let connection = open(scene.with_certificate()).await;
    list(&connection).await.unwrap();

    scene.server.revoke_user(NODE);
    let error = list(&connection).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 401));
    let health = connection.health().borrow().clone();
    let why = text(&health.state);
    assert!(why.contains("node.pem") && why.ends_with("is 401: renew them"), "{why}");

    scene.new_certificate();
    scene.server.forget_requests();
    list(&connection).await.unwrap();
    let codes: Vec<_> = scene.server.requests().iter().map(|r| r.code).collect();
    assert_eq!(codes, [Some(401), Some(200)]);
    assert!(connection.health().borrow().is_connected());
}

#[tokio::test]
async fn a_token_that_is_no_longer_taken_may_have_ended_with_its_node() {
    let scene = Scene::new().await;
    let token = scene.server.new_token(NODE, &["system:nodes"], None);
    let connection = open(scene.kubeconfig(&json!({"token": token}))).await;
    list(&connection).await.unwrap();
    scene.server.revoke_token(&token);
    list(&connection).await.unwrap_err();
    let why = text(&connection.health().borrow().state);
    assert!(why.contains("is 401: make another; one that is bound to a Node"), "{why}");
}

#[tokio::test]
async fn a_certificate_that_tls_refuses_is_read_again_and_the_request_succeeds() {
    let scene = Scene::new().await;
    scene.server.set_clock_skew(jiff::SignedDuration::from_hours(-2));
    let connection = open(scene.with_certificate()).await;
    scene.server.set_clock_skew(jiff::SignedDuration::ZERO);
    let error = list(&connection).await.unwrap_err();
    assert!(matches!(cause(&error), RequestError::Lost { .. }), "{error:?}");
    let why = text(&connection.health().borrow().state);
    assert!(why.contains("it does not accept the client certificate"), "{why}");

    scene.new_certificate();
    list(&connection).await.unwrap();
}

#[tokio::test]
async fn a_watch_goes_on_while_the_certificate_is_replaced() {
    let scene = Scene::new().await;
    let config = ClusterConfig { look_every: Duration::ZERO, ..scene.with_certificate() };
    let connection = open(config).await;
    let pods: Api<Pod> = Api::all(connection.client());
    let mut watch = pods.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    scene.pod("a");
    let mut next = async || match watch.try_next().await.unwrap() {
        Some(WatchEvent::Added(pod)) => pod.metadata.name.unwrap(),
        event => panic!("{event:?}"),
    };
    assert_eq!(next().await, "a");

    let before = scene.server.connections();
    scene.new_certificate();
    list(&connection).await.unwrap();
    assert!(scene.server.connections() > before, "the new certificate has a connection of its own");
    scene.pod("b");
    assert_eq!(next().await, "b");
}

#[tokio::test]
async fn a_certificate_that_is_half_written_changes_nothing_until_it_is_whole() {
    let scene = Scene::new().await;
    let config = ClusterConfig { look_every: Duration::ZERO, ..scene.with_certificate() };
    let connection = open(config).await;
    let whole = scene.server.new_identity(NODE, &[], HOUR * 2).unwrap().pem();
    scene.write("node.pem", &whole[..whole.len() / 2]);
    list(&connection).await.unwrap();
    scene.write("node.pem", "");
    list(&connection).await.unwrap();

    let first = connection.certificate().unwrap();
    scene.write("node.pem", &whole);
    list(&connection).await.unwrap();
    assert_ne!(connection.certificate().unwrap(), first);
    assert!(scene.server.requests().iter().all(|request| request.code == Some(200)));
}

#[tokio::test]
async fn a_projected_token_is_read_again_when_it_has_expired() {
    let scene = Scene::new().await;
    let account = "system:serviceaccount:kube-system:winddown";
    let token = || scene.server.new_token(account, &[], Some(Duration::from_secs(600)));
    scene.write("token", &token());
    scene.write("ca.crt", &scene.server.ca_pem());
    scene.write("namespace", "kube-system");
    let service = ServiceAccount {
        folder: scene.dir.path().to_path_buf(),
        host: "127.0.0.1".into(),
        port: scene.server.address().port(),
    };
    let connection = open(ClusterConfig::new(Credentials::InCluster(service))).await;
    assert_eq!(connection.client().default_namespace(), "kube-system");
    list(&connection).await.unwrap();

    scene.server.set_clock_skew(jiff::SignedDuration::from_mins(11));
    list(&connection).await.unwrap_err();
    scene.write("token", &token());
    list(&connection).await.unwrap();
    let users: Vec<_> =
        scene.server.requests().into_iter().map(|r| (r.user, r.code.unwrap())).collect();
    assert_eq!(users.last(), Some(&(account.to_owned(), 200)));
    let refused = users.iter().filter(|(_, code)| *code == 401).count();
    assert_eq!(refused, 2, "one that nothing could be done about, and one that was repeated");
}

#[tokio::test]
async fn a_new_authority_of_the_server_is_read_from_its_file() {
    let scene = Scene::new().await;
    let connection = open(scene.with_certificate()).await;
    list(&connection).await.unwrap();

    scene.server.replace_authority().unwrap();
    scene.server.drop_connections();
    let error = list(&connection).await.unwrap_err();
    assert!(matches!(cause(&error), RequestError::Unreachable { .. }), "{error:?}");
    let why = text(&connection.health().borrow().state);
    assert!(why.contains("certificate"), "{why}");

    scene.write("ca.crt", &scene.server.ca_pem());
    scene.new_certificate();
    list(&connection).await.unwrap();
    assert!(connection.health().borrow().is_connected());
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_used_is_said_at_once() {
    let scene = Scene::new().await;
    let config = scene.kubeconfig(&json!({"tokenFile": "token"}));
    let error = Connection::open(config, wall()).await.unwrap_err();
    let path = scene.path("token");
    assert_eq!(error.to_string(), format!("cannot read token file {}", path.display()));
}
