//! A state directory that is full or hangs, and a record in memory that takes over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::testing::{FakeInhibitor, FakeKiller};
use winddown_shared::{Inhibitor, LockState, WallClock};

use super::agents::{Agent, Site};
use super::world::{Disk, Reports, World};
use super::{Memory, settle, two_fields};
use crate::tests::{pod, secs};
use crate::{
    BootClock, FileError, Outcome, Policy, ProgressPhase, RecordStore, RunPhase, RunRecord,
    ShutdownController, ShutdownParts,
};

/// A full disk that holds an old record.
struct Full;

impl RecordStore for Full {
    fn write(&self, _: &RunRecord) -> Result<(), FileError> {
        let source = std::io::ErrorKind::StorageFull.into();
        Err(FileError::Io { what: "write", path: "/full/shutdown.json".into(), source })
    }

    fn read(&self) -> Result<Option<RunRecord>, FileError> {
        Ok(Some(crate::record::tests::record("earlier boot", 5, 9)))
    }

    fn name(&self) -> String {
        "/full/shutdown.json".into()
    }
}

/// A disk that does not answer until the test is over.
struct Hung(Mutex<mpsc::Receiver<()>>);

impl RecordStore for Hung {
    fn write(&self, _: &RunRecord) -> Result<(), FileError> {
        let _ = self.0.lock().unwrap().recv();
        Ok(())
    }

    fn read(&self) -> Result<Option<RunRecord>, FileError> {
        Ok(None)
    }

    fn name(&self) -> String {
        "/hung/shutdown.json".into()
    }
}

/// A site whose first place is `disk`.
fn site(world: World, disk: impl RecordStore) -> Site {
    let mut site = Site::new(world, two_fields(30, 10));
    site.places.insert(0, Arc::new(disk));
    site
}

#[tokio::test(start_paused = true)]
async fn with_a_full_disk_the_next_agent_goes_on_from_memory_and_the_report_says_so() {
    let world = World::with([(pod("app", None, Some(20)), secs(6))]);
    let mut site = site(world, Full);
    let first = site.agent();
    assert!(!first.gate.is_shut(), "the record of another boot is nobody's");
    settle().await;
    site.prepare();
    site.until(secs(2)).await;
    site.kill(first).await;
    let second = site.agent();
    assert!(second.gate.is_shut());
    let took = site.reach(&second, ProgressPhase::Released).await;
    assert_eq!(took, secs(6));
    let report = &site.reports.all()[0];
    assert_eq!((report.outcome, report.resumed.len()), (Outcome::Clean, 1));
    let why = "cannot save the run's record in /full/shutdown.json: cannot write \
               /full/shutdown.json: no storage space";
    assert_eq!(report.warnings[0], why);
}

/// A disk that fills up.
struct FillsUp {
    disk: Arc<Disk>,
    full: Arc<AtomicBool>,
}

impl RecordStore for FillsUp {
    fn write(&self, record: &RunRecord) -> Result<(), FileError> {
        match self.full.load(Ordering::SeqCst) {
            true => Full.write(record),
            false => self.disk.write(record),
        }
    }

    fn read(&self) -> Result<Option<RunRecord>, FileError> {
        self.disk.read()
    }

