//! Spools on disks of all kinds.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use winddown_shared::{PodUid, WallClock, WallTime};

use super::{Spool, SpoolError, StoredRecord, disk};

pub(crate) mod faulty;

use faulty::{FaultyDisk, Mode};

fn at(second: i64) -> WallClock {
    WallClock::fixed(WallTime::from_second(second).unwrap())
}

fn uid(text: &str) -> PodUid {
    PodUid::new(text)
}

fn real(directory: &Path) -> Spool<String> {
    Spool::new(directory.join("statuses"), 4096, at(0))
}

async fn records(spool: &Spool<String>) -> Vec<(String, String)> {
    let kept = spool.load().await.unwrap();
    kept.into_iter().map(|StoredRecord { uid, record, .. }| (uid.to_string(), record)).collect()
}

/// Waits for a removal, because `remove` does not wait for the disk.
async fn until_gone(path: &Path) {
    for _ in 0..2000 {
        if !path.exists() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{} is still there", path.display());
}

#[tokio::test]
async fn what_was_kept_is_found_by_the_next_agent_and_what_was_removed_is_not() {
    let home = TempDir::new().unwrap();
    let spool = real(home.path());
    spool.keep(&uid("a"), "1".into()).await.unwrap();
    spool.keep(&uid("b"), "1".into()).await.unwrap();
    spool.keep(&uid("a"), "2".into()).await.unwrap();
    spool.remove(&uid("b"));
    assert!(spool.has(&uid("a")) && !spool.has(&uid("b")));
    until_gone(&home.path().join("statuses/b.json")).await;
    assert_eq!(records(&real(home.path())).await, [("a".into(), "2".into())]);
}

#[tokio::test]
async fn a_uid_cannot_lead_out_of_the_directory() {
    let home = TempDir::new().unwrap();
    let spool = real(home.path());
    for text in ["../../etc/passwd", ".tmp-1-1", "", "ä/b", "a.json.bad"] {
        spool.keep(&uid(text), text.to_owned()).await.unwrap();
    }
    let mut found = records(&real(home.path())).await;
    found.sort();
    assert_eq!(found.len(), 5);
    assert!(found.iter().all(|(uid, record)| uid == record));
    let outside = std::fs::read_dir(home.path()).unwrap().count();
    assert_eq!(outside, 1, "everything is in the spool's directory");
}

#[tokio::test]
async fn what_cannot_be_read_is_set_aside_and_harms_nothing_else() {
    let home = TempDir::new().unwrap();
    let spool = real(home.path());
    spool.keep(&uid("good"), "1".into()).await.unwrap();
    let directory = home.path().join("statuses");
    let bad = [
        ("empty.json", ""),
        ("half.json", r#"{"version":1,"uid":"half","at":"1970-01-01T00:0"#),
        ("newer.json", r#"{"version":2,"uid":"newer","at":"1970-01-01T00:00:00Z","record":"x"}"#),
        ("other.json", r#"{"version":1,"uid":"other","at":"1970-01-01T00:00:00Z","record":5}"#),
    ];
    for (name, text) in bad {
        std::fs::write(directory.join(name), text).unwrap();
    }
    std::fs::write(directory.join(".tmp-0-7"), "half a rec").unwrap();
    let next = real(home.path());
    assert_eq!(records(&next).await, [("good".into(), "1".into())]);
    assert_eq!(next.stats().set_aside, 4);
    for (name, _) in bad {
        assert!(!directory.join(name).exists());
        assert!(directory.join(format!("{name}.bad")).exists(), "{name} is kept to look at");
    }
    assert!(!directory.join(".tmp-0-7").exists(), "what a power cut has left is removed");
}

#[tokio::test]
async fn no_more_are_kept_than_allowed_and_a_clock_that_is_set_drops_none() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("statuses");
    let spool = |second| Spool::<String>::new(&directory, 2, at(second));
    let first = spool(0);
    for (second, text) in ["a", "b", "c"].into_iter().enumerate() {
        // Each a second later than the one before.
        let now = i64::try_from(second).unwrap();
        let same = Spool::<String>::on(first.inner.disk.clone(), &directory, 2, at(now));
        same.keep(&uid(text), text.into()).await.unwrap();
    }
    for second in [50, 1_000_000_000, -1000] {
        let kept = records(&spool(second)).await;
        assert_eq!(kept, [("b".into(), "b".into()), ("c".into(), "c".into())], "{second}");
    }
    let small = Spool::<String>::new(home.path().join("small"), 2, at(0));
    for text in ["a", "b", "c"] {
        small.keep(&uid(text), text.into()).await.unwrap();
    }
    assert_eq!(small.stats().files, 2);
    assert!(!small.has(&uid("a")));
}

#[tokio::test]
async fn a_full_disk_is_counted_and_the_next_record_is_written_again() {
    let home = TempDir::new().unwrap();
    let disk = Arc::new(FaultyDisk::new(Mode::Full, 0..3));
    let spool = Spool::<String>::on(disk, home.path().join("statuses"), 4096, at(0));
    for text in ["a", "b"] {
        let error = spool.keep(&uid(text), "1".into()).await.unwrap_err();
        assert!(matches!(error, SpoolError::Io { .. }), "{error}");
        assert!(!spool.has(&uid(text)));
    }
    assert_eq!(spool.stats().errors, 2);
    while spool.keep(&uid("c"), "1".into()).await.is_err() {}
    assert_eq!(records(&real(home.path())).await, [("c".into(), "1".into())]);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_delays_no_caller_for_longer_than_a_second() {
    let home = TempDir::new().unwrap();
    let disk = Arc::new(FaultyDisk::new(Mode::Hang, 0..1));
    let spool = Spool::<String>::on(disk.clone(), home.path().join("statuses"), 4096, at(0));
    // The paused clock stands still during a blocking call, so it is moved by hand.
    let pod = uid("a");
    let keep = spool.keep(&pod, "1".into());
    let pass = async {
        disk.until_hanging().await;
        tokio::time::advance(Duration::from_secs(2)).await;
    };
    let (outcome, ()) = tokio::join!(keep, pass);
    assert!(matches!(outcome, Err(SpoolError::Slow { .. })));
    assert_eq!(spool.stats().errors, 1);
    disk.go_on();
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_overtaken_does_not_undo_the_newer_one() {
    let home = TempDir::new().unwrap();
    let disk = Arc::new(FaultyDisk::new(Mode::Hang, 0..1));
    let directory = home.path().join("statuses");
    std::fs::create_dir(&directory).unwrap();
    let spool = Spool::<String>::on(disk.clone(), &directory, 4096, at(0));
    let pod = uid("a");
    let newer = async {
        disk.until_hanging().await;
        spool.keep(&pod, "2".into()).await.unwrap();
        disk.go_on();
    };
    let (older, ()) = tokio::join!(spool.keep(&pod, "1".into()), newer);
    assert!(matches!(older, Err(SpoolError::Outdated { .. })), "{older:?}");
    assert_eq!(spool.stats().errors, 0, "nothing is wrong with that");
    assert_eq!(records(&real(home.path())).await, [("a".into(), "2".into())]);
}

/// Cuts the power at every disk operation in turn. Every acknowledged record exists after the boot,
/// and none is incomplete.
#[tokio::test]
async fn power_may_go_at_any_moment_of_a_write() {
    for moment in 0.. {
        let home = TempDir::new().unwrap();
        let disk = Arc::new(FaultyDisk::new(Mode::PowerCut, moment..moment + 1));
        let spool = Spool::<String>::on(disk.clone(), home.path().join("statuses"), 4096, at(0));
        let mut promised = Vec::new();
        for (pod, text) in [("a", "1"), ("b", "1"), ("a", "2")] {
            if spool.keep(&uid(pod), text.into()).await.is_ok() {
                promised.retain(|(known, _)| *known != pod);
                promised.push((pod, text));
            }
        }
        let next = real(home.path());
        let found = records(&next).await;
        assert_eq!(next.stats().set_aside, 0, "moment {moment}: nothing is half there");
        for (pod, text) in &promised {
            let found = found.iter().find(|(uid, _)| uid == pod).map(|(_, text)| text.as_str());
            assert!(found >= Some(text), "moment {moment}: {pod} is {found:?}, promised {text}");
        }
        if !disk.was_hit() {
            assert!(moment > 6, "every operation was hit");
            return;
        }
    }
}

#[test]
fn a_link_in_place_of_a_kept_status_is_not_written_through() {
    use disk::Disk as _;

    let directory = TempDir::new().unwrap();
    let (file, victim) = (directory.path().join("u1.new"), directory.path().join("victim"));
    std::fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, &file).unwrap();
    disk::RealDisk.write(&file, b"ours").unwrap();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "ours");
}

/// The agent has eight threads for all disks (`DISK_THREADS` in `node/src/service.rs`): the record of a shutdown in `/run`,
/// its report and the search for processes that survive need one of them.
#[test]
fn a_disk_that_hangs_leaves_threads_to_others_however_many_statuses_are_kept_or_removed() {
    for is_removal in [false, true] {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().max_blocking_threads(8).build().unwrap();
        let is_free = runtime.block_on(async {
            let home = TempDir::new().unwrap();
            let pods: Vec<_> = (0..8).map(|n| uid(&format!("pod-{n}"))).collect();
            if is_removal {
                let spool = real(home.path());
                for pod in &pods {
                    spool.keep(pod, "1".into()).await.unwrap();
                }
                // Stands for a hung unlink, which holds this.
                let inner = spool.inner.clone();
                let (hangs, begun) = std::sync::mpsc::channel();
                let (go_on, ends) = std::sync::mpsc::channel::<()>();
                std::thread::spawn(move || {
                    let _hangs = inner.naming.lock();
                    hangs.send(()).unwrap();
                    let _ = ends.recv();
                });
                begun.recv().unwrap();
                pods.iter().for_each(|pod| spool.remove(pod));
                let free = tokio::task::spawn_blocking(|| ());
                // The disk hangs until this is over.
                let is_free = tokio::time::timeout(Duration::from_secs(60), free).await.is_ok();
                drop(go_on);
                return is_free;
            }
            let disk = Arc::new(FaultyDisk::new(Mode::Hang, 0..100));
            let spool =
                Spool::<String>::on(disk.clone(), home.path().join("statuses"), 4096, at(0));
            let kept = pods.iter().map(|pod| spool.keep(pod, "1".into()));
            for outcome in futures_util::future::join_all(kept).await {
                assert!(matches!(outcome, Err(SpoolError::Slow { .. })));
            }
            let free = tokio::task::spawn_blocking(|| ());
            let is_free = tokio::time::timeout(Duration::from_secs(60), free).await.is_ok();
            disk.go_on();
            is_free
        });
        runtime.shutdown_background();
        assert!(is_free, "no thread is left; removals: {is_removal}");
    }
}
