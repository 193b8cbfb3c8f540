//! Credentials that a command gives.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use tokio::time::Instant;

use super::*;

const ACCOUNT: &str = "system:serviceaccount:kube-system:winddown";

/// How long the command is left alone here; the agent's ten seconds would only be waited for.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

impl Scene {
    /// A kubeconfig whose user is a script beside it, which leaves a line in `runs` each time.
    fn with_command(&self, script: &str) -> ClusterConfig {
        self.write(
            "give",
            &format!("#!/bin/sh\ncd \"$(dirname \"$0\")\"\necho >> runs\n{script}\n"),
        );
        std::fs::set_permissions(self.path("give"), PermissionsExt::from_mode(0o755)).unwrap();
        let config = self.kubeconfig(&json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "./give", "args": ["token"], "interactiveMode": "Never",
            "provideClusterInfo": true,
        }}));
        ClusterConfig { command_again_after: AGAIN_AFTER, ..config }
    }

    /// What the script shows: a token, which ends at that time.
    fn give(&self, token: &str, ends: Option<Timestamp>) {
        let answer = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": {"token": token, "expirationTimestamp": ends},
        });
        self.write("answer", &answer.to_string());
    }

    fn runs(&self) -> usize {
        std::fs::read_to_string(self.path("runs")).unwrap_or_default().lines().count()
    }

    fn token(&self) -> String {
        self.server.new_token(ACCOUNT, &[], None)
    }
}

#[tokio::test]
async fn the_command_is_run_once_for_many_requests_and_not_before_the_first() {
    let scene = Scene::new().await;
    let connection = open(scene.with_command("cat answer")).await;
    scene.give(&scene.token(), None);
    assert_eq!(scene.runs(), 0, "no start waits for it");
    let (a, b, c) = tokio::join!(list(&connection), list(&connection), list(&connection));
    assert_eq!((a.unwrap(), b.unwrap(), c.unwrap()), (0, 0, 0));
    list(&connection).await.unwrap();
    assert_eq!(scene.runs(), 1);
    assert_eq!(scene.server.requests()[0].user, ACCOUNT);
}

#[tokio::test]
async fn a_command_that_wants_to_know_the_cluster_is_given_its_address_and_authority() {
    let scene = Scene::new().await;
    let config = scene.with_command("echo \"$KUBERNETES_EXEC_INFO\" > info; cat answer");
    scene.give(&scene.token(), None);
    list(&open(config).await).await.unwrap();
    let info = std::fs::read_to_string(scene.path("info")).unwrap();
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    let cluster = &info["spec"]["cluster"];
    assert_eq!(cluster["server"], scene.server.url());
    let authority = cluster["certificate-authority-data"].clone();
    let authority: k8s_openapi::ByteString = serde_json::from_value(authority).unwrap();
    assert_eq!(authority.0, scene.server.ca_pem().as_bytes());
}

/// Asks until the command is run once more and its token is taken. It was asked after `begun`.
async fn until_run(scene: &Scene, connection: &Connection, begun: Instant) {
    let before = scene.runs();
    let end = Instant::now() + Duration::from_secs(60);
    while list(connection).await.is_err() || scene.runs() == before {
        assert!(Instant::now() < end, "it was run {} times", scene.runs());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(begun.elapsed() >= AGAIN_AFTER, "{:?}", begun.elapsed());
    assert_eq!(scene.runs(), before + 1);
}

#[tokio::test]
async fn the_command_is_run_again_when_its_credentials_have_ended() {
    let scene = Scene::new().await;
    let ahead = Arc::new(AtomicU64::new(0));
    let (set, real) = (Arc::clone(&ahead), wall());
    let clock = WallClock::new(move || {
        let ahead = Duration::from_secs(set.load(Ordering::SeqCst));
        real.now().checked_add(ahead).unwrap_or(Timestamp::MAX)
    });
    let config = scene.with_command("cat answer");
    let connection = Connection::open(config, clock).await.unwrap();
    let in_an_hour = wall().now().checked_add(HOUR).unwrap();
    scene.give(&scene.token(), Some(in_an_hour));
    let begun = Instant::now();
    list(&connection).await.unwrap();
    scene.give(&scene.token(), None);
    // A loaded machine has minutes for what follows.
    ahead.store(HOUR.as_secs() - 600, Ordering::SeqCst);
    while begun.elapsed() < AGAIN_AFTER * 2 {
        list(&connection).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(scene.runs(), 1, "it lasts for ten minutes");
    // It is asked ten seconds ahead of the end.
    ahead.store(HOUR.as_secs() - 10, Ordering::SeqCst);
    until_run(&scene, &connection, begun).await;
}

#[tokio::test]
async fn a_token_that_is_refused_is_replaced_but_not_for_each_request() {
    let scene = Scene::new().await;
    let connection = open(scene.with_command("cat answer")).await;
    let first = scene.token();
    scene.give(&first, None);
    let begun = Instant::now();
    list(&connection).await.unwrap();
    scene.server.revoke_token(&first);
    list(&connection).await.unwrap_err();
    let why = text(&connection.health().borrow().state);
    let wanted = "users[u].exec: the command `give token`: the API server rejected the \
                  credentials that it printed (401): check which user they are for";
    assert!(why.ends_with(wanted), "{why}");
    scene.give(&scene.token(), None);
    until_run(&scene, &connection, begun).await;
    assert!(connection.health().borrow().is_connected());
}

#[tokio::test]
async fn a_command_that_fails_is_told_and_tried_again() {
    let scene = Scene::new().await;
    let connection = open(scene.with_command("cat answer")).await;
    let begun = Instant::now();
    let error = list(&connection).await.unwrap_err();
    let why = match cause(&error) {
        RequestError::Unsigned { why } => why.clone(),
        other => panic!("{other}"),
    };
    let wanted = "users[u].exec: the command `give token`: it failed (exit status: 1): cat: answer: \
                  No such file or directory";
    assert!(why.ends_with(wanted), "{why}");
    assert_eq!(&*text(&connection.health().borrow().state), why);
    assert_eq!(scene.server.requests().len(), 0);
    scene.give(&scene.token(), None);
    until_run(&scene, &connection, begun).await;
}
