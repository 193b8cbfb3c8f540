//! The inhibitor against a socket that takes logind's place.

#![allow(clippy::expect_used, clippy::panic, reason = "the helpers of tests are tests too")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use winddown_shared::{Inhibitor as _, InhibitorState, LockState, ShutdownKind};
use winddown_systemd::{InhibitorConfig, LogindInhibitor};

/// A timeout longer than anything here takes; only a failure reaches it.
const LIMIT: Duration = Duration::from_secs(20);

/// A server that grants locks, like another agent on the node.
struct Server {
    folder: tempfile::TempDir,
    told: watch::Sender<Told>,
    serving: Option<AbortHandle>,
}

#[derive(Clone, Default)]
struct Told {
    /// Additional fields of the line.
    more: BTreeMap<&'static str, Value>,
    held: BTreeMap<u64, String>,
    granted: u64,
    refuses: Option<&'static str>,
    lists_none: bool,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let told = Told {
            more: BTreeMap::from([("preparing", json!(false)), ("delaySeconds", json!(25.5))]),
            ..Told::default()
        };
        let mut server = Self { folder, told: watch::Sender::new(told), serving: None };
        server.serve();
        server
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("shutdown.sock")
    }

    /// Restarts the server: earlier connections are closed.
    fn serve(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
        }
        let _ = std::fs::remove_file(self.path());
        self.told.send_modify(|told| told.held.clear());
        let listener = UnixListener::bind(self.path()).expect("a socket");
        let told = self.told.clone();
        let serving = tokio::spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                clients.spawn(answer(client, told.clone()));
            }
        });
        self.serving = Some(serving.abort_handle());
    }

    fn say(&self, more: &[(&'static str, Value)]) {
        self.told.send_modify(|told| told.more.extend(more.iter().cloned()));
    }

    fn inhibitor(&self) -> LogindInhibitor {
        let mut config = InhibitorConfig::new(Duration::from_secs(60));
        config.socket = Some(self.path());
        config.method_timeout = Duration::from_millis(500);
        LogindInhibitor::start(config)
    }

    async fn holds(&self, locks: usize) {
        let mut told = self.told.subscribe();
        let held = tokio::time::timeout(LIMIT, told.wait_for(|told| told.held.len() == locks));
        assert!(held.await.is_ok(), "never {locks} locks");
    }
}

async fn answer(client: UnixStream, told: watch::Sender<Told>) {
    let mut client = BufReader::new(client);
    let mut line = String::new();
    client.read_line(&mut line).await.expect("a line");
    let asked: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(asked["apiVersion"], "winddown.dev/v1alpha1");
    let mut answer = json!({"apiVersion": "winddown.dev/v1alpha1"});
    if asked["kind"] == "Watch" {
        let mut told = told.subscribe();
        loop {
            let now = told.borrow_and_update().clone();
            answer["kind"] = json!("Shutdown");
            if !now.lists_none {
                let held = now.held.iter().map(|(id, who)| json!({"id": id, "who": who}));
                answer["inhibitors"] = held.collect();
            }
            for (name, value) in now.more {
                answer[name] = value;
            }
            if client.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
                return;
            }
            tokio::select! {
                _ = client.read_u8() => return,
                changed = told.changed() => changed.expect("the server lives"),
            }
        }
    }
    assert_eq!(asked["kind"], "Inhibit");
    if let Some(reason) = told.borrow().refuses {
        answer["kind"] = json!("Refused");
        answer["reason"] = json!(reason);
    }
    if answer["kind"].is_null() {
        let who = asked["who"].as_str().expect("a name").to_owned();
        told.send_modify(|told| {
            told.granted += 1;
            told.held.insert(told.granted, who);
        });
        answer["kind"] = json!("Granted");
        answer["id"] = json!(told.borrow().granted);
    }
    client.write_all(format!("{answer}\n").as_bytes()).await.expect("written");
    let _ = client.read_u8().await;
    told.send_modify(|told| drop(told.held.remove(&answer["id"].as_u64().unwrap_or_default())));
}

async fn until(
    inhibitor: &LogindInhibitor,
    what: &str,
    wanted: impl FnMut(&InhibitorState) -> bool,
) -> InhibitorState {
    let mut state = inhibitor.state();
    let now = state.clone();
    match tokio::time::timeout(LIMIT, state.wait_for(wanted)).await {
        Ok(state) => state.expect("the inhibitor lives").clone(),
        Err(_) => panic!("never {what}; the state is {:?}", *now.borrow()),
    }
}

fn is_held(state: &InhibitorState) -> bool {
    state.lock == LockState::Held
}

#[tokio::test]
async fn a_shutdown_waits_for_the_connection_that_is_the_lock() {
    let server = Server::start();
    let inhibitor = server.inhibitor();
    let known = |state: &InhibitorState| is_held(state) && state.delay.is_some();
    let held = until(&inhibitor, "held", known).await;
    assert_eq!((held.preparing, held.delay), (false, Some(Duration::from_millis(25_500))));
    server.holds(1).await;

    let kind = ("type", json!("reboot"));
    server.say(&[("preparing", json!(true)), kind, ("message", json!("new kernel"))]);
    let told = until(&inhibitor, "told", |state| state.request.is_some()).await;
    assert!(told.preparing && is_held(&told));
    assert_eq!((told.kind, told.epoch), (ShutdownKind::Reboot, 1));
    assert_eq!(
        told.request.and_then(|request| request.message.clone()).as_deref(),
        Some("new kernel")
    );

    inhibitor.release().await;
    server.holds(0).await;
    assert_eq!(inhibitor.state().borrow().lock, LockState::Released);
}

