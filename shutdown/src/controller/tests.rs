use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::EndingPods;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use winddown_shared::testing::{FakeInhibitor, FakeKiller, FakeRecorder};
use winddown_shared::{Inhibitor, InhibitorState, MachineState, Pod, ShutdownWork, WallClock};

use super::{ShutdownController, ShutdownParts};
use crate::FileError;
use crate::tests::secs;
use crate::{
    AdmissionGate, BootClock, Policy, Progress, ProgressPhase, ProgressSender, ReportSink,
    ShutdownReport, StateFile,
};

mod agents;
mod calling_off;
mod disks;
mod faults;
mod golden;
mod in_place;
mod killed;
mod lame_duck;
mod next_agent;
mod notices;
mod reference;
mod resume_decision;
mod starting;
mod work;
mod world;

/// A login manager that counts releases.
#[derive(Clone)]
struct Login {
    fake: FakeInhibitor,
    releases: Arc<AtomicUsize>,
}

impl Inhibitor for Login {
    fn state(&self) -> watch::Receiver<InhibitorState> {
        self.fake.state()
    }

    fn machine(&self) -> BoxFuture<'_, MachineState> {
        self.fake.machine()
    }

    fn release(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.releases.fetch_add(1, Ordering::SeqCst);
            self.fake.release().await;
        })
    }
}

/// Stores reports in memory, each with whether the lock was still held at that time.
#[derive(Default)]
struct Memory {
    kept: Mutex<Vec<(ShutdownReport, bool)>>,
    login: Option<Login>,
    /// How often storing fails before it succeeds.
    fails: Mutex<u32>,
}

impl ReportSink for Memory {
    fn keep(&self, report: &ShutdownReport) -> Result<(), FileError> {
        let held = self.login.as_ref().is_some_and(|login| login.fake.is_held());
        self.kept.lock().unwrap().push((report.clone(), held));
        let mut fails = self.fails.lock().unwrap();
        if *fails == 0 {
            return Ok(());
        }
        *fails -= 1;
        Err(FileError::Io {
            what: "write",
            path: "/full".into(),
            source: std::io::ErrorKind::StorageFull.into(),
        })
    }
}

/// A node with a controller that runs.
struct Node {
    killer: FakeKiller,
    login: Login,
    gate: AdmissionGate,
    policy: watch::Sender<Arc<Policy>>,
    recorder: FakeRecorder,
    progress: ProgressSender,
    reports: Arc<Memory>,
    stop: CancellationToken,
    task: JoinHandle<()>,
    start: Instant,
}

struct Setup {
    policy: Policy,
    delay: Duration,
    pods: Vec<Pod>,
    fail_reports: u32,
    state_file: Option<StateFile>,
    work: Vec<ShutdownWork>,
    boot_clock: BootClock,
}

fn two_fields(total: u64, critical: u64) -> Policy {
    Policy::from_periods(secs(total), secs(critical)).unwrap()
}

impl Setup {
    /// 30 s, 10 of them for critical pods, and a login manager that waits for 40 s.
    fn with(pods: impl IntoIterator<Item = Pod>) -> Self {
        Self {
            policy: two_fields(30, 10),
            delay: secs(40),
            pods: pods.into_iter().collect(),
            fail_reports: 0,
            state_file: None,
            work: Vec::new(),
            boot_clock: BootClock::new(Duration::default),
        }
    }

    fn policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    fn delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    fn start(self) -> Node {
        let killer = FakeKiller::with(self.pods.clone());
        self.start_with(killer.clone(), killer)
    }

    /// Starts with a killer other than the one that the node's helpers inspect.
    fn start_with<K: EndingPods>(self, killer: K, fake: FakeKiller) -> Node {
        let login = Login { fake: FakeInhibitor::holding(self.delay), releases: Arc::default() };
        let reports = Arc::new(Memory {
            login: Some(login.clone()),
            fails: Mutex::new(self.fail_reports),
            ..Memory::default()
        });
        let sink = Arc::clone(&reports);
        self.launch(killer, fake, login, reports, sink)
    }

    fn launch<K: EndingPods>(
        self,
        killer: K,
        fake: FakeKiller,
        login: Login,
        reports: Arc<Memory>,
        sink: Arc<dyn ReportSink>,
    ) -> Node {
        let (policy, policy_reader) = watch::channel(Arc::new(self.policy));
        let (gate, recorder) = (AdmissionGate::new(), FakeRecorder::default());
        let (progress, stop) = (ProgressSender::new(), CancellationToken::new());
        // The sender of notices is gone, which must not keep the controller from following logind.
        let controller = ShutdownController::new(ShutdownParts {
            gate: gate.clone(),
            policy: policy_reader,
            reports: sink,
            state_file: self.state_file,
            work: self.work,
            recorder: Arc::new(recorder.clone()),
            progress: progress.clone(),
            ..ShutdownParts::new(
                Arc::new(killer),
                Arc::new(login.clone()),
                Policy::disabled(),
                WallClock::fixed("2026-11-20T03:44:00.123456789Z".parse().unwrap()),
                self.boot_clock,
                "boot",
            )
        });
        let task = tokio::spawn(controller.run(stop.clone()));
        let start = Instant::now();
        let killer = fake;
        Node { killer, login, gate, policy, recorder, progress, reports, stop, task, start }
    }
}

impl Node {
    /// Announces the shutdown. Times count from here.
    fn prepare(&mut self) {
        self.start = Instant::now();
        self.login.fake.prepare();
    }

    async fn reach(&self, phase: ProgressPhase) -> Progress {
        let mut progress = self.progress.subscribe();
        let reached = progress.wait_for(|progress| progress.phase == phase);
        let reached = timeout(secs(86_400), reached).await.expect("the phase was never reached");
        reached.unwrap().clone()
    }

    /// Waits until the node is released. Returns how long that took.
    async fn released(&self) -> Duration {
        self.reach(ProgressPhase::Released).await;
        self.start.elapsed()
    }

    async fn until(&self, offset: Duration) {
        sleep_until(self.start + offset).await;
    }

    /// The name, second and grace period of each kill, in order.
    fn asked(&self) -> Vec<(String, f64, u64)> {
        let calls = self.killer.calls();
        let ask = |call: &winddown_shared::testing::KillCall| {
            let at = call.at.duration_since(self.start).as_secs_f64();
            (call.pod.name().to_string(), at, call.request.grace.unwrap().as_secs())
        };
        calls.iter().map(ask).collect()
    }

    fn reports(&self) -> Vec<ShutdownReport> {
        self.reports.kept.lock().unwrap().iter().map(|(report, _)| report.clone()).collect()
    }

    fn releases(&self) -> usize {
        self.login.releases.load(Ordering::SeqCst)
    }
}

fn asked(rows: &[(&str, f64, u64)]) -> Vec<(String, f64, u64)> {
    rows.iter().map(|(name, at, grace)| ((*name).to_string(), *at, *grace)).collect()
}

/// Runs all tasks that are ready.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}
