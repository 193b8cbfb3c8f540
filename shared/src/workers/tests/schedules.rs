//! The same invariants under schedules of threads: every acquisition of a lock and every wake-up is
//! a point at which another thread may run.
//!
//! Covered are the workers' lock with everything behind it, the tasks and how they are woken, the
//! waits of `kill_pod`, and the shortening of a grace period. Tokio's own primitives run as they
//! are, each call atomically: their internals are tokio's to test. Time stands still.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::future::{block_on, yield_now};
use shuttle::thread;
use tokio::time::Instant;

use super::super::{PodWorkers, completion::EndSender};
use super::{pod, request, static_pod, tries, uid, with_grace};
use crate::base::lock::schedule;
use crate::kill::grace::FAR_FUTURE;
use crate::testing::FakeRecorder;
use crate::{
    Grace, Lifecycle, NodeEndListener, Pod, PodKiller, PodStopped, PodSyncer, RuntimePod,
    RuntimeStateProvider, RuntimeView, Stop, SyncError, SyncUpdate, Synced, UpdateKind,
};

/// Steps that yield in the middle, and that must not overlap: there is one pod.
#[derive(Default)]
struct Steps {
    under_way: Arc<AtomicUsize>,
    stops_to_fail: AtomicUsize,
    syncs: AtomicUsize,
    stops: AtomicUsize,
}

struct InProgress(Arc<AtomicUsize>);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Steps {
    fn begin(&self) -> InProgress {
        let others = self.under_way.fetch_add(1, Ordering::SeqCst);
        // Not an assertion, because a panic in a step is contained. The end of the test checks it.
        if others > 0 {
            self.syncs.fetch_add(1_000_000, Ordering::SeqCst);
        }
        InProgress(self.under_way.clone())
    }

    async fn stop(&self) -> Result<PodStopped, SyncError> {
        let _under_way = self.begin();
        yield_now().await;
        self.stops.fetch_add(1, Ordering::SeqCst);
        let left = &self.stops_to_fail;
        let less = |n: usize| n.checked_sub(1);
        if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Err(SyncError::new("as scripted"));
        }
        Ok(PodStopped::default())
    }
}

impl PodSyncer for Arc<Steps> {
    async fn sync_pod(&self, _: SyncUpdate) -> Result<Synced, SyncError> {
        let _under_way = self.begin();
        self.syncs.fetch_add(1, Ordering::SeqCst);
        yield_now().await;
        Ok(Synced::default())
    }

    async fn sync_terminating_pod(&self, _: Pod, _: Stop) -> Result<PodStopped, SyncError> {
        self.stop().await
    }

    async fn sync_terminating_runtime_pod(
        &self,
        _: RuntimePod,
        _: Grace,
    ) -> Result<PodStopped, SyncError> {
        self.stop().await
    }

    async fn sync_terminated_pod(&self, _: Pod) -> Result<(), SyncError> {
        let _under_way = self.begin();
        yield_now().await;
        Ok(())
    }
}

impl RuntimeStateProvider for Arc<Steps> {
    fn runtime_view(&self, _: &crate::PodUid) -> RuntimeView {
        RuntimeView::Stopped
    }
}

impl NodeEndListener for Arc<Steps> {}

type Workers = PodWorkers<Arc<Steps>>;

/// Runs `check` under many schedules: random ones, and ones designed to uncover bugs that need few
/// switches at the right places.
fn under_schedules(check: impl Fn() + Send + Sync + 'static) {
    // Deadlines need a clock to register with; it is never advanced.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _context = runtime.enter();
    let check = Arc::new(check);
    schedule(|| {
        let same = check.clone();
        shuttle::check_random(move || same(), tries(3000) as usize);
        shuttle::check_pct(move || check(), tries(3000) as usize, 3);
    });
}

fn workers(stops_to_fail: usize) -> (Workers, Arc<Steps>) {
    let steps = Arc::new(Steps::default());
    steps.stops_to_fail.store(stops_to_fail, Ordering::SeqCst);
    let recorder = Arc::new(FakeRecorder::default());
    (PodWorkers::new(steps.clone(), recorder), steps)
}

