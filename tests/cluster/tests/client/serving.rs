//! The certificate that a node shows to who connects to it, and whom it asks who that is.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};
use tokio::sync::watch;
use winddown_api_client::{ApiReviews, ServingCertificate};
use winddown_apiserver::Request;
use winddown_shared::Reviews;

use super::*;

fn serving(scene: &Scene, names: &[&str]) -> ServingCertificate {
    following(scene, &names_of(names))
}

fn following(scene: &Scene, names: &watch::Sender<Vec<String>>) -> ServingCertificate {
    ServingCertificate {
        folder: scene.path("pki"),
        node_name: "n1".to_owned(),
        names: names.subscribe(),
    }
}

fn names_of(names: &[&str]) -> watch::Sender<Vec<String>> {
    watch::Sender::new(names.iter().map(|&name| name.to_owned()).collect())
}

fn rename(node: &watch::Sender<Vec<String>>, names: &[&str]) {
    node.send_replace(names_of(names).borrow().clone());
}

/// The name of the request that waits to be approved, as soon as it is another one than this.
async fn waiting(running: &mut Running, than: &str) -> String {
    let told = running.told.wait_for(|why| why.contains("waits") && !why.contains(than));
    let why = tokio::time::timeout(Duration::from_secs(60), told).await.unwrap().unwrap().clone();
    why.rsplit(' ').next().unwrap().trim_end_matches('`').to_owned()
}

