#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::os::unix::fs::symlink;

use serde_json::Value;
use tempfile::TempDir;
use winddown_shared::{GraceSender, KillReason, ShutdownKind, WallTime};

use super::*;

#[derive(Debug, Default)]
struct Host;

impl RunScope for Host {
    type Pod = ();
    type Container = ();
    type Run = ();

    fn is_past((): &(), (): &()) -> bool {
        false
    }
}

struct Bed {
    dir: TempDir,
    pods: Pods<Host>,
    notices: TerminationNotices,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
        let notices = TerminationNotices::start(Some(dir.path().join("notices")), wall);
        Self { dir, pods: Pods::default(), notices }
    }

    /// A pod whose containers were given a directory.
    fn pod(&self, uid: &str) -> Arc<PodEntry<Host>> {
        let uid = PodUid::new(uid);
        self.notices.make_room(&uid).unwrap();
        self.pods.get_or_new(&uid)
    }

    /// What the pod reads once everything that is due is written.
    async fn reads(&self, uid: &str) -> Option<Value> {
        let last =
            self.notices.hand_over(&PodUid::new("of-no-pod"), Deed::Withdraw, Turn::Other).unwrap();
        last.await.unwrap_err();
        let file = self.notices.file(&PodUid::new(uid)).unwrap();
        fs::read(file).ok().map(|json| serde_json::from_slice(&json).unwrap())
    }

    fn stop(&self, entry: &PodEntry<Host>, grace: u64) -> (GraceSender, Grace) {
        let (sender, grace) = Grace::until(Instant::now() + Duration::from_secs(grace));
        let grace = grace.with_reason(KillReason::Eviction);
        entry.lock().ending = Some(grace.clone());
        (sender, grace)
    }
}

fn ending(seconds: u64) -> Option<Arc<NodeEnding>> {
    Some(Arc::new(NodeEnding {
        reason: KillReason::Shutdown,
        node_action: Some(ShutdownKind::Reboot),
        deadline: Instant::now() + Duration::from_secs(seconds),
        requested_by: None,
        notice: None,
    }))
}

/// The seconds until the pod is killed, according to its notice.
fn left(notice: Option<Value>) -> i64 {
    let deadline: WallTime = notice.unwrap()["deadline"].as_str().unwrap().parse().unwrap();
    (deadline.as_millisecond() + 500) / 1000
}

#[tokio::test]
async fn pods_read_of_the_end_of_the_node_until_it_is_called_off_and_of_a_sooner_one_at_once() {
    let bed = Bed::new();
    bed.pod("a");
    let late = bed.pods.get_or_new(&PodUid::new("of-an-earlier-version"));
    bed.notices.announce(ending(60), &bed.pods);
    let notice = bed.reads("a").await.unwrap();
    assert_eq!((&notice["reason"], &notice["nodeAction"]), (&"shutdown".into(), &"reboot".into()));
    assert_eq!((notice["stopping"].clone(), left(Some(notice))), (false.into(), 60));
    assert_eq!(bed.reads("of-an-earlier-version").await, None, "its containers see no directory");
    drop(late);
    bed.notices.announce(ending(20), &bed.pods);
    assert_eq!(left(bed.reads("a").await), 20);
    // A pod that is admitted meanwhile.
    bed.notices.refresh(&bed.pod("b"));
    assert_eq!(left(bed.reads("b").await), 20);
    bed.notices.announce(None, &bed.pods);
    assert_eq!((bed.reads("a").await, bed.reads("b").await), (None, None));
}

#[tokio::test]
async fn a_pod_that_is_stopped_reads_its_own_reason_and_its_own_time_while_that_shrinks() {
    let bed = Bed::new();
    let entry = bed.pod("a");
    bed.notices.announce(ending(60), &bed.pods);
    let (sender, grace) = bed.stop(&entry, 30);
    bed.notices.tell(&entry).await;
    let notice = bed.reads("a").await.unwrap();
    assert_eq!((&notice["reason"], &notice["stopping"]), (&"eviction".into(), &true.into()));
    let of_hook = bed.notices.variables(&entry.lock());
    assert!(
        of_hook.contains(&("WINDDOWN_REASON".to_owned(), "eviction".to_owned())),
        "{of_hook:?}"
    );
    assert_eq!(left(Some(notice)), 30);
    let shortened = async {
        sender.shorten_to(Instant::now() + Duration::from_secs(5));
        while left(bed.reads("a").await) != 5 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = shortened => {}
        never = bed.notices.follow(&entry, grace) => match never {},
    }
    // Its stop continues when the shutdown is called off.
    bed.notices.announce(None, &bed.pods);
    assert_eq!(bed.reads("a").await.unwrap().get("nodeAction"), None);
    bed.notices.forget(&entry);
    assert_eq!(bed.reads("a").await, None);
    assert!(!bed.notices.file(entry.uid()).unwrap().parent().unwrap().exists());
}

