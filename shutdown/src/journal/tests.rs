use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use winddown_shared::{BootClock, WallClock};

use super::writer::PlaceWriter;
use super::{Journal, RunStart};
use crate::record::tests::record;
use crate::{FileError, RecordStore, RunPhase, RunRecord};

/// A scripted place.
#[derive(Default)]
struct Place {
    name: &'static str,
    volatile: bool,
    refuses: AtomicBool,
    /// Each write waits for one message, or for the test's end.
    hangs: Mutex<Option<mpsc::Receiver<()>>>,
    /// Each write takes 40 ms instead.
    slow: AtomicBool,
    tried: AtomicUsize,
    kept: Mutex<Vec<(u64, RunPhase)>>,
}

impl Place {
    fn named(name: &'static str) -> Arc<Self> {
        Arc::new(Self { name, ..Self::default() })
    }

    fn volatile() -> Arc<Self> {
        Arc::new(Self { name: "memory", volatile: true, ..Self::default() })
    }

    fn kept(&self) -> Vec<(u64, RunPhase)> {
        self.kept.lock().unwrap().clone()
    }
}

impl RecordStore for Place {
    fn write(&self, record: &RunRecord) -> Result<(), FileError> {
        self.tried.fetch_add(1, Ordering::SeqCst);
        if let Some(go) = &*self.hangs.lock().unwrap() {
            match self.slow.load(Ordering::SeqCst) {
                true => drop(go.recv_timeout(Duration::from_millis(40))),
                false => drop(go.recv()),
            }
        }
        if self.refuses.load(Ordering::SeqCst) {
            let source = std::io::ErrorKind::StorageFull.into();
            return Err(FileError::Io { what: "write", path: self.name.into(), source });
        }
        self.kept.lock().unwrap().push((record.sequence, record.phase));
        Ok(())
    }

    fn read(&self) -> Result<Option<RunRecord>, FileError> {
        Ok(None)
    }

    fn name(&self) -> String {
        self.name.into()
    }

    fn is_volatile(&self) -> bool {
        self.volatile
    }
}

fn journal(places: &[Arc<Place>]) -> Journal {
    let places: Vec<Arc<dyn RecordStore>> =
        places.iter().map(|place| Arc::clone(place) as Arc<dyn RecordStore>).collect();
    let mut header = record("boot", 0, 0).header(Duration::ZERO);
    header.warnings.clear();
    let clock = WallClock::fixed("2026-11-20T03:44:00Z".parse().unwrap());
    Journal::new(
        header,
        clock,
        RunStart::new(Instant::now(), &BootClock::new(Duration::default)),
        &places,
    )
}

#[tokio::test]
async fn each_note_is_kept_in_the_first_place_and_counts_up() {
    let [disk, memory] = ["disk", "memory"].map(Place::named);
    let mut journal = journal(&[disk.clone(), memory.clone()]).after(4, RunPhase::LameDuck);
    journal.note(RunPhase::Ending, &[]).await;
    journal.note(RunPhase::Reporting, &[]).await;
    assert_eq!(disk.kept(), [(5, RunPhase::Ending), (6, RunPhase::Reporting)]);
    assert!(memory.kept().is_empty() && journal.header.warnings.is_empty());
    assert!(journal.is_kept());
}

#[tokio::test]
async fn a_full_disk_is_said_once_and_the_second_place_has_the_record() {
    let [disk, memory] = ["disk", "memory"].map(Place::named);
    disk.refuses.store(true, Ordering::SeqCst);
    let mut journal = journal(&[disk.clone(), memory.clone()]);
    journal.note(RunPhase::Ending, &[]).await;
    journal.note(RunPhase::Reporting, &[]).await;
    assert_eq!(memory.kept().len(), 2);
    assert_eq!(
        journal.header.warnings,
        ["cannot save the run's record in disk: cannot write disk: no storage space"]
    );
    // The disk has space again.
    disk.refuses.store(false, Ordering::SeqCst);
    journal.note(RunPhase::Released, &[]).await;
    assert_eq!(disk.kept(), [(3, RunPhase::Released)]);
}

#[tokio::test]
async fn without_any_place_that_works_the_run_goes_on() {
    let places = ["disk", "memory"].map(Place::named);
    places.iter().for_each(|place| place.refuses.store(true, Ordering::SeqCst));
    let mut journal = journal(&places);
    journal.note(RunPhase::Ending, &[]).await;
    assert!(!journal.is_kept());
    assert_eq!(journal.header.warnings.len(), 2);
}

