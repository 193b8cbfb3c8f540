//! Credentials that a command gives.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::*;

const ACCOUNT: &str = "system:serviceaccount:kube-system:winddown";

impl Scene {
    /// A kubeconfig whose user is a script beside it, which leaves a line in `runs` each time.
    fn with_command(&self, script: &str) -> ClusterConfig {
        self.write(
            "give",
            &format!("#!/bin/sh\ncd \"$(dirname \"$0\")\"\necho >> runs\n{script}\n"),
        );
        std::fs::set_permissions(self.path("give"), PermissionsExt::from_mode(0o755)).unwrap();
        self.kubeconfig(&json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "./give", "args": ["token"], "interactiveMode": "Never",
        }}))
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
async fn the_command_is_run_again_when_its_credentials_have_ended() {
    let scene = Scene::new().await;
    let connection = open(scene.with_command("cat answer")).await;
    let soon = wall().now().checked_add(Duration::from_secs(20)).unwrap();
    scene.give(&scene.token(), Some(soon));
    list(&connection).await.unwrap();
    let second = scene.token();
    scene.give(&second, None);
    list(&connection).await.unwrap();
    assert_eq!(scene.runs(), 1, "it lasts for another 20 s");
    // Ten seconds ahead of the end.
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    while scene.runs() < 2 {
        assert!(tokio::time::Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(200)).await;
        list(&connection).await.unwrap();
    }
}

#[tokio::test]
async fn a_token_that_is_refused_is_replaced_but_not_for_each_request() {
    let scene = Scene::new().await;
    let connection = open(scene.with_command("cat answer")).await;
    let first = scene.token();
    scene.give(&first, None);
    list(&connection).await.unwrap();
    scene.server.revoke_token(&first);
    for _ in 0..5 {
        list(&connection).await.unwrap_err();
    }
    assert_eq!(scene.runs(), 1, "it was run less than ten seconds ago");
    let why = text(&connection.health().borrow().state);
    let wanted = "users[u].exec: the command `give token`: the answer to the credentials that it \
                  gave is 401: see whom they are for";
    assert!(why.ends_with(wanted), "{why}");
    scene.give(&scene.token(), None);
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    while list(&connection).await.is_err() {
        assert!(tokio::time::Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(scene.runs(), 2);
    assert!(connection.health().borrow().is_connected());
}

#[tokio::test]
async fn a_command_that_fails_is_told_and_tried_again() {
    let scene = Scene::new().await;
    let connection = open(scene.with_command("cat answer")).await;
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
    list(&connection).await.unwrap_err();
    assert_eq!(scene.runs(), 1, "it is left alone for ten seconds");
    scene.give(&scene.token(), None);
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    while list(&connection).await.is_err() {
        assert!(tokio::time::Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
