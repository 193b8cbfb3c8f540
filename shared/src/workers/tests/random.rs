//! Random interleavings: the invariants hold whatever is requested in whatever order.

use std::collections::{HashMap, HashSet};
use std::task::Poll;
use std::time::Duration;

use proptest::prelude::*;
use tokio::task::JoinHandle;

use super::{Bench, bench, pod_with, settle, static_pod, tries, uid, with_grace};
use crate::testing::{Script, SyncCall, SyncStep};
use crate::{
    Event, KillError, Lifecycle, Pod, PodKiller, PodStopped, PodUid, PodWorkers, RuntimePod,
    RuntimeView, UpdateKind,
};

const PODS: u8 = 8;

#[derive(Clone, Debug)]
enum Op {
    Create(u8),
    Update(u8),
    /// The pod arrives in a terminal phase.
    Over(u8),
    Kill(u8, u8),
    /// The pod is no longer desired.
    Orphan(u8),
    /// The pod is no longer desired, and desired again at once.
    Recreate(u8),
    /// The runtime lists the pod.
    Stray(u8),
    Look(u8),
    Sleep(u16),
    /// Number of failing syncs, of failing stops, seconds that a stop takes, what is known of its containers.
    Script(u8, u8, u8, u8, u8),
    /// The agent stops and another one starts on the same runtime.
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let pod = || 0..PODS;
    prop_oneof![
        6 => pod().prop_map(Op::Create),
        4 => pod().prop_map(Op::Update),
        1 => pod().prop_map(Op::Over),
        6 => (pod(), 0..20u8).prop_map(|(p, g)| Op::Kill(p, g)),
        2 => pod().prop_map(Op::Orphan),
        2 => pod().prop_map(Op::Recreate),
        2 => pod().prop_map(Op::Stray),
        2 => pod().prop_map(Op::Look),
        6 => (1..3000u16).prop_map(Op::Sleep),
        4 => (pod(), 0..4u8, 0..3u8, 0..9u8, 0..3u8)
            .prop_map(|(p, f, s, t, v)| Op::Script(p, f, s, t, v)),
        1 => Just(Op::Restart),
    ]
}

/// The first three are static and share one name; the others are ordinary.
fn pod(p: u8) -> Pod {
    let name = format!("p{p}");
    if p < 3 { static_pod(&name, "shared") } else { pod_with(&name, &name, |_| {}) }
}

fn over(p: u8) -> Pod {
    let status = k8s_openapi::api::core::v1::PodStatus {
        phase: Some("Failed".into()),
        ..Default::default()
    };
    let mut object = pod(p).object().clone();
    object.status = Some(status);
    Pod::new(object).unwrap()
}

type Call = JoinHandle<Result<std::sync::Arc<PodStopped>, KillError>>;

/// The workers, and the data that the invariants are checked against.
struct Trial {
    bench: Bench,
    desired: HashSet<PodUid>,
    calls: Vec<Call>,
    /// The last lifecycle stage of every record.
    seen: HashMap<PodUid, (u64, Lifecycle)>,
    /// Records that were requested to terminate, by generation, with the number of steps taken until then.
    killed: HashMap<PodUid, (u64, usize)>,
    /// The number of steps that earlier agents took.
    from: usize,
}

fn syncs(call: &SyncCall, uid: &PodUid) -> bool {
    call.uid == *uid && matches!(call.step, SyncStep::Sync(_))
}

impl Trial {
    fn new() -> Self {
        let desired = (0..PODS).map(|p| pod(p).uid().clone()).collect();
        let (calls, seen, killed) = (Vec::new(), HashMap::new(), HashMap::new());
        Self { bench: bench(), desired, calls, seen, killed, from: 0 }
    }

    fn generation(&self, uid: &PodUid) -> Option<u64> {
        self.bench.workers.inner.state.lock().records.get(uid).map(|r| r.generation)
    }

