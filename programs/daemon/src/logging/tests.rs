//! Tests of the formats of lines, and of the rate limit.

use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::subscriber::with_default;
use tracing_subscriber::prelude::*;
use winddown_shared::{Event, PodRef, PodUid, WallTime};

use super::journal::{JournalSink, encode};
use super::*;
use winddown_control::api::Decision;

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Line>>>);

impl Sink for Kept {
    fn write(&self, line: &Line) {
        self.0.lock().unwrap().push(line.clone());
    }
}

impl Kept {
    fn texts(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|line| line.text.clone()).collect()
    }
}

/// Returns the lines that `say` logs immediately.
fn lines(say: impl FnOnce()) -> Vec<Line> {
    let kept = Kept::default();
    with_default(tracing_subscriber::registry().with(Log::new(kept.clone())), say);
    std::mem::take(&mut *kept.0.lock().unwrap())
}

/// Returns a log that writes held-back lines while the returned values are alive.
fn followed() -> (Kept, Log, tracing::subscriber::DefaultGuard, tokio::task::JoinHandle<()>) {
    let kept = Kept::default();
    let log = Log::new(kept.clone());
    let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(log.clone()));
    let following = log.clone();
    let task = tokio::spawn(async move {
        let _ = following.follow().await;
    });
    (kept, log, guard, task)
}

/// Parses the fields of a datagram, in order.
fn fields(datagram: &[u8]) -> Vec<(String, String)> {
    let (mut rest, mut found) = (datagram, Vec::new());
    while let Some(end) = rest.iter().position(|&b| b == b'\n') {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        match rest[..end].iter().position(|&b| b == b'=') {
            Some(sign) => {
                found.push((text(&rest[..sign]), text(&rest[sign + 1..end])));
                rest = &rest[end + 1..];
            }
            None => {
                let name = text(&rest[..end]);
                let (length, value) = rest[end + 1..].split_at(8);
                let length = usize::try_from(u64::from_le_bytes(length.try_into().unwrap()));
                let (value, after) = value.split_at(length.unwrap());
                found.push((name, text(value)));
                assert_eq!(after[0], b'\n');
                rest = &after[1..];
            }
        }
    }
    assert!(rest.is_empty());
    found
}

fn field(line: &Line, name: &str) -> Option<String> {
    let all = fields(&encode(line, 0));
    let mut found = all.into_iter().filter(|(known, _)| known == name);
    let value = found.next().map(|(_, value)| value);
    assert!(found.next().is_none(), "{name} twice");
    value
}

fn pod(name: &str) -> PodRef {
    PodRef {
        namespace: "shop".into(),
        name: name.into(),
        uid: PodUid::new(&*format!("uid-{name}")),
    }
}

fn decide(event: &Event) {
    winddown_node::log_decision(event, &Decision::of(WallTime::UNIX_EPOCH, event));
}

#[test]
fn a_decision_has_fields_of_its_own_in_the_journal() {
    let rejected = Event::PodRejected {
        pod: pod("web"),
        reason: "NodeShutdown".into(),
        message: "the node goes down\n\x1b[31mPRIORITY=0".into(),
    };
    let line = lines(|| decide(&rejected)).remove(0);
    let all: Vec<_> = fields(&encode(&line, 0))
        .into_iter()
        .filter(|(name, _)| !name.starts_with("CODE_"))
        .collect();
    let wanted = [
        ("MESSAGE", r"shop/web rejected, NodeShutdown: the node goes down; \x1b[31mPRIORITY=0"),
        ("PRIORITY", "4"),
        ("SYSLOG_IDENTIFIER", "winddown"),
        ("TARGET", "winddown_node::decisions::log_line"),
        ("MESSAGE_ID", "5db063e935d14c23ab8e400a6ca24152"),
        ("KIND", "podRejected"),
        ("PHASE", "admission"),
        ("POD_NAMESPACE", "shop"),
        ("POD_NAME", "web"),
        ("POD_UID", "uid-web"),
        ("REASON", "NodeShutdown"),
    ];
    let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(all, wanted);
}

