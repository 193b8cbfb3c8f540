//! Programs that delay a shutdown of the node through the agent's own socket.

#![allow(clippy::expect_used, clippy::panic, reason = "the helpers of tests are tests too")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use winddown_shared::status::StatusStore;
use winddown_shared::testing::FakeKiller;
use winddown_shared::{
    GateReason, GateReasons, Inhibitor as _, LockState, NodeHandle, NodeHandleParts, Plugin as _,
    PluginNotes, ShutdownPoint, ShutdownWork, VictimLock, WallClock, WallTime, WorkContext,
    WorkError, WorkRemark,
};
use winddown_systemd::{InhibitorConfig, InhibitorSocket, LogindInhibitor};

/// A timeout longer than anything here takes; only a failure reaches it.
const LIMIT: Duration = Duration::from_secs(20);

struct Node {
    folder: tempfile::TempDir,
    gate: watch::Sender<GateReasons>,
    notes: PluginNotes,
    work: Vec<ShutdownWork>,
}

/// A program connected to the socket.
struct Program(BufReader<UnixStream>);

impl Node {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(folder.path().join("s")).expect("a socket");
        let programs = futures_util::stream::unfold(listener, async |listener| {
            let next = listener.accept().await.map(|(stream, _)| stream);
            Some((next, listener))
        });
        let plugin = InhibitorSocket::new(Box::pin(programs), Duration::from_secs(5));
        let gate = watch::Sender::new(GateReasons::default());
        let notes = PluginNotes::default();
        let node = NodeHandle::new(
            plugin.name(),
            NodeHandleParts {
                killer: Arc::new(FakeKiller::with([])),
                victims: VictimLock::new(),
                gate: gate.subscribe(),
                statuses: StatusStore::default(),
                recorder: Arc::new(()),
                wall: WallClock::fixed(WallTime::UNIX_EPOCH),
                notes: notes.clone(),
            },
        );
        let work = plugin.at_shutdown(&node);
        tokio::spawn(Box::new(plugin).run(node));
        Self { folder, gate, notes, work }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    async fn ask(&self, what: Value) -> Program {
        let mut program =
            Program(BufReader::new(UnixStream::connect(self.path()).await.expect("it listens")));
        let mut line = json!({"apiVersion": "winddown.dev/v1alpha1"});
        for (name, value) in what.as_object().expect("an object") {
            line[name] = value.clone();
        }
        program.0.write_all(format!("{line}\n").as_bytes()).await.expect("written");
        program
    }

    async fn holds(&self, who: &str, turn: &str) -> Program {
        let mut program =
            self.ask(json!({"kind": "Inhibit", "who": who, "why": "flushes", "turn": turn})).await;
        assert_eq!(program.reads().await["kind"], "Granted");
        program
    }

    fn goes_down(&self) {
        let reasons: GateReasons = [GateReason::Shutdown].into_iter().collect();
        self.gate.send_replace(reasons);
    }

    /// Starts the work of one point of the shutdown.
    fn begin(
        &self,
        point: ShutdownPoint,
        within: Duration,
    ) -> tokio::task::JoinHandle<Result<(), WorkError>> {
        let work = self.work.iter().find(|work| work.point == point).expect("it has that point");
        let context = WorkContext {
            until: Instant::now() + within,
            clean: true,
            again: false,
            remark: WorkRemark::default(),
        };
        tokio::spawn(work.begin(context))
    }

    async fn says(&self, wanted: &str) {
        let mut notes = self.notes.changes();
        let said = notes.wait_for(|notes| match notes.first() {
            Some(note) => &*note.line == wanted,
            None => wanted.is_empty(),
        });
        assert!(timeout(LIMIT, said).await.is_ok(), "never {wanted:?}: {:?}", self.notes.all());
    }
}

impl Program {
    async fn reads(&mut self) -> Value {
        let mut line = String::new();
        let read = timeout(LIMIT, self.0.read_line(&mut line)).await.expect("in time");
        assert!(read.expect("a line") > 0, "it was closed");
        serde_json::from_str(&line).expect("JSON")
    }
}