// On the real clock: tokio does not advance a paused one while a thread is blocked.
#[tokio::test]
async fn a_hung_disk_is_waited_for_once_in_a_run() {
    let [disk, memory] = ["disk", "memory"].map(Place::named);
    let (go, hangs) = mpsc::channel();
    *disk.hangs.lock().unwrap() = Some(hangs);
    let mut journal = journal(&[disk.clone(), memory.clone()]);
    // Generous, because a busy machine may be slow.
    journal.places[1].patience = Duration::from_secs(60);
    journal.note(RunPhase::Ending, &[]).await;
    for _ in 0..100 {
        journal.note(RunPhase::Ending, &[]).await;
    }
    assert_eq!((disk.tried.load(Ordering::SeqCst), memory.kept().len()), (1, 101));
    assert_eq!(
        journal.header.warnings,
        ["cannot save the run's record in disk: the disk does not answer in time"]
    );
    // The last note tries the disk once more, if it is back.
    drop(go);
    let back = async {
        while disk.kept().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), back).await.unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let last = async {
        // The thread that hung may not have ended yet.
        while disk.kept().len() < 2 {
            journal.note_last(RunPhase::Released, &[], until, true).await;
        }
    };
    timeout(Duration::from_secs(60), last).await.unwrap();
    assert_eq!(disk.kept()[1].1, RunPhase::Released);
}

// On the real clock, for the same reason.
#[tokio::test]
async fn a_slow_disk_has_a_quarter_of_a_second_in_all() {
    let [disk, memory] = ["disk", "memory"].map(Place::named);
    let (_go, hangs) = mpsc::channel();
    *disk.hangs.lock().unwrap() = Some(hangs);
    disk.slow.store(true, Ordering::SeqCst);
    let mut journal = journal(&[disk.clone(), memory.clone()]);
    for _ in 0..20 {
        journal.note(RunPhase::Ending, &[]).await;
    }
    let tried = disk.tried.load(Ordering::SeqCst);
    assert!(tried <= 7, "{tried} of 20, 40 ms each");
    assert!(memory.kept().len() >= 13);
    assert_eq!(journal.header.warnings.len(), 1);
}

#[tokio::test]
async fn with_memory_no_step_waits_for_the_disk_which_follows_behind() {
    let (disk, memory) = (Place::named("disk"), Place::volatile());
    let (go, hangs) = mpsc::channel();
    *disk.hangs.lock().unwrap() = Some(hangs);
    let mut journal = journal(&[disk.clone(), memory.clone()]);
    // Generous, because a busy machine may be slow.
    journal.places.iter_mut().for_each(|place| place.patience = Duration::from_secs(60));
    journal.note(RunPhase::LameDuck, &[]).await;
    for _ in 0..4 {
        journal.note(RunPhase::Ending, &[]).await;
    }
    let until = Instant::now() + Duration::from_secs(60);
    journal.note_last(RunPhase::Released, &[], until, false).await;
    assert!(journal.is_kept() && journal.header.warnings.is_empty());
    assert_eq!(memory.kept().last(), Some(&(6, RunPhase::Released)));
    assert_eq!(disk.kept(), [], "it is not waited for");
    // When the disk answers again, the newest record is written; those before it are not.
    drop(go);
    let back = async {
        while disk.kept().last() != Some(&(6, RunPhase::Released)) {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), back).await.unwrap();
    assert!(disk.kept().len() <= 2, "{:?}", disk.kept());
}

#[tokio::test]
async fn without_memory_any_more_every_note_waits_for_the_disk_again() {
    let (disk, memory) = (Place::named("disk"), Place::volatile());
    let mut journal = journal(&[disk.clone(), memory.clone()]);
    journal.note(RunPhase::Ending, &[]).await;
    memory.refuses.store(true, Ordering::SeqCst);
    journal.note(RunPhase::Ending, &[]).await;
    assert_eq!(disk.kept().last(), Some(&(2, RunPhase::Ending)));
    journal.note(RunPhase::Reporting, &[]).await;
    assert_eq!(disk.kept().last(), Some(&(3, RunPhase::Reporting)));
    assert!(journal.is_kept());
    assert_eq!(journal.header.warnings.len(), 1, "{:?}", journal.header.warnings);
}

