//! Tests with a real file and real inotify. They wait for conditions, never for times.

use std::fs;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::task::JoinHandle;
use winddown_shared::{Notice, NoticeState, Notices};

use super::*;
use crate::{NoticeAggregator, SourceStatus};

/// The timeout of a test: longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

struct Rig {
    directory: tempfile::TempDir,
    path: PathBuf,
    aggregator: NoticeAggregator,
    notices: Notices,
    task: JoinHandle<()>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn machine_clock() -> WallClock {
    // The file's own time is the file system's: the clocks must be the same one.
    #[allow(clippy::disallowed_methods, reason = "files carry the machine's wall time")]
    WallClock::new(|| WallTime::try_from(std::time::SystemTime::now()).expect("a time"))
}

/// The time since the boot on a machine that has been up for an hour.
fn up() -> BootClock {
    let origin = Instant::now();
    BootClock::new(move || Duration::from_secs(3600) + origin.elapsed())
}

/// Sets when the file was written, as a difference to now.
fn written(path: &Path, set: impl FnOnce(std::time::SystemTime) -> std::time::SystemTime) {
    let file = fs::File::options().write(true).open(path).expect("opened");
    let now = file.metadata().and_then(|m| m.modified()).expect("a time");
    file.set_modified(set(now)).expect("set");
}

impl Rig {
    async fn start(below: &str, before: Option<&str>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(below);
        if let Some(before) = before {
            fs::create_dir_all(path.parent().expect("a parent")).expect("created");
            fs::write(&path, before).expect("written");
        }
        let source = FileSource::new(&path, machine_clock(), up());
        Self::follow(directory, path, source).await
    }

    async fn follow(directory: tempfile::TempDir, path: PathBuf, source: FileSource) -> Self {
        let aggregator = NoticeAggregator::new();
        let publisher = aggregator.publisher("file", None);
        let task = tokio::spawn(source.watch(publisher));
        Self { directory, path, notices: aggregator.notices(), aggregator, task }
    }

    async fn notice(&mut self, text: &str) -> Arc<Notice> {
        let wanted =
            |state: &NoticeState| state.in_effect.first().is_some_and(|n| &*n.text == text);
        match tokio::time::timeout(LIMIT, self.notices.wait_for(wanted)).await {
            Ok(notice) => {
                notice.expect("the aggregator lives").in_effect.first().cloned().expect("some")
            }
            Err(_) => panic!("no notice {text:?}: {:?}", self.aggregator.source_statuses()),
        }
    }

    async fn withdrawn(&mut self) {
        let gone =
            tokio::time::timeout(LIMIT, self.notices.wait_for(|state| state.in_effect.is_empty()))
                .await;
        gone.expect("withdrawn in time").expect("the aggregator lives");
    }

    async fn status(&self, what: &str, wanted: impl Fn(&SourceStatus) -> bool) -> SourceStatus {
        let mut changes = self.aggregator.changes();
        loop {
            let status = self.aggregator.source_statuses().pop().expect("a place");
            if wanted(&status) {
                return status;
            }
            let changed = tokio::time::timeout(LIMIT, changes.changed()).await;
            assert!(changed.is_ok(), "never {what}: {status:?}");
        }
    }

    async fn problem(&self, part: &str) {
        let has = |s: &SourceStatus| s.problem.as_ref().is_some_and(|p| p.contains(part));
        self.status(part, has).await;
    }
}

fn left(notice: &Notice) -> Duration {
    notice.deadline.saturating_duration_since(Instant::now())
}

#[tokio::test]
async fn a_file_that_appears_changes_and_goes_is_followed() {
    let mut rig = Rig::start("notice", None).await;
    fs::write(&rig.path, "2m battery low\n").expect("written");
    let notice = rig.notice("battery low").await;
    assert!(left(&notice) <= Duration::from_secs(120) && left(&notice) > Duration::from_secs(90));
    assert_eq!(&*notice.source, "file");
    let other = rig.directory.path().join("new");
    fs::write(&other, "1m battery lower").expect("written");
    fs::rename(&other, &rig.path).expect("moved");
    let notice = rig.notice("battery lower").await;
    assert!(left(&notice) <= Duration::from_secs(60));
    fs::remove_file(&rig.path).expect("removed");
    rig.withdrawn().await;
}

#[tokio::test]
async fn a_file_that_is_there_at_the_start_counts_from_when_it_was_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notice");
    fs::write(&path, "100s old news").expect("written");
    written(&path, |now| now - Duration::from_secs(60));
    let source = FileSource::new(&path, machine_clock(), up());
    let mut rig = Rig::follow(directory, path, source).await;
    let notice = rig.notice("old news").await;
    assert!(left(&notice) <= Duration::from_secs(40), "{:?}", left(&notice));
    assert!(left(&notice) > Duration::from_secs(10), "{:?}", left(&notice));
}