#[tokio::test]
async fn the_next_agent_leaves_what_a_pod_reads_until_it_knows_how_things_stand() {
    let bed = Bed::new();
    bed.pod("a");
    bed.notices.announce(ending(60), &bed.pods);
    assert!(bed.reads("a").await.is_some());
    let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
    let next = TerminationNotices::start(bed.notices.dir.clone(), wall);
    let bed = Bed { notices: next, pods: Pods::default(), dir: bed.dir };
    let entry = bed.pod("a");
    bed.notices.refresh(&entry);
    assert!(bed.reads("a").await.is_some());
    bed.notices.announce(None, &bed.pods);
    assert_eq!(bed.reads("a").await, None);
}

#[tokio::test]
async fn what_a_pod_puts_in_the_place_of_its_file_or_directory_is_not_written_through() {
    let bed = Bed::new();
    let (a, b) = (bed.pod("a"), bed.pod("b"));
    let victim = bed.dir.path().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join(FILE), "untouched").unwrap();
    let path = bed.notices.file(a.uid()).unwrap();
    symlink(victim.join(FILE), &path).unwrap();
    let dir = bed.notices.file(b.uid()).unwrap().parent().unwrap().to_owned();
    fs::remove_dir(&dir).unwrap();
    symlink(&victim, &dir).unwrap();
    bed.notices.announce(ending(60), &bed.pods);
    assert_eq!(left(bed.reads("a").await), 60);
    assert_eq!(fs::read_to_string(victim.join(FILE)).unwrap(), "untouched");
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 1);
    for mode_of in [(&path, 0o644), (&path.parent().unwrap().to_owned(), 0o755)] {
        assert_eq!(fs::metadata(mode_of.0).unwrap().permissions().mode() & 0o777, mode_of.1);
    }
}

#[tokio::test]
async fn a_pod_ends_although_its_notice_cannot_be_written_and_no_uid_leads_elsewhere() {
    let bed = Bed::new();
    let entry = bed.pod("a");
    // A directory cannot be replaced by a file.
    fs::create_dir(bed.notices.file(entry.uid()).unwrap()).unwrap();
    let _stop = bed.stop(&entry, 30);
    let begun = Instant::now();
    bed.notices.tell(&entry).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(bed.notices.file(&PodUid::new("../a")), None);
    assert_eq!(bed.notices.make_room(&PodUid::new("..")), None);
    fs::write(bed.dir.path().join("file"), "").unwrap();
    let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
    let broken = TerminationNotices::start(Some(bed.dir.path().join("file")), wall);
    assert_eq!(broken.make_room(entry.uid()), None);
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_could_not_be_written_is_written_once_it_can_be_unless_a_newer_one_is_due() {
    let bed = Bed::new();
    let files = ["a", "b"].map(|uid| bed.notices.file(bed.pod(uid).uid()).unwrap());
    for file in &files {
        // A directory cannot be replaced by a file.
        fs::create_dir(file).unwrap();
    }
    bed.notices.announce(ending(60), &bed.pods);
    assert_eq!((bed.reads("a").await, bed.reads("b").await), (None, None));
    fs::remove_dir(&files[0]).unwrap();
    sleep(FAILED_JOBS_RETRY_DELAY * 3 / 2).await;
    let notice = serde_json::from_slice(&fs::read(&files[0]).unwrap()).unwrap();
    assert_eq!(left(Some(notice)), 60);
    fs::remove_dir(&files[1]).unwrap();
    bed.notices.announce(None, &bed.pods);
    sleep(FAILED_JOBS_RETRY_DELAY * 3 / 2).await;
    assert_eq!((bed.reads("a").await, bed.reads("b").await), (None, None));
}

#[tokio::test]
async fn without_a_directory_a_hook_is_told_all_the_same() {
    let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
    let bed = Bed { notices: TerminationNotices::start(None, wall), ..Bed::new() };
    let entry = bed.pods.get_or_new(&PodUid::new("a"));
    assert_eq!(bed.notices.file(entry.uid()), None);
    assert!(bed.notices.variables(&entry.lock()).is_empty());
    let _stop = bed.stop(&entry, 30);
    bed.notices.tell(&entry).await;
    assert_eq!(bed.notices.variables(&entry.lock()).len(), 3);
}