    fn name(&self) -> String {
        Full.name()
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_fills_up_in_the_middle_does_not_bring_back_its_older_record() {
    let critical = Some(crate::CRITICAL_PRIORITY);
    let world = World::with([
        (pod("app", None, Some(20)), secs(1)),
        (pod("critical", critical, Some(20)), secs(9)),
    ]);
    let full = Arc::new(AtomicBool::new(false));
    let disk = FillsUp { disk: Disk::of(&world), full: Arc::clone(&full) };
    let mut site = site(world, disk);
    let mut agent = site.agent();
    settle().await;
    site.prepare();
    // The first agent has written two records by the time the disk is full.
    for second in 2..5 {
        site.until(secs(second)).await;
        site.kill(agent).await;
        full.store(true, Ordering::SeqCst);
        agent = site.agent();
    }
    site.reach(&agent, ProgressPhase::Released).await;
    assert_eq!(
        site.reports.all()[0].resumed,
        [2, 3, 4].map(|s| Duration::from_millis(s * 1000 + 1))
    );
    site.assert_no_grace_grew();
}

/// A site whose disk refuses the report of a notice's run, which is over at once.
async fn refused() -> (Site, Agent) {
    let world = World::with([(pod("app", None, Some(20)), Duration::ZERO)]);
    let mut site = Site::with_memory(world, two_fields(30, 10));
    let agent = site.agent();
    settle().await;
    site.reports.full.store(true, Ordering::SeqCst);
    site.give_notice(secs(3600));
    site.reach(&agent, ProgressPhase::Released).await;
    site.until(secs(600)).await;
    assert_eq!(site.reports.all().len(), 0);
    (site, agent)
}

#[tokio::test(start_paused = true)]
async fn a_report_that_the_disk_refused_is_stored_when_the_disk_has_room_again() {
    let (site, _agent) = refused().await;
    site.reports.full.store(false, Ordering::SeqCst);
    site.until(secs(700)).await;
    let outcomes: Vec<_> = site.reports.all().iter().map(|report| report.outcome).collect();
    assert_eq!(outcomes, [Outcome::Clean]);
}

#[tokio::test(start_paused = true)]
async fn a_report_that_the_disk_refused_is_tried_once_more_before_the_node_goes_down() {
    let (mut site, _agent) = refused().await;
    site.reports.full.store(false, Ordering::SeqCst);
    let lock = site.lock.fake.clone();
    let held = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&held);
    *site.reports.meanwhile.lock().unwrap() =
        Some(Box::new(move || seen.store(lock.is_held(), Ordering::SeqCst)));
    site.prepare();
    site.until(secs(1)).await;
    assert_eq!((site.reports.all().len(), site.locks_gone()), (1, 1));
    assert!(held.load(Ordering::SeqCst), "it was stored before the lock was released");
}

#[tokio::test(start_paused = true)]
async fn a_report_that_the_disk_refused_does_not_replace_a_newer_one_of_its_run() {
    let (site, agent) = refused().await;
    site.withdraw_notice();
    site.reach(&agent, ProgressPhase::Cancelled).await;
    site.reports.full.store(false, Ordering::SeqCst);
    for minutes in [20, 60] {
        site.until(secs(60 * minutes)).await;
        let stayed_up: Vec<_> =
            site.reports.all().iter().map(|report| report.node_stayed_up).collect();
        assert_eq!(stayed_up, [true], "after {minutes} min");
    }
}

// On the real clock: tokio does not advance a paused one while a thread is blocked.
#[tokio::test]
async fn a_hung_disk_costs_a_quarter_of_a_second_and_no_pod_its_end() {
    let (answer, hung) = mpsc::channel();
    let world = World::with([
        (pod("app", None, Some(20)), Duration::ZERO),
        (pod("critical", Some(crate::CRITICAL_PRIORITY), Some(20)), Duration::ZERO),
    ]);
    let mut site = site(world, Hung(Mutex::new(hung)));
    let agent = site.agent();
    site.prepare();
    let took = site.reach(&agent, ProgressPhase::Released).await;
    assert!(took >= Duration::from_millis(250), "{took:?}");
    assert_eq!(site.asked().len(), 2);
    let report = &site.reports.all()[0];
    assert_eq!(report.outcome, Outcome::Clean);
    // A machine without a free processor is too slow for the place in memory too.
    let of_disk: Vec<_> = report.warnings.iter().filter(|said| said.contains("/hung/")).collect();
    assert_eq!(of_disk.len(), 1);
    assert!(of_disk[0].ends_with("the disk does not answer in time"), "{report:?}");
    assert_eq!(site.disk.phases.lock().unwrap().last(), Some(&RunPhase::Released));
    drop(answer);
}

// On the real clock, like the one above.
#[tokio::test]
async fn a_shutdown_that_is_cancelled_after_its_run_is_closed_in_memory_while_the_disk_hangs() {
    let (answer, hung) = mpsc::channel();
    let world = World::with([(pod("app", None, Some(20)), Duration::ZERO)]);
    let mut site = site(world, Hung(Mutex::new(hung)));
    let agent = site.agent();
    site.prepare();
    site.reach(&agent, ProgressPhase::Released).await;
    site.lock.fake.cancel();
    site.reach(&agent, ProgressPhase::Cancelled).await;
    assert_eq!(site.disk.phases.lock().unwrap().last(), Some(&RunPhase::Cancelled));
    drop(answer);
}

/// A node whose lock was released while the disk is busy with the report, until the sender is dropped. On the real clock,
/// like the one above.
async fn released_before_the_report() -> (Site, Agent, mpsc::Sender<()>) {
    let (answer, busy) = mpsc::channel::<()>();
    let world = World::with([(pod("app", None, Some(20)), Duration::ZERO)]);
    let mut site = Site::with_memory(world, two_fields(30, 10));
    let wait = move || _ = busy.recv();
    *site.reports.meanwhile.lock().unwrap() = Some(Box::new(wait));
    let agent = site.agent();
    site.prepare();
    let mut lock = site.lock.fake.state();
    lock.wait_for(|state| state.lock == LockState::Released).await.unwrap();
    assert_eq!(agent.progress.subscribe().borrow().phase, ProgressPhase::Ended);
    assert_eq!(site.reports.all().len(), 0);
    (site, agent, answer)
}

#[tokio::test]
async fn the_lock_does_not_wait_for_a_report_on_a_busy_disk_and_the_end_of_the_run_does() {
    let (site, agent, answer) = released_before_the_report().await;
    let last = |site: &Site| site.disk.phases.lock().unwrap().last().copied();
    assert_eq!(last(&site), Some(RunPhase::Reporting));
    drop(answer);
    site.reach(&agent, ProgressPhase::Released).await;
    assert_eq!(site.reports.all().len(), 1);
    assert_eq!(last(&site), Some(RunPhase::Released));
}

#[tokio::test]
async fn an_agent_that_dies_between_the_release_and_the_report_leaves_the_report_to_the_next() {
    let (mut site, agent, answer) = released_before_the_report().await;
    agent.task.abort();
    site.reports = Reports::of(&site.world);
    let next = site.agent();
    site.reach(&next, ProgressPhase::Released).await;
    assert_eq!(site.reports.all().len(), 1);
    drop(answer);
}

#[tokio::test(start_paused = true)]
async fn a_stored_report_is_not_called_lost_because_the_state_file_hangs() {
    let controller = ShutdownController::new(ShutdownParts {
        reports: Arc::new(Memory::default()),
        ..ShutdownParts::new(
            Arc::new(FakeKiller::default()),
            Arc::new(FakeInhibitor::holding(secs(40))),
            Policy::disabled(),
            WallClock::fixed("2026-11-20T03:44:00Z".parse().unwrap()),
            BootClock::new(Duration::default),
            "boot",
        )
    });
    let report = crate::record::tests::record("boot", 5, 9).report;
    let hung = tokio::spawn(std::future::pending());
    assert!(controller.keep(report, hung, Instant::now() + secs(2)).await);
}