/// Asks and renews until it is dropped.
struct Running {
    told: watch::Receiver<String>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn run(connection: &Connection, serving: ServingCertificate) -> Running {
    run_by(wall(), connection, serving)
}

fn run_by(wall: WallClock, connection: &Connection, serving: ServingCertificate) -> Running {
    let (tell, told) = watch::channel("not asked".to_owned());
    Running { told, task: tokio::spawn(serving.run(connection.client(), wall, tell)) }
}

async fn is_there(running: &mut Running) {
    let told = running.told.wait_for(String::is_empty);
    tokio::time::timeout(Duration::from_secs(60), told).await.unwrap().unwrap();
}

fn asked(scene: &Scene) -> Vec<Request> {
    let all = scene.server.requests().into_iter();
    all.filter(|request| request.is("create", "certificatesigningrequests")).collect()
}

#[tokio::test]
async fn a_node_asks_for_a_serving_certificate_says_what_it_waits_for_and_keeps_it() {
    let scene = Scene::new().await;
    scene.server.sign_requests(None);
    let connection = open(scene.with_certificate()).await;
    let wanted = serving(&scene, &["10.0.0.5", "n1.example"]);
    let mut running = run(&connection, wanted.clone());
    let why = running.told.wait_for(|why| why.contains("waits")).await.unwrap().clone();
    let name = why.rsplit(' ').next().unwrap().trim_end_matches('`');
    assert!(why.contains(&format!("{name} waits to be approved: `kubectl certificate approve ")));
    assert!(!wanted.file().exists());
    let request = asked(&scene).remove(0);
    let spec = &request.body["spec"];
    assert_eq!(request.user, NODE);
    assert_eq!(spec["signerName"], "kubernetes.io/kubelet-serving");
    assert_eq!(spec["usages"], json!(["digital signature", "server auth"]));
    let written = request.body.to_string();
    assert!(!written.contains("PRIVATE"), "the key stays here");

    assert!(scene.server.sign(name, HOUR));
    is_there(&mut running).await;
    let file = std::fs::read_to_string(wanted.file()).unwrap();
    assert!(file.starts_with("for 10.0.0.5, n1.example\n") && file.contains("PRIVATE KEY"));
    assert_eq!(wanted.file().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    drop(running);

    let mut again = run(&connection, wanted);
    is_there(&mut again).await;
    assert_eq!(asked(&scene).len(), 1, "what is kept is good");
    drop(again);

    scene.server.sign_requests(Some(HOUR));
    let mut other = run(&connection, serving(&scene, &["10.0.0.6"]));
    is_there(&mut other).await;
    assert_eq!(asked(&scene).len(), 2, "the node has another address");
}

#[tokio::test]
async fn a_serving_certificate_is_renewed_before_it_ends() {
    let scene = Scene::new().await;
    scene.server.sign_requests(Some(HOUR));
    let connection = open(scene.with_certificate()).await;
    let node = names_of(&["10.0.0.5"]);
    let wanted = following(&scene, &node);
    let late = Arc::new(AtomicBool::new(false));
    let (real, is_late) = (wall(), Arc::clone(&late));
    let minutes = move || if is_late.load(Ordering::SeqCst) { 55 } else { 0 };
    let clock = WallClock::new(move || real.now() + Duration::from_secs(60 * minutes()));
    let mut running = run_by(clock, &connection, wanted.clone());
    is_there(&mut running).await;
    let first = std::fs::read(wanted.file()).unwrap();
    late.store(true, Ordering::SeqCst);
    // So that it looks at the clock.
    rename(&node, &["10.0.0.5"]);
    eventually("it is another one", || {
        std::fs::read(wanted.file()).ok().filter(|now| *now != first)
    })
    .await;
    assert!(running.told.borrow().is_empty(), "there was one all the time");
}

#[tokio::test]
async fn a_node_without_an_address_waits_for_one_before_it_asks_for_a_serving_certificate() {
    let scene = Scene::new().await;
    scene.server.sign_requests(Some(HOUR));
    let connection = open(scene.with_certificate()).await;
    let node = names_of(&["n1"]);
    let mut running = run(&connection, following(&scene, &node));
    running.told.wait_for(|why| why.contains("once this machine has an address")).await.unwrap();
    assert_eq!(asked(&scene).len(), 0, "no API server reaches a node by a name that no DNS has");
    rename(&node, &["10.0.0.5", "n1"]);
    is_there(&mut running).await;
    assert_eq!(asked(&scene).len(), 1);
}

#[tokio::test]
async fn a_node_whose_address_changes_shows_its_old_certificate_until_the_new_one_is_signed() {
    let scene = Scene::new().await;
    scene.server.sign_requests(Some(HOUR));
    let connection = open(scene.with_certificate()).await;
    let node = names_of(&["10.0.0.5", "n1"]);
    let wanted = following(&scene, &node);
    let kept = || std::fs::read_to_string(wanted.file()).unwrap();
    let mut running = run(&connection, wanted.clone());
    is_there(&mut running).await;
    let first = kept();

    scene.server.sign_requests(None);
    rename(&node, &["10.0.0.6", "n1"]);
    let late = waiting(&mut running, "no request").await;
    rename(&node, &["10.0.0.7", "n1"]);
    let next = waiting(&mut running, &late).await;
    assert!(kept() == first, "it serves until there is another one");
    assert!(scene.server.sign(&next, HOUR));
    is_there(&mut running).await;
    assert!(kept().starts_with("for 10.0.0.7, n1\n"));

    rename(&node, &["10.0.0.7"]);
    drop(running);
    is_there(&mut run(&connection, wanted.clone())).await;
    assert_eq!(asked(&scene).len(), 3, "a certificate for more names is good");
}

#[tokio::test]
async fn a_serving_certificate_that_is_denied_is_said() {
    let scene = Scene::new().await;
    scene.server.sign_requests(None);
    let connection = open(scene.with_certificate()).await;
    let mut running = run(&connection, serving(&scene, &["10.0.0.5"]));
    assert!(scene.server.deny_request(&waiting(&mut running, "no request").await));
    running.told.wait_for(|why| why.contains("was denied")).await.unwrap();
}

#[tokio::test]
async fn the_api_server_says_whose_a_token_is_and_what_its_user_may() {
    let scene = Scene::new().await;
    let connection = open(scene.with_certificate()).await;
    let reviews = ApiReviews::new(connection.client());
    let token = scene.server.new_token("scraper", &["figures"], None);
    let user = reviews.token(token).await.unwrap().unwrap();
    assert_eq!(user.username.as_deref(), Some("scraper"));
    assert!(user.groups.unwrap().contains(&"figures".to_owned()));
    assert!(reviews.token("forged".to_owned()).await.unwrap().is_none());

    let asked = |subresource: &str| SubjectAccessReviewSpec {
        user: Some("scraper".to_owned()),
        resource_attributes: Some(ResourceAttributes {
            verb: Some("get".to_owned()),
            resource: Some("nodes".to_owned()),
            subresource: Some(subresource.to_owned()),
            name: Some("n1".to_owned()),
            ..ResourceAttributes::default()
        }),
        ..SubjectAccessReviewSpec::default()
    };
    scene.server.deny("get", "nodes/proxy");
    assert!(reviews.access(asked("metrics")).await.unwrap());
    assert!(!reviews.access(asked("proxy")).await.unwrap());
    scene.server.deny("create", "subjectaccessreviews");
    assert!(reviews.access(asked("metrics")).await.is_err(), "no answer is no right");

    let identity = scene.server.new_identity("someone", &["group"], HOUR).unwrap();
    let der = pem::parse(identity.certificate_pem).unwrap().into_contents();
    let user = reviews.certificate(&der).unwrap();
    let (name, groups) = (user.username.as_deref(), user.groups.as_deref());
    assert_eq!((name, groups), (Some("someone"), Some(&["group".to_owned()][..])));
    assert!(reviews.certificate(b"none").is_none());
}