#[tokio::test]
async fn a_disk_that_refuses_what_follows_behind_is_told_with_the_next_note() {
    let (disk, memory) = (Place::named("disk"), Place::volatile());
    let mut journal = journal(&[disk.clone(), memory.clone()]);
    journal.note(RunPhase::Ending, &[]).await;
    disk.refuses.store(true, Ordering::SeqCst);
    journal.note(RunPhase::Ending, &[]).await;
    let told = async {
        while journal.header.warnings.is_empty() {
            journal.note(RunPhase::Ending, &[]).await;
        }
    };
    timeout(Duration::from_secs(60), told).await.unwrap();
    assert!(journal.is_kept());
    assert_eq!(
        journal.header.warnings,
        ["cannot save the run's record in disk: cannot write disk: no storage space"]
    );
}

#[tokio::test]
async fn a_disk_that_hangs_is_waited_for_at_the_end_alone_where_there_is_memory() {
    let (disk, memory) = (Place::named("disk"), Place::volatile());
    let (_go, hangs) = mpsc::channel();
    *disk.hangs.lock().unwrap() = Some(hangs);
    let mut journal = journal(&[disk.clone(), memory.clone()]);
    for phase in [RunPhase::Ending, RunPhase::Ending, RunPhase::Reporting] {
        journal.note(phase, &[]).await;
    }
    assert!(journal.header.warnings.is_empty(), "a step has waited for the disk");
    let until = Instant::now() + Duration::from_millis(50);
    journal.note_last(RunPhase::Released, &[], until, true).await;
    assert_eq!(memory.kept().len(), 4);
    assert_eq!(journal.header.warnings.len(), 1);
}

/// The power may be cut at any time: what is on disk says which pods had ended, up to the last second.
#[tokio::test(start_paused = true)]
async fn ends_are_kept_in_memory_at_once_and_on_disk_once_a_second_without_a_wait() {
    let (disk, memory) = (Place::named("disk"), Place::volatile());
    let mut journal = journal(&[disk.clone(), memory.clone()]);
    journal.note(RunPhase::Ending, &[]).await;
    let written = async |place: &Place, sequence| {
        // On a paused clock a timeout would not pass meanwhile.
        for _ in 0..5_000_000 {
            if place.kept().last().is_some_and(|(last, _)| *last >= sequence) {
                return;
            }
            tokio::task::yield_now().await;
            std::thread::yield_now();
        }
        panic!("{sequence} was not written to {}: {:?}", place.name, place.kept());
    };
    written(&disk, 1).await;
    let begun = Instant::now();
    for sequence in 2..=5 {
        journal.note_ends(&[]);
        written(&memory, sequence).await;
    }
    assert_eq!(begun.elapsed(), Duration::ZERO, "nothing is awaited");
    assert_eq!(disk.kept().len(), 1, "not yet: it was written to just now");
    sleep(Duration::from_secs(1)).await;
    written(&disk, 5).await;
    assert_eq!(disk.kept().len(), 2, "the newest only: {:?}", disk.kept());
    // A note that is awaited has what was waiting too, and nothing follows it.
    journal.note_ends(&[]);
    let until = Instant::now() + Duration::from_secs(60);
    journal.note_last(RunPhase::Released, &[], until, true).await;
    written(&disk, 7).await;
    let last = disk.kept().len();
    sleep(Duration::from_secs(3)).await;
    assert_eq!(disk.kept().len(), last);
    journal.note_ends(&[]);
    written(&disk, 8).await;
    let last = disk.kept().len();
    journal.note_ends(&[]);
    drop(journal);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(disk.kept().len(), last, "the run is over");
}

#[tokio::test]
async fn a_record_that_waits_does_not_follow_a_newer_one_that_came_when_it_was_due() {
    let disk = Place::named("disk");
    let writer = PlaceWriter::new(disk.clone());
    let numbered = |sequence| Arc::new(record("boot", 1000, sequence));
    writer.put(&numbered(1));
    writer.written(1).await;
    writer.put_later(&numbered(2));
    // The task that waits for the second to pass is not polled meanwhile.
    let due = Instant::now() + Duration::from_secs(1);
    while Instant::now() < due {
        std::thread::park_timeout(due - Instant::now());
    }
    writer.put_later(&numbered(3));
    writer.written(3).await;
    sleep(Duration::from_millis(1200)).await;
    let sequences: Vec<_> = disk.kept().into_iter().map(|(sequence, _)| sequence).collect();
    assert_eq!(sequences, [1, 3]);
}