#[tokio::test]
async fn directories_that_come_later_are_waited_for() {
    let mut rig = Rig::start("a/b/notice", None).await;
    fs::create_dir_all(rig.directory.path().join("a/b")).expect("created");
    fs::write(&rig.path, "5m x").expect("written");
    rig.notice("x").await;
    fs::remove_dir_all(rig.directory.path().join("a")).expect("removed");
    rig.withdrawn().await;
    fs::create_dir_all(rig.directory.path().join("a/b")).expect("created");
    fs::write(&rig.path, "5m y").expect("written");
    rig.notice("y").await;
}

#[tokio::test]
async fn what_cannot_be_read_is_told_and_changes_nothing() {
    let mut rig = Rig::start("notice", Some("5m first")).await;
    let before = rig.notice("first").await;
    for (content, part) in [
        (&b"soon\n"[..], "is no deadline"),
        (&b""[..], "it is empty"),
        (&b"\xff\xfe\x00\x01"[..], "is no deadline"),
        (&[b'9'; 100_000][..], "is no deadline"),
    ] {
        fs::write(&rig.path, content).expect("written");
        rig.problem(part).await;
        assert_eq!(
            rig.notices.borrow().in_effect.first().cloned(),
            Some(Arc::clone(&before)),
            "{part}"
        );
    }
    fs::write(&rig.path, "4m second").expect("written");
    rig.notice("second").await;
    rig.status("well", |s| s.problem.is_none()).await;
}

#[tokio::test]
async fn a_read_that_failed_once_is_forgotten_when_the_same_content_is_read_again() {
    let aggregator = NoticeAggregator::new();
    let publisher = aggregator.publisher("file", None);
    let source = FileSource::new("/notice", machine_clock(), up());
    let mut last = Last::default();
    let mut told = |text: Option<&str>| {
        let failed = || Look::Failed(io::ErrorKind::PermissionDenied.into());
        let found = |text: &str| Look::Found { text: text.to_owned(), written: None };
        source.take(text.map_or_else(failed, found), &mut last, &publisher);
        let problem = aggregator.source_statuses().pop().and_then(|status| status.problem);
        problem.as_deref().unwrap_or_default().to_owned()
    };
    for (content, problem) in [("90s text", ""), ("soon", "/notice: its first word is no deadline")]
    {
        assert!(told(Some(content)).starts_with(problem));
        assert!(told(None).starts_with("/notice cannot be read"));
        let again = told(Some(content));
        assert!(again.starts_with(problem) && again.is_empty() == problem.is_empty(), "{again}");
    }
}

#[tokio::test]
async fn a_file_that_stays_empty_is_told_and_not_read_every_second() {
    let aggregator = NoticeAggregator::new();
    let publisher = aggregator.publisher("file", None);
    let source = FileSource::new("/notice", machine_clock(), up());
    let mut last = Last::default();
    let mut pause = |text: Option<&str>| {
        let failed = || Look::Failed(io::ErrorKind::PermissionDenied.into());
        let found = |text: &str| Look::Found { text: text.to_owned(), written: None };
        source.take(text.map_or_else(failed, found), &mut last, &publisher);
        last.pause()
    };
    assert_eq!([Some(""), Some(""), Some("\n")].map(&mut pause), [SETTLE_TIME, COMPARE, COMPARE]);
    let problem = aggregator.source_statuses().pop().and_then(|status| status.problem);
    assert!(problem.is_some_and(|problem| problem.contains("it is empty")));
    let rest = [Some("5m x"), Some(""), None, Some(""), Some("")];
    assert_eq!(rest.map(&mut pause), [COMPARE, SETTLE_TIME, COMPARE, SETTLE_TIME, COMPARE]);
}