#[test]
fn numbers_signals_and_who_asked_are_fields_too() {
    let took = Duration::from_millis(2500);
    let killed = winddown_shared::KillReason::Drain;
    let said = lines(|| {
        decide(&Event::KillRequested {
            pod: pod("web"),
            is_static: false,
            by: killed,
            grace: took,
            status: None,
        });
        decide(&Event::PodEvicted { pod: pod("web"), signal: "memory.available", took });
        decide(&Event::PodStopped {
            pod: pod("web"),
            by: Some(killed),
            took,
            forced: vec!["a".into(), "b".into()],
            remark: None,
        });
        decide(&Event::GroupFinished {
            reason: winddown_shared::KillReason::Shutdown,
            priority: -10,
            name: None,
            took,
            left: 2,
        });
    });
    let of = |line: usize, name: &str| field(&said[line], name).unwrap();
    assert_eq!((of(0, "REASON"), of(0, "GRACE_SECONDS")), ("drain".into(), "2.5".into()));
    assert_eq!((of(1, "SIGNAL"), of(1, "TOOK_SECONDS")), ("memory.available".into(), "2.5".into()));
    assert_eq!(of(2, "FORCED"), "a,b");
    // The journal's own PRIORITY is the severity of the line.
    assert_eq!((of(3, "PRIORITY"), of(3, "GROUP")), ("4".into(), "-10.0".into()));
    assert_eq!(field(&said[3], "POD_NAME"), None);
}

#[test]
fn each_level_has_one_priority_and_decisions_stand_out_of_the_rest() {
    let said = lines(|| {
        tracing::error!("a");
        tracing::warn!("b");
        decide(&Event::PodAdmitted { pod: pod("web") });
        tracing::info!("d");
        tracing::debug!("e");
    });
    let priorities: Vec<_> = said.iter().map(|line| field(line, "PRIORITY").unwrap()).collect();
    assert_eq!(priorities, ["3", "4", "5", "6", "7"]);
}

#[test]
fn names_that_mean_something_to_the_journal_are_never_taken_by_a_field() {
    let said = lines(|| {
        tracing::info!(priority = 0, unit = "sshd.service", code_file = "x", _pid = 1, "a");
        tracing::info!(namespace = "shop", name = "web", "b");
        tracing::info!(name = "request-1", container = "main", uid = "u", node = "n1", "c");
        tracing::info!(text = "two\nlines", r#type = "t", "d\ne");
    });
    assert_eq!(field(&said[0], "PRIORITY").unwrap(), "6");
    assert_eq!(field(&said[0], "WINDDOWN_PRIORITY").unwrap(), "0");
    assert_eq!(field(&said[0], "WINDDOWN_UNIT").unwrap(), "sshd.service");
    assert_eq!(field(&said[0], "WINDDOWN_CODE_FILE").unwrap(), "x");
    assert_eq!(field(&said[0], "PID").unwrap(), "1");
    assert_eq!(field(&said[0], "_PID"), None);
    assert_eq!(field(&said[1], "POD_NAMESPACE").unwrap(), "shop");
    assert_eq!(field(&said[1], "POD_NAME").unwrap(), "web");
    assert_eq!(field(&said[2], "NAME").unwrap(), "request-1");
    assert_eq!(field(&said[2], "POD_CONTAINER").unwrap(), "main");
    assert_eq!(field(&said[2], "POD_UID").unwrap(), "u");
    assert_eq!(field(&said[2], "NODE_NAME").unwrap(), "n1");
    assert_eq!(field(&said[3], "MESSAGE").unwrap(), "d; e");
    assert_eq!(field(&said[3], "TEXT").unwrap(), "two; lines");
}

/// What a pod says of a mount path, an image or a profile is part of such texts.
#[test]
fn what_a_pod_chooses_reaches_no_sink_as_a_line_or_a_control_character_of_its_own() {
    const HOSTILE: &str =
        "/x\n<2>winddown: all is well\r\x1b]0;t\x07\x1b[2J\u{202e}\u{2028}\u{9b}31m\t";
    let texts = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&texts);
    let log = Log::to(move |text| kept.lock().unwrap().push(text.to_owned()));
    let say = || tracing::warn!(error = HOSTILE, pod = HOSTILE, "cannot mount {HOSTILE}: no");
    with_default(tracing_subscriber::registry().with(log), say);
    let line = lines(say).remove(0);
    let mut all = std::mem::take(&mut *texts.lock().unwrap());
    all.push(terminal::render(&line, 1.5, false).trim_end_matches('\n').to_owned());
    all.extend(fields(&encode(&line, 1)).into_iter().map(|(_, value)| value));
    assert!(all.len() > 5, "{all:?}");
    for text in all {
        assert!(!text.contains(char::is_control), "{text:?}");
        assert_eq!(winddown_shared::display::clean(&text), text);
    }
}

