//! A certificate that has to be asked for first.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;
use winddown_api_client::{Bootstrap, RenewalState};
use winddown_apiserver::Request;

use super::*;

const BOOTSTRAP: &str = "system:bootstrap:abcdef";

/// A node that knows a bootstrap token.
fn unsigned(scene: &Scene) -> ClusterConfig {
    let token = scene.server.new_token(BOOTSTRAP, &["system:bootstrappers"], None);
    scene.write("bootstrap", &scene.server.kubeconfig_with_token(&token));
    ClusterConfig {
        answer_timeout: Duration::from_secs(20),
        ..ClusterConfig::new(Credentials::Bootstrap(Bootstrap {
            kubeconfig: scene.path("bootstrap"),
            folder: scene.path("pki"),
            node_name: "n1".into(),
        }))
    }
}

/// Runs the renewal until the guard is dropped.
fn run(connection: &Connection) -> tokio_util::sync::DropGuard {
    let stop = CancellationToken::new();
    let (connection, token) = (connection.clone(), stop.clone());
    tokio::spawn(async move { connection.run(token).await });
    stop.drop_guard()
}

async fn requested(scene: &Scene, nth: usize) -> String {
    let found = scene.server.until("a certificate is asked for", |objects| {
        let requests = objects.list("certificatesigningrequests");
        Some(requests.get(nth)?["metadata"]["name"].as_str()?.to_owned())
    });
    found.await.unwrap()
}

fn creates(request: &Request) -> bool {
    request.is("create", "certificatesigningrequests")
}

#[tokio::test]
async fn a_node_asks_for_its_certificate_and_requests_wait_for_it() {
    let scene = Scene::new().await;
    scene.server.sign_requests(None);
    let connection = open(unsigned(&scene)).await;
    let health = connection.health().borrow().clone();
    assert_eq!(&*text(&health.state), "no certificate has been requested");
    let _running = run(&connection);

    let sign = async {
        let name = requested(&scene, 0).await;
        let health = until_state(
            &connection,
            |state| matches!(state, ConnectionState::Unsigned { why } if why.contains("waits")),
        );
        let why = text(&health.await.state);
        let command = format!("`kubectl certificate approve {name}`");
        assert!(why.ends_with(&command), "{why}");
        assert!(scene.server.sign(&name, HOUR));
    };
    let (listed, ()) = tokio::join!(list(&connection), sign);
    assert_eq!(listed.unwrap(), 0);

    let users: Vec<_> = scene.server.requests().into_iter().map(|r| r.user).collect();
    assert!(users[..users.len() - 1].iter().all(|user| user == BOOTSTRAP), "{users:?}");
    assert_eq!(users.last().unwrap(), NODE);
    let mode = scene.path("pki/client.pem").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Requests go on as soon as the certificate is read; the key that it was asked for with goes after that.
    let pending = scene.path("pki/client-key.pending.pem");
    let removed = async {
        while pending.exists() {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(30), removed).await.is_ok(), "it stays");
}

#[tokio::test]
async fn what_is_asked_for_is_what_the_signer_of_node_certificates_wants() {
    let scene = Scene::new().await;
    scene.server.sign_requests(Some(HOUR));
    let connection = open(unsigned(&scene)).await;
    let _running = run(&connection);
    list(&connection).await.unwrap();
    let request = scene.server.requests().into_iter().find(creates).unwrap();
    let spec = &request.body["spec"];
    assert_eq!(spec["signerName"], "kubernetes.io/kube-apiserver-client-kubelet");
    assert_eq!(spec["usages"], json!(["digital signature", "client auth"]));
    assert_eq!(connection.certificate().unwrap().common_name.as_deref(), Some(NODE));
}