#[tokio::test(start_paused = true)]
async fn a_duration_counts_the_machines_sleep_also_after_content_that_says_nothing() {
    let asleep = Arc::new(AtomicI64::new(0));
    let (slept, awake) = (Arc::clone(&asleep), up());
    let boot = BootClock::new(move || {
        awake.now() + Duration::from_secs(slept.load(Ordering::SeqCst).unsigned_abs())
    });
    let aggregator = NoticeAggregator::new();
    let publisher = aggregator.publisher("file", None);
    let (source, mut last) = (FileSource::new("/notice", machine_clock(), boot), Last::default());
    let mut left_after = |minutes: i64, text: &str| {
        asleep.fetch_add(minutes * 60, Ordering::SeqCst);
        let look = Look::Found { text: text.to_owned(), written: None };
        source.take(look, &mut last, &publisher);
        let deadline = publisher.published().expect("a notice").deadline;
        (deadline - Instant::now()).as_secs_f32().round() / 60.0
    };
    assert_eq!(left_after(0, "2h battery"), 120.0);
    assert_eq!(left_after(30, "2h battery"), 90.0);
    assert_eq!(left_after(30, "soon"), 60.0, "the notice before stays in force");
    assert_eq!(left_after(30, "2h battery"), 120.0, "it was written again");
}

#[tokio::test]
async fn a_pipe_and_a_directory_in_its_place_block_nothing() {
    let mut rig = Rig::start("notice", None).await;
    fs::create_dir(&rig.path).expect("created");
    rig.problem("not a regular file").await;
    fs::remove_dir(&rig.path).expect("removed");
    rig.status("well", |s| s.problem.is_none()).await;
    nix::unistd::mkfifo(&rig.path, nix::sys::stat::Mode::S_IRWXU).expect("made");
    rig.problem("not a regular file").await;
    fs::remove_file(&rig.path).expect("removed");
    fs::write(&rig.path, "5m x").expect("written");
    rig.notice("x").await;
}

#[tokio::test]
async fn a_link_in_its_place_is_not_followed_and_nothing_of_its_target_is_told() {
    let mut rig = Rig::start("notice", None).await;
    let target = rig.directory.path().join("shadow");
    for content in ["root:$y$j9T$secret:20000::", "90s an hour at most"] {
        fs::write(&target, content).expect("written");
        std::os::unix::fs::symlink(&target, &rig.path).expect("linked");
        rig.problem("it is a symbolic link, not a regular file: put the notice itself there").await;
        assert!(rig.notices.borrow().in_effect.is_empty(), "{content}");
        let problem =
            rig.aggregator.source_statuses().pop().and_then(|s| s.problem).expect("a problem");
        assert!(!problem.contains("secret") && !problem.contains("hour"), "{problem}");
        fs::remove_file(&rig.path).expect("removed");
        rig.status("well", |s| s.problem.is_none()).await;
    }
    fs::write(&rig.path, "root:$y$j9T$secret:20000::").expect("written");
    rig.problem("no deadline").await;
    let problem =
        rig.aggregator.source_statuses().pop().and_then(|s| s.problem).expect("a problem");
    assert!(!problem.contains("secret") && !problem.contains("root"), "{problem}");
    fs::write(&rig.path, "5m x").expect("written");
    rig.notice("x").await;
}

#[test]
fn what_is_no_regular_file_is_not_even_opened() {
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
    let directory = tempfile::tempdir().expect("a directory");
    let (pipe, link) = (directory.path().join("pipe"), directory.path().join("link"));
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("made");
    std::os::unix::fs::symlink(&pipe, &link).expect("linked");
    let opened = inotify::init(CreateFlags::NONBLOCK).expect("inotify");
    inotify::add_watch(&opened, &pipe, WatchFlags::OPEN).expect("a watch");
    for path in [&pipe, &link] {
        assert!(matches!(look(path), Look::Failed(_)), "{}", path.display());
    }
    let events = rustix::io::read(&opened, &mut [0; 1024]);
    assert_eq!(events, Err(rustix::io::Errno::WOULDBLOCK));
}

#[tokio::test]
async fn a_deadline_farther_ahead_than_counts_is_told_with_the_limit() {
    for content in ["9999h", "2199-01-01T00:00:00Z"] {
        let rig = Rig::start("notice", Some(content)).await;
        rig.problem("more than 365 days ahead").await;
        assert!(rig.notices.borrow().in_effect.is_empty(), "{content}");
    }
}

#[tokio::test]
async fn a_deadline_of_an_earlier_boot_does_not_count() {
    let rig = Rig::start("notice", Some("2020-01-01T00:00:00Z forgotten")).await;
    rig.problem("passed before the machine came up").await;
    assert!(rig.notices.borrow().in_effect.is_empty());
}