fn together(jobs: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = jobs.into_iter().map(thread::spawn).collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

fn job(workers: &Workers, run: impl FnOnce(&Workers) + Send + 'static) -> Box<dyn FnOnce() + Send> {
    let workers = workers.clone();
    Box::new(move || run(&workers))
}

/// Simulates that much time has passed: everything that waits for its time is due.
fn pass_time(workers: &Workers) {
    let wakes = workers.inner.state.lock().due(Instant::now() + FAR_FUTURE);
    for wake in wakes {
        workers.inner.spawn(Some(wake));
    }
}

/// Desires nothing any more: everything terminates and is forgotten.
fn wind_up(workers: &Workers, steps: &Steps) {
    for _ in 0..1000 {
        workers.sync_known_pods(&HashSet::new());
        pass_time(workers);
        if workers.inner.state.lock().records.is_empty() {
            break;
        }
        thread::yield_now();
    }
    let state = workers.inner.state.lock();
    assert!(state.records.is_empty(), "a record leaked: {:?}", state.records);
    assert!(state.names.is_empty(), "a name leaked");
    assert!(state.next_due().is_none(), "a date leaked");
    drop(state);
    assert!(steps.syncs.load(Ordering::SeqCst) < 1_000_000, "two steps of one pod at once");
}

#[test]
fn every_kill_returns_beside_updates_looks_and_passes() {
    under_schedules(|| {
        let (workers, steps) = workers(0);
        let desired = HashSet::from([uid("a")]);
        workers.update(UpdateKind::Create, pod("a"), None);
        together(vec![
            job(&workers, |w| w.update(UpdateKind::Update, pod("a"), None)),
            job(&workers, |w| {
                w.resync(&uid("a"));
                block_on(w.kill_pod(pod("a"), request())).unwrap();
                assert_ne!(w.runs(&uid("a")), Some(true));
            }),
            job(&workers, |w| drop(block_on(w.kill_pod(pod("a"), with_grace(1))).unwrap())),
            job(&workers, move |w| drop(w.sync_known_pods(&desired))),
        ]);
        let before = workers.lifecycle(&uid("a"));
        assert!(before.is_some_and(|l| l >= Lifecycle::Terminated), "{before:?}");
        wind_up(&workers, &steps);
    });
}

#[test]
fn a_kill_returns_also_when_its_stop_has_to_be_tried_again() {
    under_schedules(|| {
        let (workers, steps) = workers(2);
        let done = Arc::new(AtomicUsize::new(0));
        let told = done.clone();
        workers.update(UpdateKind::Create, pod("a"), None);
        together(vec![
            job(&workers, move |w| {
                block_on(w.kill_pod(pod("a"), request())).unwrap();
                told.store(1, Ordering::SeqCst);
            }),
            job(&workers, move |w| {
                while done.load(Ordering::SeqCst) == 0 {
                    pass_time(w);
                    thread::yield_now();
                }
            }),
        ]);
        assert_eq!(steps.stops.load(Ordering::SeqCst), 3);
        wind_up(&workers, &steps);
    });
}

#[test]
fn every_kill_returns_beside_a_stray_and_a_pass_that_forgets() {
    under_schedules(|| {
        let (workers, steps) = workers(0);
        let stray = RuntimePod {
            uid: uid("a"),
            name: "a".into(),
            namespace: "default".into(),
            running: true,
            grace: None,
            requests: None,
            spec_mark: None,
        };
        together(vec![
            job(&workers, |w| w.update(UpdateKind::Create, pod("a"), None)),
            job(&workers, move |w| {
                drop(block_on(w.kill_pod(Pod::of_runtime(&stray), request())).unwrap());
            }),
            job(&workers, |w| drop(block_on(w.kill_pod(pod("a"), request())).unwrap())),
            job(&workers, |w| drop(w.sync_known_pods(&HashSet::new()))),
        ]);
        wind_up(&workers, &steps);
    });
}

#[test]
fn a_name_is_handed_over_whatever_happens_to_those_who_wait_for_it() {
    under_schedules(|| {
        let (workers, steps) = workers(0);
        // The steps of both pods must not overlap either: they share a name.
        workers.update(UpdateKind::Create, static_pod("a", "web"), None);
        together(vec![
            job(&workers, |w| w.update(UpdateKind::Create, static_pod("b", "web"), None)),
            job(&workers, |w| {
                block_on(w.kill_pod(static_pod("a", "web"), request())).unwrap();
            }),
            job(&workers, |w| w.update(UpdateKind::Update, static_pod("b", "web"), None)),
        ]);
        for _ in 0..1000 {
            if workers.lifecycle(&uid("b")) == Some(Lifecycle::Syncing) {
                break;
            }
            thread::yield_now();
        }
        assert_eq!(workers.lifecycle(&uid("b")), Some(Lifecycle::Syncing));
        wind_up(&workers, &steps);
    });
}

#[test]
fn callers_are_told_when_the_workers_go_away() {
    under_schedules(|| {
        let (workers, _) = workers(0);
        together(vec![
            job(&workers, |w| {
                // Either result is fine; none at all would be a deadlock.
                let _ = block_on(w.kill_pod(pod("a"), request()));
            }),
            job(&workers, |w| block_on(w.shut_down())),
        ]);
    });
}

#[test]
fn everyone_who_waits_for_an_end_is_told_once_it_is_there() {
    under_schedules(|| {
        let teller = EndSender::new();
        let waiters: Vec<_> = (0..3).map(|_| teller.waiter()).collect();
        let threads: Vec<_> = waiters
            .into_iter()
            .map(|waiter| thread::spawn(move || drop(block_on(waiter.wait()))))
            .collect();
        // Completed and dropped, both while the waits begin.
        teller.complete(Arc::default());
        let late = teller.waiter();
        drop(teller);
        drop(block_on(late.wait()));
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn every_shortening_of_a_grace_reaches_its_waiters() {
    under_schedules(|| {
        let now = Instant::now();
        let at = move |seconds| now + super::with_grace(seconds).grace.unwrap();
        let (sender, grace) = Grace::until(at(100));
        let sender = Arc::new(sender);
        let mut threads = Vec::new();
        for mut grace in [grace.clone(), grace] {
            threads.push(thread::spawn(move || {
                while grace.kill_at() != at(10) {
                    block_on(grace.changed());
                }
            }));
        }
        for seconds in [50, 10] {
            let sender = sender.clone();
            threads.push(thread::spawn(move || sender.shorten_to(at(seconds))));
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
