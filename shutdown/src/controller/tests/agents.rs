//! A node on which agents are killed and replaced.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use winddown_shared::testing::{FakeInhibitor, FakeRecorder};
use winddown_shared::{
    Inhibitor, InhibitorState, MachineState, Notice, NoticeState, ShutdownKind, ShutdownWork,
    WallClock,
};

use super::world::{Disk, Fault, Reports, World};
use crate::tests::secs;
use crate::{
    AdmissionGate, BootClock, Policy, ProgressPhase, ProgressSender, RecordStore, RunRecord,
    ShutdownController, ShutdownParts, Trigger, UnitStop,
};

/// A login manager that counts how often the lock was really released.
#[derive(Clone)]
pub(super) struct Lock {
    pub(super) fake: FakeInhibitor,
    world: World,
    gone: Arc<AtomicUsize>,
}

impl Inhibitor for Lock {
    fn state(&self) -> watch::Receiver<InhibitorState> {
        self.fake.state()
    }

    fn machine(&self) -> BoxFuture<'_, MachineState> {
        self.fake.machine()
    }

    fn release(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.world.0.fuse.pass(Fault::Release { gone: false }).await;
            let held = self.fake.is_held();
            self.fake.release().await;
            self.gone.fetch_add(usize::from(held && !self.fake.is_held()), Ordering::SeqCst);
            self.world.0.fuse.pass(Fault::Release { gone: true }).await;
        })
    }
}

/// A node: its pods, its disk, its login manager, and an agent now and then.
pub(super) struct Site {
    pub(super) world: World,
    pub(super) lock: Lock,
    pub(super) disk: Arc<Disk>,
    pub(super) places: Vec<Arc<dyn RecordStore>>,
    pub(super) reports: Arc<Reports>,
    pub(super) notices: watch::Sender<NoticeState>,
    pub(super) unit_stop: watch::Sender<Option<UnitStop>>,
    pub(super) policy: watch::Sender<Arc<Policy>>,
    pub(super) recorder: FakeRecorder,
    pub(super) work: Vec<ShutdownWork>,
    /// When the system was started, by the boot clock. The boot began 77 s before the site.
    pub(super) system_start: Duration,
    origin: Instant,
    pub(super) start: Instant,
}

/// A running agent.
pub(super) struct Agent {
    pub(super) gate: AdmissionGate,
    pub(super) progress: ProgressSender,
    pub(super) stop: CancellationToken,
    pub(super) task: JoinHandle<()>,
}

impl Site {
    /// A login manager that waits for 40 s.
    pub(super) fn new(world: World, policy: Policy) -> Self {
        let lock = Lock {
            fake: FakeInhibitor::holding(secs(40)),
            world: world.clone(),
            gone: Arc::default(),
        };
        let disk = Disk::of(&world);
        Self {
            lock,
            places: vec![Arc::clone(&disk) as Arc<dyn RecordStore>],
            disk,
            reports: Reports::of(&world),
            notices: watch::Sender::default(),
            unit_stop: watch::Sender::default(),
            policy: watch::Sender::new(Arc::new(policy)),
            recorder: FakeRecorder::default(),
            work: Vec::new(),
            system_start: Duration::ZERO,
            origin: Instant::now(),
            start: Instant::now(),
            world,
        }
    }

    /// Like [`new`](Self::new), with a place in memory in addition to the disk. `disk` is then the memory.
    pub(super) fn with_memory(world: World, policy: Policy) -> Self {
        let (disk, memory) = (Disk::behind_memory(&world), Disk::memory(&world));
        let places = vec![disk as Arc<dyn RecordStore>, Arc::clone(&memory) as _];
        Self { places, disk: memory, ..Self::new(world, policy) }
    }

    /// Starts an agent, which reads the disk as the node does.
    pub(super) fn agent(&self) -> Agent {
        let origin = self.origin;
        self.agent_by(BootClock::new(move || secs(77) + origin.elapsed()))
    }