#[tokio::test]
async fn a_shutdown_that_is_called_off_is_heard_and_the_lock_taken_again() {
    let server = Server::start();
    let inhibitor = server.inhibitor();
    until(&inhibitor, "held", is_held).await;
    server.say(&[("preparing", json!(true))]);
    until(&inhibitor, "preparing", |state| state.preparing).await;
    inhibitor.release().await;
    server.say(&[("preparing", json!(false))]);
    until(&inhibitor, "held again", |state| !state.preparing && is_held(state)).await;
    server.holds(1).await;
}

#[tokio::test]
async fn a_server_that_is_started_again_gets_the_lock_taken_anew() {
    let mut server = Server::start();
    let inhibitor = server.inhibitor();
    until(&inhibitor, "held", is_held).await;
    server.serve();
    until(&inhibitor, "lost", |state| !is_held(state)).await;
    until(&inhibitor, "held again", is_held).await;
    server.holds(1).await;
}

/// The list of locks is optional: without it, the inhibitor cannot check that its lock is still held.
#[tokio::test]
async fn a_server_that_lists_no_locks_gets_the_lock_taken_anew_too() {
    let mut server = Server::start();
    server.told.send_modify(|told| told.lists_none = true);
    let inhibitor = server.inhibitor();
    until(&inhibitor, "held", is_held).await;
    server.serve();
    server.holds(1).await;
    until(&inhibitor, "held again", is_held).await;
}

#[tokio::test]
async fn a_server_that_waits_without_a_limit_gives_a_time_that_clocks_can_count() {
    let server = Server::start();
    server.say(&[("delaySeconds", json!(i64::MAX))]);
    let inhibitor = server.inhibitor();
    let held = until(&inhibitor, "held", |state| is_held(state) && state.delay.is_some()).await;
    let delay = held.delay.expect("known");
    assert!(tokio::time::Instant::now().checked_add(delay * 2).is_some(), "{delay:?}");
}

#[tokio::test]
async fn what_cannot_be_believed_is_said_and_tried_again() {
    let server = Server::start();
    let wrong = [
        (("apiVersion", json!("v2")), "is not winddown.dev/v1alpha1"),
        (("delaySeconds", json!(-1.0)), "delaySeconds -1.0"),
        (("delaySeconds", json!(1e300)), "delaySeconds 1e300"),
        (("preparing", json!("soon")), "malformed"),
        (("kind", json!("Greeting")), "malformed"),
        (("message", json!("x".repeat(70_000))), "malformed"),
    ];
    for ((name, value), said) in wrong {
        let before = server.told.borrow().more.get(name).cloned();
        server.say(&[(name, value)]);
        let inhibitor = server.inhibitor();
        let waits = |state: &InhibitorState| match &state.lock {
            LockState::Waiting { why } => why.contains(said),
            _ => false,
        };
        until(&inhibitor, said, waits).await;
        server.told.send_modify(|told| {
            told.more.remove(name);
            told.more.extend(before.map(|before| (name, before)));
        });
        until(&inhibitor, "held", is_held).await;
    }
}

#[tokio::test]
async fn a_lock_that_is_refused_is_asked_for_again() {
    let server = Server::start();
    server.told.send_modify(|told| told.refuses = Some("the node is being installed"));
    let inhibitor = server.inhibitor();
    let waits = |state: &InhibitorState| match &state.lock {
        LockState::Waiting { why } => why.contains("the node is being installed"),
        _ => false,
    };
    until(&inhibitor, "refused", waits).await;
    server.told.send_modify(|told| told.refuses = None);
    until(&inhibitor, "held", is_held).await;
}

#[tokio::test]
async fn where_there_is_no_socket_it_is_named_until_there_is_one() {
    let mut server = Server::start();
    server.serving.take().expect("it serves").abort();
    std::fs::remove_file(server.path()).expect("removed");
    let inhibitor = server.inhibitor();
    let path = server.path().display().to_string();
    let absent = |state: &InhibitorState| match &state.lock {
        LockState::Absent { why } => why.contains(&path),
        _ => false,
    };
    until(&inhibitor, "absent", absent).await;
    server.serve();
    until(&inhibitor, "held", is_held).await;
}

#[tokio::test]
async fn a_server_that_is_silent_costs_its_time_and_no_more() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("shutdown.sock");
    let listener = Arc::new(UnixListener::bind(&path).expect("a socket"));
    let mut config = InhibitorConfig::new(Duration::from_secs(60));
    config.socket = Some(path);
    config.method_timeout = Duration::from_millis(100);
    let inhibitor = LogindInhibitor::start(config);
    let silent = |state: &InhibitorState| match &state.lock {
        LockState::Waiting { why } => why.contains("no answer within"),
        _ => false,
    };
    until(&inhibitor, "silent", silent).await;
    drop(listener);
}