#[tokio::test]
async fn each_program_is_waited_for_at_its_turn() {
    let node = Node::start();
    let mut queue = node.holds("queue", "beforePods").await;
    let disk = node.holds("disk", "afterPods").await;
    node.says("a shutdown waits for queue (flushes), disk (flushes)").await;
    node.goes_down();

    let waits = node.begin(ShutdownPoint::BeforePods, LIMIT);
    let turn = queue.reads().await;
    assert_eq!(turn["kind"], "Turn");
    assert!((15.0..=20.0).contains(&turn["seconds"].as_f64().expect("a number")), "{turn}");
    assert!(!waits.is_finished());
    drop(queue);
    assert_eq!(timeout(LIMIT, waits).await.expect("in time").expect("no panic"), Ok(()));
    node.says("a shutdown waits for disk (flushes)").await;

    let last = node.begin(ShutdownPoint::AfterPods, LIMIT);
    drop(disk);
    assert_eq!(timeout(LIMIT, last).await.expect("in time").expect("no panic"), Ok(()));
    node.says("").await;
}

#[tokio::test]
async fn one_that_does_not_let_go_is_named_and_costs_its_time() {
    let node = Node::start();
    let _queue = node.holds("queue\u{1b}[2J", "beforePods").await;
    let _disk = node.holds("disk", "afterPods").await;
    let begun = Instant::now();
    let late = node.begin(ShutdownPoint::BeforePods, Duration::from_millis(400)).await;
    let failed = WorkError::Failed("still held by queue\\x1b[2J".into());
    assert_eq!(late.expect("no panic"), Err(failed));
    assert!(begun.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn who_comes_too_late_or_asks_for_nonsense_is_refused() {
    let node = Node::start();
    for (asked, why) in [
        (json!({"kind": "Inhibit", "who": ""}), "who is 1 to 256 bytes"),
        (json!({"kind": "Inhibit", "who": "x".repeat(257)}), "who is 1 to 256 bytes"),
        (json!({"kind": "Inhibit", "who": "x", "turn": "now"}), "unknown variant"),
        (json!({"kind": "Greet"}), "unknown variant"),
        (json!({"apiVersion": "v2", "kind": "Watch"}), "is not winddown.dev/v1alpha1"),
    ] {
        let answer = node.ask(asked.clone()).await.reads().await;
        assert_eq!(answer["kind"], "Refused", "{asked}");
        assert!(answer["reason"].as_str().is_some_and(|said| said.contains(why)), "{answer}");
    }
    node.goes_down();
    let answer = node.ask(json!({"kind": "Inhibit", "who": "late"})).await.reads().await;
    assert_eq!(answer["reason"], "a shutdown is under way");
}

#[tokio::test]
async fn a_crowd_waits_until_some_go() {
    let node = Node::start();
    let mut crowd = Vec::new();
    for n in 0..64 {
        crowd.push(node.holds(&format!("program-{n}"), "afterPods").await);
    }
    let mut late = node.ask(json!({"kind": "Inhibit", "who": "late"})).await;
    assert!(timeout(Duration::from_millis(100), late.reads()).await.is_err());
    crowd.pop();
    assert_eq!(late.reads().await["kind"], "Granted");
}

#[tokio::test]
async fn another_agent_like_this_one_can_be_waited_for() {
    let node = Node::start();
    let mut config = InhibitorConfig::new(Duration::from_secs(5));
    config.socket = Some(node.path());
    let inhibitor = LogindInhibitor::start(config);
    let mut state = inhibitor.state();
    let held = state.wait_for(|state| state.lock == LockState::Held);
    timeout(LIMIT, held).await.expect("in time").expect("it lives");
    node.goes_down();
    let waits = node.begin(ShutdownPoint::AfterPods, LIMIT);
    let going = state.wait_for(|state| state.preparing);
    timeout(LIMIT, going).await.expect("in time").expect("it lives");
    inhibitor.release().await;
    assert_eq!(timeout(LIMIT, waits).await.expect("in time").expect("no panic"), Ok(()));
}