#[test]
fn what_is_quoted_cannot_forge_a_line_on_a_terminal() {
    let line = lines(|| {
        tracing::warn!(error = "x\n  9.000s ERROR gone\x1b[2K", "it failed\r\nagain");
    });
    let text = terminal::render(&line[0], 1.5, false);
    assert_eq!(text, "    1.500s  WARN it failed; again error=x;   9.000s ERROR gone\\x1b[2K\n");
}

#[test]
fn a_name_that_turns_the_line_around_is_shown_as_it_is_written() {
    let line = lines(|| tracing::warn!(pod = "shop/\u{202e}b\u{2028}ew", "it \u{2066}failed"));
    let text = terminal::render(&line[0], 1.5, false);
    assert_eq!(text, "    1.500s  WARN shop/\\u{202e}b\\u{2028}ew: it \\u{2066}failed\n");
}

#[test]
fn a_value_of_megabytes_is_cut_and_still_fits_a_datagram() {
    let long = "ä".repeat(1024 * 1024);
    let line = lines(|| tracing::warn!(error = %long, "it failed")).remove(0);
    assert!(field(&line, "ERROR").unwrap().ends_with('…'));
    assert!(encode(&line, 0).len() < 20_000);
}

#[tokio::test(start_paused = true)]
async fn the_same_is_said_at_once_and_then_once_a_minute() {
    let (kept, _log, _guard, _task) = followed();
    for _ in 0..600 {
        tracing::warn!(pod = "shop/web", error = ?Instant::now(), "the runtime does not answer");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let texts = kept.texts();
    assert_eq!(texts.len(), 10, "{texts:#?}");
    assert_eq!(texts[0], "shop/web: the runtime does not answer");
    // In the sixtieth second either comes first: the held-back line, or the next repetition.
    let (held, next) = ("(again, 1s ago, and 58 times before)", "(and 59 times before)");
    assert!(texts[1].ends_with(held) || texts[1].ends_with(next), "{texts:#?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_held_back_is_not_lost_and_the_last_word_is_the_true_one() {
    let (kept, log, _guard, _task) = followed();
    let say = |works: bool| match works {
        true => tracing::info!("it works again"),
        false => tracing::warn!("it fails"),
    };
    for works in [false, true, false] {
        say(works);
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(kept.texts(), ["it fails", "it works again"]);
    tokio::time::sleep(Duration::from_secs(46)).await;
    assert_eq!(kept.texts().last().unwrap(), "it fails (again, 50s ago)");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(kept.texts().len(), 3);
    say(true);
    say(true);
    log.flush();
    assert_eq!(kept.texts()[3..], ["it works again", "it works again (again)"]);
}

#[tokio::test(start_paused = true)]
async fn of_a_loss_and_its_return_the_last_one_is_never_held_back() {
    let (kept, _log, _guard, _task) = followed();
    let say = |is_ready: bool| match is_ready {
        true => tracing::info!(log_kind = "runtimeReady", "the container runtime is ready"),
        false => tracing::warn!(log_kind = "runtimeNotReady", "the container runtime is not ready"),
    };
    let states = [true, false, false, true, false, true, true];
    let mut wanted = Vec::new();
    for is_ready in states {
        say(is_ready);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let text = if is_ready {
            "the container runtime is ready"
        } else {
            "the container runtime is not ready"
        };
        wanted.push(text);
        wanted.dedup();
        assert_eq!(kept.texts(), wanted);
    }
    // A repetition follows later; it is the last word already.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(kept.texts().last().unwrap().starts_with("the container runtime is ready (again"));

    // One that flaps does not flood the log, and the last word is the true one.
    let before = kept.texts().len();
    for round in 0..200 {
        say(round % 2 == 1);
    }
    let more = kept.texts().len() - before;
    assert!(more <= 11, "{more}");
    let last = kept.texts().last().unwrap().clone();
    assert!(last.ends_with("(changes often: its next state follows within a minute)"), "{last}");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(kept.texts().last().unwrap().starts_with("the container runtime is ready"));
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_missing_again_is_said_at_once() {
    let (kept, _log, _guard, _task) = followed();
    for _ in 0..2 {
        tracing::warn!(log_kind = "lockMissing", "there is no lock");
        tracing::info!(log_kind = "lockTaken", "the lock is taken");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(
        kept.texts(),
        ["there is no lock", "the lock is taken", "there is no lock", "the lock is taken"]
    );
}

#[tokio::test(start_paused = true)]
async fn other_pods_other_texts_and_changes_are_not_repetitions() {
    let (kept, _log, _guard, _task) = followed();
    for pod in ["shop/web", "shop/db"] {
        for text in ["one", "two"] {
            tracing::warn!(pod, "{text}");
        }
    }
    assert_eq!(kept.texts().len(), 4);
    let began = Event::ShutdownStarted { pods: 3, budget: Duration::from_secs(30) };
    for _ in 0..3 {
        decide(&began);
    }
    assert_eq!(kept.texts().len(), 7, "a shutdown that begins again is news");
    let failed = |name, again| Event::SyncFailed {
        pod: pod(name),
        of_stop: false,
        error: "no".into(),
        again_in: Duration::from_secs(again),
    };
    for again in 0..5 {
        decide(&failed("web", again));
        decide(&failed("db", again));
    }
    assert_eq!(kept.texts().len(), 9, "a pod that fails again is not");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_keeps_failing_is_told_less_and_less_often() {
    let (kept, _log, _guard, _task) = followed();
    let failed = Event::SyncFailed {
        pod: pod("web"),
        of_stop: false,
        error: "no".into(),
        again_in: Duration::from_secs(5),
    };
    for _ in 0..720 {
        decide(&failed);
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let texts = kept.texts();
    assert!((6..=9).contains(&texts.len()), "{texts:#?}");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let before = kept.texts().len();
    decide(&failed);
    decide(&failed);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(kept.texts().len(), before + 2, "after an hour of quiet it begins anew");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_different_lines_is_all_written_and_not_all_remembered() {
    let mut limiter = RateLimiter::default();
    let template = lines(|| tracing::warn!("x")).remove(0);
    for n in 0..100_000 {
        let line = Line { text: n.to_string(), ..template.clone() };
        assert!(matches!(limiter.judge(line, Instant::now()), LineVerdict::Write(_)));
        if n % 100 == 0 {
            tokio::time::advance(Duration::from_millis(100)).await;
        }
    }
    assert!(limiter.remembered() <= 4096, "{}", limiter.remembered());
}

#[tokio::test(start_paused = true)]
async fn after_a_flood_the_same_is_again_not_said_more_than_once_a_minute() {
    let mut limiter = RateLimiter::default();
    let template = lines(|| tracing::warn!("x")).remove(0);
    let mut judge = |text: String| {
        matches!(
            limiter.judge(Line { text, ..template.clone() }, Instant::now()),
            LineVerdict::Held
        )
    };
    for second in 0..10 {
        for n in 0..1000 {
            assert!(!judge(format!("line {n} of second {second}")));
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert!(!judge("the runtime does not answer".to_owned()));
    assert!(judge("the runtime does not answer".to_owned()), "said twice at once");
}

#[test]
fn a_journal_that_does_not_read_holds_nobody_up_and_is_told_what_it_missed() {
    let folder = tempfile::tempdir().unwrap();
    let address = folder.path().join("socket");
    let reader = UnixDatagram::bind(&address).unwrap();
    reader.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let journal = JournalSink::at(&address).unwrap();
    let line = lines(|| tracing::warn!("x")).remove(0);
    for _ in 0..10_000 {
        journal.write(&line);
    }
    let lost = journal.lost();
    assert!(lost > 0, "the queue of a socket has an end");
    let mut buffer = vec![0; 65536];
    for _ in lost..10_000 {
        reader.recv(&mut buffer).unwrap();
    }
    journal.write(&line);
    assert_eq!(journal.lost(), 0);
    let length = reader.recv(&mut buffer).unwrap();
    let told = fields(&buffer[..length]);
    assert!(told.contains(&("LINES_LOST".to_owned(), lost.to_string())), "{told:?}");
}

#[test]
fn a_journal_that_was_started_anew_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let address = folder.path().join("socket");
    let first = UnixDatagram::bind(&address).unwrap();
    let journal = JournalSink::at(&address).unwrap();
    let line = lines(|| tracing::warn!("x")).remove(0);
    drop(first);
    journal.write(&line);
    std::fs::remove_file(&address).unwrap();
    let second = UnixDatagram::bind(&address).unwrap();
    second.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    journal.write(&line);
    let mut buffer = vec![0; 65536];
    let length = second.recv(&mut buffer).unwrap();
    assert!(fields(&buffer[..length]).contains(&("LINES_LOST".to_owned(), "1".to_owned())));
}

#[test]
fn kinds_have_names_and_ids_of_their_own() {
    let mut names: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
    let mut ids: Vec<_> = KINDS.iter().map(|kind| kind.id).collect();
    for list in [&mut names, &mut ids] {
        list.sort_unstable();
        list.dedup();
        assert_eq!(list.len(), KINDS.len());
    }
    assert!(ids.iter().all(|id| id.len() == 32 && id.chars().all(|c| c.is_ascii_hexdigit())));
}

#[test]
fn a_line_about_a_pod_names_it_and_its_container_once_in_its_text() {
    let (pod, uid, container) = ("shop/web", "u-1", "main");
    let said = lines(|| {
        tracing::warn!(pod, container, left = "2s", "the hook took all but the last");
        tracing::warn!(pod, "its containers cannot be stopped");
        tracing::warn!(uid, container, "what it left behind may still run");
        tracing::warn!(uid, "its volumes cannot be removed");
        tracing::warn!(namespace = "shop", name = "web", "the mirror pod differs");
        tracing::warn!(namespace = "shop", pod = "web", "not terminated");
        tracing::warn!(container, "its process cannot be watched");
        tracing::warn!(pod, container, "cannot start container {container} of pod {pod}");
        tracing::warn!(pod, container, "pod {pod} remains");
        tracing::warn!(name = "web", node = "n1", "registered");
    });
    let texts: Vec<&str> = said.iter().map(|line| &*line.text).collect();
    let wanted = [
        "shop/web, container main: the hook took all but the last",
        "shop/web: its containers cannot be stopped",
        "pod u-1, container main: what it left behind may still run",
        "pod u-1: its volumes cannot be removed",
        "shop/web: the mirror pod differs",
        "shop/web: not terminated",
        "container main: its process cannot be watched",
        "cannot start container main of pod shop/web",
        "container main: pod shop/web remains",
        "registered",
    ];
    assert_eq!(texts, wanted);
    let in_journal = field(&said[0], "MESSAGE").unwrap();
    assert_eq!(in_journal, wanted[0]);
    assert_eq!(field(&said[0], "POD_CONTAINER").as_deref(), Some("main"));
    let on_terminal = terminal::render(&said[0], 0.0, false);
    assert_eq!(on_terminal, format!("    0.000s  WARN {} left=2s\n", wanted[0]));
}

/// Whatever the sink, a container's name alone says little: many pods have a container `main`.
#[test]
#[allow(clippy::disallowed_methods, reason = "tests read what they wrote")]
fn each_line_of_the_sources_about_a_container_has_its_pod_too() {
    let mut unread = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))];
    let (mut about_containers, mut without_pod) = (0, Vec::new());
    while let Some(path) = unread.pop() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !["target", "tests", ".git"].contains(&&*name) {
            unread.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let source = std::fs::read_to_string(&path).unwrap();
            for call in source.split("tracing::").skip(1).filter(|call| call.contains("!(")) {
                // The fields come before the text.
                let fields = call.split(['"', ';']).next().unwrap_or_default();
                let has =
                    |name: &str| fields.split(|c: char| !c.is_alphanumeric()).any(|w| w == name);
                about_containers += usize::from(has("container"));
                if has("container") && !has("pod") && !has("uid") {
                    without_pod.push(format!("{}: {fields}", path.display()));
                }
            }
        }
    }
    assert!(about_containers > 10, "the sources are not where they were");
    assert!(without_pod.is_empty(), "{without_pod:#?}");
}

/// `warning` was taken for a part of the agent, and nothing was logged, not even that.
#[test]
fn a_word_that_is_no_level_is_no_filter() {
    for text in [
        "warn",
        "DEBUG",
        "off",
        "info,winddown_systemd=debug",
        "winddown_systemd=trace",
        "info, kube=off",
    ] {
        assert!(filter_of(text).is_some(), "{text}");
    }
    for text in ["warning", "verbose", "info;debug", "info,nonsense=loud", "info,winddown_systemd"]
    {
        assert!(filter_of(text).is_none(), "{text}");
    }
}