    async fn apply(&mut self, op: Op) {
        let workers = self.bench.workers.clone();
        match op {
            Op::Create(p) => workers.update(UpdateKind::Create, pod(p), None),
            Op::Update(p) => workers.update(UpdateKind::Update, pod(p), None),
            Op::Over(p) => workers.update(UpdateKind::Update, over(p), None),
            Op::Kill(p, grace) => {
                let (target, request) = (pod(p), with_grace(grace.into()));
                let (syncer, from) = (self.bench.syncer.clone(), self.from);
                let begun = syncer.calls().len();
                let call = async move {
                    let uid = target.uid().clone();
                    let answer = workers.kill_pod(target, request).await;
                    // What ran before the agent started is as the script says.
                    let is_ours = syncer.calls()[from..].iter().any(|c| syncs(c, &uid));
                    let runs = is_ours && syncer.runs(&uid);
                    assert!(answer.is_err() || !runs, "it runs: {answer:?}");
                    answer
                };
                let mut call = Box::pin(call);
                // Polled once here, so that the request is made before anything else happens.
                match std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await {
                    Poll::Ready(answer) => self.calls.push(tokio::spawn(async { answer })),
                    Poll::Pending => self.calls.push(tokio::spawn(call)),
                }
                if let Some(generation) = self.generation(pod(p).uid()) {
                    let entry = (generation, begun);
                    let known = self.killed.entry(pod(p).uid().clone()).or_insert(entry);
                    if known.0 != generation {
                        *known = entry;
                    }
                }
            }
            Op::Orphan(p) => {
                self.desired.remove(pod(p).uid());
                workers.sync_known_pods(&self.desired);
                self.desired.insert(pod(p).uid().clone());
            }
            Op::Recreate(p) => {
                workers.update(UpdateKind::Create, pod(p), None);
                workers.sync_known_pods(&self.desired);
                workers.update(UpdateKind::Create, pod(p), None);
            }
            Op::Stray(p) => workers.kill_runtime_pod(&RuntimePod {
                uid: pod(p).uid().clone(),
                name: pod(p).name().clone(),
                namespace: pod(p).namespace().clone(),
                running: true,
                grace: None,
                requests: None,
                spec_mark: None,
            }),
            Op::Look(p) => {
                workers.resync(pod(p).uid());
            }
            Op::Sleep(ms) => tokio::time::sleep(Duration::from_millis(ms.into())).await,
            Op::Script(p, fails, stop_fails, takes, view) => {
                self.script(&pod(p), fails, stop_fails, takes, view);
            }
            Op::Restart => {
                drop(workers);
                self.restart().await;
            }
        }
    }

    fn script(&self, pod: &Pod, fails: u8, stop_fails: u8, takes: u8, view: u8) {
        let script = Script {
            sync_takes: Duration::from_millis(u64::from(takes) * 100),
            sync_fails: fails.into(),
            terminal: fails == 3,
            stop_takes: Duration::from_secs(takes.into()),
            stop_fails: stop_fails.into(),
            finish_fails: stop_fails.into(),
            ..Script::default()
        };
        self.bench.syncer.script(pod.uid(), script);
        let views = [RuntimeView::NotYetKnown, RuntimeView::Stopped, RuntimeView::Running];
        self.bench.syncer.set_runtime_view(pod.uid(), views[usize::from(view)]);
    }

    async fn restart(&mut self) {
        self.bench.workers.shut_down().await;
        settle().await;
        for call in self.calls.drain(..) {
            assert!(call.is_finished(), "a kill_pod outlived its workers");
        }
        self.bench.workers = PodWorkers::new(
            self.bench.syncer.clone(),
            std::sync::Arc::new(self.bench.events.clone()),
        );
        self.seen.clear();
        self.killed.clear();
        self.from = self.bench.syncer.calls().len();
    }

    /// Phases only move forward, and nothing is started that was requested to terminate.
    fn check(&mut self) {
        let state = self.bench.workers.inner.state.lock();
        for (uid, record) in &state.records {
            let now = (record.generation, record.lifecycle);
            if let Some(before) = self.seen.insert(uid.clone(), now) {
                assert!(before <= now, "{uid:?} went from {before:?} back to {now:?}");
            }
        }
        let calls = self.bench.syncer.calls();
        for (uid, (generation, from)) in &self.killed {
            let current = state.records.get(uid).is_some_and(|r| r.generation == *generation);
            let begun = calls[*from..].iter().find(|c| syncs(c, uid));
            assert!(!current || begun.is_none(), "started after its kill: {begun:?}");
        }
    }

    /// Everything comes to rest, and nothing is left behind.
    async fn finish(mut self) {
        tokio::time::sleep(Duration::from_secs(400)).await;
        self.check();
        for call in &self.calls {
            assert!(call.is_finished(), "a kill_pod did not return");
        }
        for call in self.calls.drain(..) {
            let answer = call.await.unwrap();
            let wrong = matches!(answer, Err(KillError::WorkersGone { .. }));
            assert!(!wrong, "{answer:?}");
        }
        for _ in 0..8 {
            self.bench.workers.sync_known_pods(&HashSet::new());
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        // Two simultaneous steps of one UID make the scripted syncer panic, which is a failed step.
        let panicked =
            |e: &Event| matches!(e, Event::SyncFailed { error, .. } if error.contains("panicked"));
        let events = self.bench.events.events();
        assert!(!events.iter().any(panicked), "{:?}", events.iter().find(|e| panicked(e)));
        let inner = &self.bench.workers.inner;
        let state = inner.state.lock();
        assert!(state.records.is_empty(), "a record leaked: {:?}", state.records);
        assert!(state.names.is_empty(), "a name leaked");
        assert_eq!(state.next_due(), None, "a date leaked");
        assert_eq!(inner.tasks.receiver_count(), 0, "a task leaked");
    }
}

async fn run(ops: Vec<Op>) {
    let mut trial = Trial::new();
    for op in ops {
        trial.apply(op).await;
        trial.check();
    }
    trial.finish().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: tries(10_000), ..ProptestConfig::default() })]

    /// No two steps of one UID run at once, phases only move forward, no kill is lost, every call
    /// returns, and nothing is left behind.
    #[test]
    fn promises_hold_under_any_interleaving(ops in prop::collection::vec(op(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(run(ops));
    }
}

#[test]
fn a_uid_has_the_same_text_in_every_helper() {
    assert_eq!(*pod(3).uid(), uid("p3"));
}