#[tokio::test]
async fn an_agent_that_is_restarted_finds_its_request_again_and_then_its_certificate() {
    let scene = Scene::new().await;
    scene.server.sign_requests(None);
    let config = unsigned(&scene);
    let connection = open(config.clone()).await;
    let running = run(&connection);
    let name = requested(&scene, 0).await;
    drop((running, connection));

    // Signed while the agent was away.
    assert!(scene.server.sign(&name, HOUR));
    let connection = open(config.clone()).await;
    let running = run(&connection);
    list(&connection).await.unwrap();
    assert_eq!(scene.server.list("certificatesigningrequests").len(), 1);
    drop((running, connection));

    let connection = open(config).await;
    list(&connection).await.unwrap();
    assert_eq!(scene.server.requests().iter().filter(|r| creates(r)).count(), 2, "one was refused");
}

#[tokio::test]
async fn a_certificate_is_renewed_with_itself_before_it_ends() {
    let scene = Scene::new().await;
    scene.server.sign_requests(Some(Duration::from_secs(6)));
    let connection = open(unsigned(&scene)).await;
    let _running = run(&connection);
    list(&connection).await.unwrap();
    let first = connection.certificate().unwrap();

    eventually("the certificate is renewed", || {
        connection.certificate().filter(|facts| facts.not_after > first.not_after)
    })
    .await;
    let asked: Vec<_> = scene.server.requests().into_iter().filter(creates).collect();
    let users: Vec<_> = asked.iter().map(|request| request.user.as_str()).collect();
    assert_eq!(users[..2], [BOOTSTRAP, NODE]);
    let wait = asked[1].at - asked[0].at;
    assert!((3..8).contains(&wait.as_secs()), "renewed after {wait:?} of 6 s");
    list(&connection).await.unwrap();
}

/// As `kubeadm join` removes the kubelet's: its token is worthless after a day.
#[tokio::test]
async fn a_certificate_is_renewed_when_its_bootstrap_kubeconfig_is_gone() {
    let scene = Scene::new().await;
    scene.server.sign_requests(Some(Duration::from_secs(6)));
    let config = unsigned(&scene);
    let connection = open(config.clone()).await;
    let running = run(&connection);
    list(&connection).await.unwrap();
    let first = connection.certificate().unwrap();
    std::fs::remove_file(scene.path("bootstrap")).unwrap();

    eventually("the certificate is renewed", || {
        connection.certificate().filter(|facts| facts.not_after > first.not_after)
    })
    .await;
    drop((running, connection));
    list(&open(config).await).await.unwrap();
}

#[tokio::test]
async fn a_certificate_that_ended_while_the_node_was_off_is_asked_for_with_the_token() {
    let scene = Scene::new().await;
    scene.server.sign_requests(Some(Duration::from_secs(3)));
    let config = unsigned(&scene);
    let connection = open(config.clone()).await;
    let running = run(&connection);
    list(&connection).await.unwrap();
    drop((running, connection));
    scene.server.sign_requests(Some(HOUR));
    scene.server.forget_requests();

    let later = WallClock::new(|| wall().now() + HOUR);
    let connection = Connection::open(config, later.clone()).await.unwrap();
    assert!(connection.certificate().unwrap().not_after < later.now());
    scene.server.set_clock_skew(jiff::SignedDuration::from_hours(1));
    let _running = run(&connection);
    let asked = eventually("it is asked for", || {
        scene.server.requests().into_iter().find(creates).map(|request| request.user)
    });
    assert_eq!(asked.await, BOOTSTRAP);
}

/// Timers stand still meanwhile: the next look at it is up to an hour away.
#[tokio::test]
async fn a_certificate_that_ended_while_the_machine_was_suspended_is_asked_for_once_it_is_refused()
{
    let scene = Scene::new().await;
    scene.server.sign_requests(Some(HOUR));
    let (asleep, slept) = (Arc::new(AtomicBool::new(false)), 2 * HOUR);
    let sleeps = Arc::clone(&asleep);
    let clock =
        move || wall().now() + if sleeps.load(Ordering::Relaxed) { slept } else { Duration::ZERO };
    let connection = Connection::open(unsigned(&scene), WallClock::new(clock)).await.unwrap();
    let _running = run(&connection);
    list(&connection).await.unwrap();
    scene.server.forget_requests();
    asleep.store(true, Ordering::Relaxed);
    scene.server.revoke_user(NODE);
    list(&connection).await.unwrap_err();
    let asked = eventually("it is asked for", || {
        scene.server.requests().into_iter().find(creates).map(|request| request.user)
    });
    assert_eq!(asked.await, BOOTSTRAP);
}