    /// Like [`agent`](Self::agent), with its own boot clock.
    pub(super) fn agent_by(&self, boot_clock: BootClock) -> Agent {
        let carried = RunRecord::of_boot(&self.places, ("boot", &boot_clock), self.system_start);
        let (gate, progress) = (AdmissionGate::new(), ProgressSender::new());
        let controller = ShutdownController::new(ShutdownParts {
            killer: Arc::new(self.world.clone()),
            inhibitor: Arc::new(self.lock.clone()),
            notices: self.notices.subscribe(),
            unit_stop: self.unit_stop.subscribe(),
            gate: gate.clone(),
            policy: self.policy.subscribe(),
            reports: Arc::clone(&self.reports) as _,
            records: self.places.clone(),
            carried,
            state_file: None,
            objections: Arc::new(Vec::new),
            work: self.work.clone(),
            recorder: Arc::new(self.recorder.clone()),
            progress: progress.clone(),
            clock: WallClock::fixed("2026-11-20T03:44:00Z".parse().unwrap()),
            boot_clock: boot_clock.with_system_start(self.system_start),
            boot_id: "boot".into(),
            trigger: Trigger::LoginManager,
        });
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            controller.take_over().await;
            controller.run(stopped).await;
        });
        Agent { gate, progress, stop, task }
    }

    /// Simulates kill -9: the agent does nothing any more, and the next one learns of the shutdown from the
    /// login manager.
    pub(super) async fn kill(&self, agent: Agent) {
        agent.task.abort();
        let _ = agent.task.await;
        self.world.agent_is_gone();
        self.world.0.fuse.bury();
        // The threads of the dead agent end.
        sleep(Duration::from_millis(1)).await;
        self.world.0.fuse.rest();
        self.unit_stop.send_replace(None);
        self.lock.fake.modify(|state| state.since = state.preparing.then(Instant::now));
    }

    pub(super) fn prepare(&mut self) {
        self.start = Instant::now();
        self.lock.fake.prepare();
    }

    /// Stops the agent's unit because the machine goes down, without a word of the login manager.
    pub(super) fn stop_unit(&mut self) {
        self.start = Instant::now();
        let (kind, since) = (ShutdownKind::PowerOff, self.start);
        let stop =
            UnitStop { kind, since, delay: secs(40), is_limited: false, is_announced: false };
        self.unit_stop.send_replace(Some(stop));
    }

    /// Calls the shutdown off while the next record is written.
    pub(super) fn cancel_at_the_next_record(&self, agent: &Agent) {
        let (login, gate) = (self.lock.fake.clone(), agent.gate.clone());
        let mut once = true;
        let meanwhile = move || {
            if std::mem::take(&mut once) {
                login.cancel();
                // The disk is busy until the controller has learned of it.
                while gate.is_shut() {
                    std::thread::yield_now();
                }
            }
        };
        *self.disk.meanwhile.lock().unwrap() = Some(Box::new(meanwhile));
    }

    /// Gives notice that the node goes down `left` from now.
    pub(super) fn give_notice(&mut self, left: Duration) {
        self.start = Instant::now();
        self.give_notice_from("aws", left);
    }

    /// Gives notice from `source`, which replaces its earlier one, that the node goes down `left` from now.
    pub(super) fn give_notice_from(&self, source: &str, left: Duration) {
        let (since, deadline) = (Instant::now(), Instant::now() + left);
        let notice = Notice { source: source.into(), text: "spot".into(), since, deadline };
        self.notices.send_modify(|NoticeState { in_effect, .. }| {
            in_effect.retain(|other| *other.source != *source);
            in_effect.push(Arc::new(notice));
            in_effect.sort_by_key(|notice| notice.deadline);
        });
    }

    /// Withdraws the notice of [`give_notice`](Self::give_notice).
    pub(super) fn withdraw_notice(&self) {
        self.notices
            .send_replace(NoticeState { heard: ["aws".into()].into(), ..NoticeState::default() });
    }

    /// Withdraws the notice of `source`; the others stay in effect.
    pub(super) fn withdraw_notice_of(&self, source: &str) {
        self.notices.send_modify(|NoticeState { in_effect, heard, unheard }| {
            in_effect.retain(|other| *other.source != *source);
            heard.insert(source.into());
            unheard.remove(source);
        });
    }

    pub(super) async fn until(&self, offset: Duration) {
        tokio::time::sleep_until(self.start + offset).await;
    }

    pub(super) fn locks_gone(&self) -> usize {
        self.lock.gone.load(Ordering::SeqCst)
    }

    /// Returns, per pod and in the order of their first SIGTERM, when that was and the first grace period.
    pub(super) fn asked(&self) -> Vec<(String, f64, f64)> {
        let mut lives = self.world.lives();
        lives.retain(|life| !life.signals.is_empty());
        lives.sort_by_key(|life| life.signals[0].0);
        let row = |life: &super::world::Life| {
            let (at, kill_at) = life.signals[0];
            let asked = at.duration_since(self.start).as_secs_f64();
            (life.pod.name().to_string(), asked, (kill_at - at).as_secs_f64())
        };
        lives.iter().map(row).collect()
    }

    /// Asserts that no later signal gives a pod more time than the first one did or, except for rounding to
    /// whole seconds, than any other one did. A pod that has to hurry gets at least one second.
    pub(super) fn assert_no_grace_grew(&self) {
        for life in self.world.lives() {
            let Some((_, promised)) = life.signals.first().copied() else { continue };
            let mut least = promised;
            for (at, kill_at) in &life.signals {
                let shortest = *at + secs(1);
                let says = || format!("{:?}: {:?}", life.pod, life.signals);
                assert!(*kill_at <= promised.max(shortest), "{}", says());
                assert!(*kill_at <= (least + secs(1)).max(shortest), "{}", says());
                least = least.min(*kill_at);
            }
        }
    }

    /// When the agent released the node, or its run was called off.
    pub(super) async fn reach(&self, agent: &Agent, phase: ProgressPhase) -> Duration {
        let mut progress = agent.progress.subscribe();
        let reached = progress.wait_for(|progress| progress.phase == phase);
        tokio::time::timeout(secs(86_400), reached).await.expect("never reached").unwrap();
        self.start.elapsed()
    }
}

/// Tries again and again to get a pod admitted, and records when the gate allowed it.
#[derive(Clone, Default)]
pub(super) struct Arrivals(Arc<Mutex<Vec<Instant>>>);

impl Arrivals {
    pub(super) fn knock(&self, gate: &AdmissionGate) -> JoinHandle<()> {
        let (admitted, gate) = (Arc::clone(&self.0), gate.clone());
        tokio::spawn(async move {
            loop {
                if gate.check().is_ok() {
                    admitted.lock().unwrap().push(Instant::now());
                }
                sleep(Duration::from_millis(50)).await;
            }
        })
    }

    pub(super) fn admitted(&self) -> Vec<Instant> {
        self.0.lock().unwrap().clone()
    }
}