/// `/run` outlives a soft-reboot.
#[tokio::test]
async fn a_duration_from_before_a_soft_reboot_does_not_count() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notice");
    fs::write(&path, "5m update").expect("written");
    written(&path, |now| now - Duration::from_secs(60));
    let started = up().with_system_start(Duration::from_secs(3590));
    let source = FileSource::new(&path, machine_clock(), started);
    let mut rig = Rig::follow(directory, path, source).await;
    rig.problem("it was written before the machine came up").await;
    assert!(rig.notices.borrow().in_effect.is_empty());
    fs::write(&rig.path, "5m another").expect("written");
    rig.notice("another").await;
}

/// A machine without a clock of its own comes up in the past, after a power cut for example.
#[tokio::test]
async fn a_duration_that_a_clock_that_is_behind_takes_for_new_does_not_count() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notice");
    fs::write(&path, "60s battery").expect("written");
    written(&path, |now| now + Duration::from_secs(600));
    let source = FileSource::new(&path, machine_clock(), up());
    let mut rig = Rig::follow(directory, path, source).await;
    rig.problem("it was written before the machine came up").await;
    assert!(rig.notices.borrow().in_effect.is_empty());
    fs::write(&rig.path, "60s again").expect("written");
    rig.notice("again").await;
    // The clock is set back after this one.
    fs::write(&rig.path, "60s once more").expect("written");
    written(&rig.path, |now| now + Duration::from_secs(600));
    rig.notice("once more").await;
}

#[tokio::test]
async fn without_a_text_the_file_is_named() {
    let mut rig = Rig::start("notice", Some("5m")).await;
    let text = format!("{} says that the node goes away", rig.path.display());
    rig.notice(&text).await;
}

/// A source of a file with `content`, on a machine that has been up for an hour. Its wall clock can be set, and
/// shows a number of seconds after noon of 20 November 2026.
async fn with_a_clock(content: &str, seconds: i64) -> (Rig, Arc<AtomicI64>) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notice");
    fs::write(&path, content).expect("written");
    let off = Arc::new(AtomicI64::new(seconds));
    let seconds = Arc::clone(&off);
    let wall = WallClock::new(move || {
        let noon: WallTime = "2026-11-20T12:00:00Z".parse().expect("a time");
        let off = jiff::SignedDuration::from_secs(seconds.load(Ordering::SeqCst));
        noon.checked_add(off).expect("in range")
    });
    let source = FileSource::new(&path, wall, up());
    (Rig::follow(directory, path, source).await, off)
}

impl Rig {
    /// Any event makes the source look; otherwise it does so after some seconds.
    fn touch(&self) {
        fs::File::options().write(true).open(&self.path).expect("opened");
    }
}

#[tokio::test]
async fn a_wall_clock_that_is_set_moves_the_deadline() {
    let (mut rig, off) = with_a_clock("2026-11-20T13:00:00Z move", 0).await;
    let before = rig.notice("move").await;
    off.store(3000, Ordering::SeqCst);
    rig.touch();
    let moved =
        |state: &NoticeState| state.in_effect.first().is_some_and(|n| n.deadline < before.deadline);
    let after = tokio::time::timeout(LIMIT, rig.notices.wait_for(moved)).await;
    let after = after.expect("in time").expect("alive").in_effect.first().cloned().expect("some");
    assert_eq!(after.since, before.since);
    let moved_by = before.deadline.duration_since(after.deadline).as_secs();
    assert!((2900..=3001).contains(&moved_by), "{moved_by}");
}

/// A machine without a clock of its own comes up in the past.
#[tokio::test]
async fn a_deadline_that_was_too_far_ahead_counts_once_the_clock_is_set() {
    let (mut rig, off) = with_a_clock("2026-11-20T13:00:00Z move", -400 * 86_400).await;
    rig.problem("more than 365 days ahead").await;
    off.store(0, Ordering::SeqCst);
    rig.touch();
    let notice = rig.notice("move").await;
    assert!(left(&notice) > Duration::from_secs(3500), "{notice:?}");
    rig.status("well again", |status| status.problem.is_none()).await;
}

#[tokio::test]
async fn a_deadline_of_an_earlier_boot_stops_counting_once_the_clock_is_set() {
    let (mut rig, off) = with_a_clock("2026-11-20T13:00:00Z forgotten", 0).await;
    rig.notice("forgotten").await;
    off.store(86_400, Ordering::SeqCst);
    rig.touch();
    rig.withdrawn().await;
    rig.problem("passed before the machine came up").await;
}