#[tokio::test]
async fn a_request_that_is_denied_is_said_with_the_reason() {
    let scene = Scene::new().await;
    scene.server.sign_requests(None);
    let connection = open(unsigned(&scene)).await;
    let _running = run(&connection);
    let name = requested(&scene, 0).await;
    assert!(scene.server.deny_request(&name));
    let health = until_state(
        &connection,
        |state| matches!(state, ConnectionState::Unsigned { why } if why.contains("denied")),
    );
    let why = text(&health.await.state);
    assert!(why.contains(&name) && why.contains("ByTheTest"), "{why}");
    assert!(!scene.path("pki/client-key.pending.pem").exists(), "the next request has a new name");
}

#[tokio::test]
async fn a_server_that_is_away_is_no_hindrance_to_starting() {
    let scene = Scene::new().await;
    let config = ClusterConfig { answer_timeout: Duration::from_secs(1), ..unsigned(&scene) };
    scene.server.cut_off().await.unwrap();
    let connection = open(config).await;
    let _running = run(&connection);
    let error = list(&connection).await.unwrap_err();
    assert!(matches!(cause(&error), RequestError::Unsigned { .. }), "{error:?}");
    let health = until_state(
        &connection,
        |state| matches!(state, ConnectionState::Unsigned { why } if why.contains("cannot reach the API server")),
    );
    health.await;

    scene.server.sign_requests(Some(HOUR));
    scene.server.come_back().await.unwrap();
    eventually("the certificate comes", || connection.certificate()).await;
}

#[tokio::test]
async fn without_a_bootstrap_kubeconfig_and_a_certificate_there_is_no_start() {
    let scene = Scene::new().await;
    let config = unsigned(&scene);
    std::fs::remove_file(scene.path("bootstrap")).unwrap();
    let error = Connection::open(config, wall()).await.unwrap_err();
    let wanted = format!("cannot read kubeconfig {}", scene.path("bootstrap").display());
    assert_eq!(error.to_string(), wanted);
}

#[tokio::test]
async fn a_certificate_that_is_not_renewed_is_told_with_what_to_do_until_it_is() {
    let scene = Scene::new().await;
    scene.server.sign_requests(Some(Duration::from_secs(20)));
    let connection = open(unsigned(&scene)).await;
    let _running = run(&connection);
    list(&connection).await.unwrap();
    assert_eq!(connection.renewal(), Some(RenewalState::default()));
    let (first, of_first) = (connection.certificate().unwrap(), requested(&scene, 0).await);
    scene.server.sign_requests(None);

    let another = scene.server.until("a new certificate is asked for", |objects| {
        let names = objects.list("certificatesigningrequests");
        let mut names = names.iter().filter_map(|one| one["metadata"]["name"].as_str());
        names.find(|name| *name != of_first).map(str::to_owned)
    });
    let name = another.await.unwrap();
    let problem = eventually("the request is told", || connection.renewal()?.problem).await;
    let wanted = format!(
        "certificate signing request {name} waits to be approved: `kubectl certificate approve {name}`"
    );
    assert_eq!(*problem, *wanted);
    assert!(scene.server.sign(&name, HOUR));
    eventually("the certificate is renewed", || {
        let renewed = connection.certificate()?.not_after > first.not_after;
        (renewed && connection.renewal()?.problem.is_none()).then_some(())
    })
    .await;
    assert_eq!(connection.renewal().unwrap().errors, 0);
}
