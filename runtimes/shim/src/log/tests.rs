#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::os::unix::fs::symlink;
use std::sync::mpsc;
use std::time::Duration;

use proptest::prelude::*;
use winddown_host::pod_logs::{remove, rotate_beyond};

use super::*;

fn at() -> WallTime {
    "2026-01-02T15:04:05.999999999Z".parse().unwrap()
}

fn lines_of(chunks: &[&[u8]]) -> String {
    let (mut lines, mut out) = (StreamLines::new(Stream::Out), Vec::new());
    for chunk in chunks {
        lines.take(chunk, at(), &mut out);
    }
    lines.finish(at(), &mut out);
    String::from_utf8(out).unwrap()
}

fn log_in(dir: &Path, max_bytes: u64, max_files: u32) -> LogFile {
    LogFile::open(LogTarget { path: dir.join("0.log"), max_bytes, max_files })
}

#[test]
fn a_line_has_time_stream_and_tag() {
    let expected = "2026-01-02T15:04:05.999999999Z stdout F hello\n";
    assert_eq!(lines_of(&[b"hello\n"]), expected);
    assert_eq!(lines_of(&[b"hel", b"lo\n"]), expected);
    assert_eq!(lines_of(&[b"hello"]), expected, "the last line needs no newline");
}

#[test]
fn an_empty_line_is_a_line() {
    let text = lines_of(&[b"\n\na\n"]);
    let tails: Vec<&str> = text.lines().map(|l| l.split_once(' ').unwrap().1).collect();
    assert_eq!(tails, ["stdout F ", "stdout F ", "stdout F a"]);
}

#[test]
fn a_long_line_comes_in_pieces_of_which_the_last_is_full() {
    let long = vec![b'x'; MAX_LINE * 2 + 5];
    let text = lines_of(&[&long, b"\n"]);
    let tags: Vec<(&str, usize)> =
        text.lines().map(|l| (&l[38..39], l.splitn(4, ' ').nth(3).unwrap().len())).collect();
    assert_eq!(tags, [("P", MAX_LINE), ("P", MAX_LINE), ("F", 5)]);
}

#[test]
fn a_line_of_exactly_the_limit_is_one_full_line() {
    let mut line = vec![b'x'; MAX_LINE];
    line.push(b'\n');
    for chunks in [vec![&line[..]], vec![&line[..MAX_LINE], b"\n"], vec![&line[..7], &line[7..]]] {
        let text = lines_of(&chunks);
        assert_eq!((text.lines().count(), &text[38..39]), (1, "F"));
    }
}

#[test]
fn a_log_turns_before_it_passes_its_limit_and_keeps_that_many_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = log_in(dir.path(), 100, 3);
    for n in 0..20 {
        log.write(format!("{n:049}\n").as_bytes(), 1, at());
    }
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
    let ends = |text: String| text.lines().map(|l| l[47..].to_owned()).collect::<Vec<_>>();
    assert_eq!(ends(read("0.log")), ["18", "19"]);
    assert_eq!(ends(read("0.log.1")), ["16", "17"]);
    assert_eq!(ends(read("0.log.2")), ["14", "15"]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn a_rotation_that_failed_at_its_last_step_is_finished_and_not_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["0.log", "0.log.1", "0.log.2", "0.log.3"].map(|name| dir.path().join(name));
    for (path, text) in [(&names[0], "new"), (&names[2], "old"), (&names[3], "oldest")] {
        std::fs::write(path, text).unwrap();
    }
    rotate(&names[0], 4).unwrap();
    let texts = names[1..].iter().map(|path| std::fs::read_to_string(path).unwrap());
    assert_eq!(texts.collect::<Vec<_>>(), ["new", "old", "oldest"]);
    assert!(!names[0].exists());
}

#[test]
fn a_long_log_makes_room_and_the_oldest_one_goes() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("0.log");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).ok();
    std::fs::write(&log, "short").unwrap();
    assert!(!rotate_beyond(&log, 5, 3).unwrap());
    std::fs::remove_file(&log).unwrap();
    assert!(rotate_beyond(&log, 5, 3).unwrap(), "the runtime writes into a file without a name");
    for text in ["one...", "two...", "three.", "four.."] {
        std::fs::write(&log, text).unwrap();
        assert!(rotate_beyond(&log, 5, 3).unwrap());
    }
    assert_eq!(read("0.log"), None);
    assert_eq!(read("0.log.1").unwrap(), "four..");
    assert_eq!(read("0.log.2").unwrap(), "three.");
    assert_eq!(read("0.log.3"), None);
    std::fs::write(&log, "five..").unwrap();
    assert!(rotate_beyond(&log, 5, 1).unwrap());
    assert_eq!((read("0.log"), read("0.log.1").unwrap()), (None, "four..".to_owned()));
}

#[test]
fn a_log_that_another_program_emptied_does_not_turn_before_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = log_in(dir.path(), 100, 3);
    log.write(&[b'a'; 60], 1, at());
    std::fs::write(dir.path().join("0.log"), "").unwrap();
    log.write(&[b'b'; 60], 1, at());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    log.write(&[b'c'; 60], 1, at());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn one_file_is_emptied_when_only_one_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = log_in(dir.path(), 10, 1);
    for n in 0..3 {
        log.write(format!("line {n}\n").as_bytes(), 1, at());
    }
    assert_eq!(std::fs::read_to_string(dir.path().join("0.log")).unwrap(), "line 2\n");
}

#[test]
fn lines_that_cannot_be_written_are_counted_and_said_once_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("logs");
    let mut log = log_in(&inner, 1000, 3);
    log.write(b"lost 1\nlost 2\n", 2, at());
    log.write(b"lost 3\n", 1, at());
    std::fs::create_dir(&inner).unwrap();
    log.write(b"kept\n", 1, at());
    log.write(b"kept too\n", 1, at());
    let text = std::fs::read_to_string(inner.join("0.log")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[0].contains("stderr F winddown: 3 lines (21 bytes) of output are missing here: ")
    );
    assert_eq!(lines[1..], ["kept", "kept too"]);
}

#[test]
fn the_tail_is_the_last_80_lines_without_their_heads() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = log_in(dir.path(), 1 << 20, 3);
    let mut lines = StreamLines::new(Stream::Err);
    let mut out = Vec::new();
    for n in 0..200 {
        lines.take(format!("{n}\n").as_bytes(), at(), &mut out);
    }
    log.write(&out, 200, at());
    let tail = log.tail();
    assert_eq!((tail.lines().count(), tail.lines().next()), (80, Some("120")));
    assert_eq!(tail.lines().last(), Some("199"));
}

#[test]
fn the_tail_of_long_lines_is_2048_bytes_at_a_character_boundary() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = log_in(dir.path(), 1 << 20, 3);
    let (mut lines, mut out) = (StreamLines::new(Stream::Out), Vec::new());
    lines.take("ü".repeat(4000).as_bytes(), at(), &mut out);
    lines.finish(at(), &mut out);
    log.write(&out, 1, at());
    assert!(log.tail().len() <= TAIL_BYTES && log.tail().chars().all(|c| c == 'ü'));
}

#[test]
fn a_last_line_that_is_longer_than_what_is_kept_is_not_an_empty_tail() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = log_in(dir.path(), 1 << 20, 3);
    let (mut lines, mut out) = (StreamLines::new(Stream::Out), Vec::new());
    lines.take("x".repeat(10_000).as_bytes(), at(), &mut out);
    lines.finish(at(), &mut out);
    log.write(&out, 1, at());
    let expected = "x".repeat(TAIL_BYTES);
    assert_eq!(log.tail(), expected);
    assert_eq!(tail(&dir.path().join("0.log")).unwrap(), expected);
}

/// A pod that has the directory of all logs as a volume can put anything in their place.
#[test]
fn a_link_a_pipe_and_a_device_in_place_of_a_log_are_neither_followed_nor_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("n_web_u/main");
    std::fs::create_dir_all(&logs).unwrap();
    let line = b"2026-01-02T15:04:05.999999999Z stderr F of somebody else\n";
    std::fs::write(dir.path().join("secret.log"), line).unwrap();
    symlink(dir.path().join("secret.log"), logs.join("0.log")).unwrap();
    nix::unistd::mkfifo(&logs.join("1.log"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::create_dir(logs.join("2.log")).unwrap();
    symlink("/dev/zero", logs.join("3.log")).unwrap();
    std::fs::create_dir(dir.path().join("elsewhere")).unwrap();
    std::fs::write(dir.path().join("elsewhere/0.log"), line).unwrap();
    symlink("../elsewhere", dir.path().join("n_web_u/linked")).unwrap();
    std::fs::create_dir(dir.path().join("elsewhere/main")).unwrap();
    std::fs::write(dir.path().join("elsewhere/main/0.log"), line).unwrap();
    symlink("elsewhere", dir.path().join("n_linked_u")).unwrap();
    let pod = dir.path().join("n_web_u");
    let replaced = ["main/0.log", "main/1.log", "main/2.log", "main/3.log", "linked/0.log"];
    let mut replaced: Vec<_> = replaced.iter().map(|name| pod.join(name)).collect();
    replaced.push(dir.path().join("n_linked_u/main/0.log"));
    for path in replaced {
        let (done, is_done) = mpsc::channel();
        let name = path.clone();
        std::thread::spawn(move || {
            let written = {
                let mut log =
                    LogFile::open(LogTarget { path: name.clone(), max_bytes: 10, max_files: 2 });
                log.write(b"output\n", 1, at());
                log.lost.lines
            };
            done.send((tail(&name).is_err(), rotate_beyond(&name, 1, 2).is_err(), written))
                .unwrap();
        });
        // One that waits for the pipe waits for good.
        let answer = is_done.recv_timeout(Duration::from_secs(60));
        assert_eq!(answer, Ok((true, true, 1)), "{}", path.display());
    }
    remove(&dir.path().join("n_linked_u/main/0.log"));
    remove(&logs.join("0.log"));
    assert!(!logs.join("0.log").is_symlink(), "the link itself is gone");
    for kept in ["secret.log", "elsewhere/0.log", "elsewhere/main/0.log"] {
        assert_eq!(std::fs::read(dir.path().join(kept)).unwrap(), line, "{kept}");
    }
}

#[test]
fn what_is_no_log_has_no_tail() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    let key = "client-key-data: of the one who administers the cluster";
    let long = format!("{}\n    {key}\n", "x".repeat(40_000));
    for text in [
        format!("    {key}\n").repeat(200),
        long,
        "x".repeat(10 * 1024),
        "2026-01-02T15:04:05Z stdout F".to_owned(),
        format!("2026-01-02T15:04:05Z neither F {key}\n"),
        format!("2026-01-02T15:04:05Z stdout X {key}\n"),
        format!("yesterday stdout F {key}\n"),
    ] {
        std::fs::write(&path, &text).unwrap();
        assert_eq!(tail(&path).unwrap(), "", "{text:.60}");
    }
    std::fs::write(&path, "2026-01-02T15:04:05Z stdout P:more a b  c\n").unwrap();
    assert_eq!(tail(&path).unwrap(), "a b  c");
}

proptest! {
    /// However the output is split into reads, the bytes of each line are the same.
    #[test]
    fn how_the_output_is_cut_into_reads_does_not_change_it(
        text in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), Just(b'b')], 0..60),
        cuts in proptest::collection::vec(0usize..60, 0..8),
        scale in 1usize..2000,
    ) {
        // Long runs of the same byte reach the limit of a line.
        let text: Vec<u8> = text
            .into_iter()
            .flat_map(|b| std::iter::repeat_n(b, if b == b'\n' { 1 } else { scale }))
            .collect();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| (c * scale).min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let chunks: Vec<&[u8]> = cuts.windows(2).map(|w| &text[w[0]..w[1]]).collect();
        let logged = lines_of(&chunks);
        let mut back = Vec::new();
        for line in logged.lines() {
            let mut parts = line.splitn(4, ' ').skip(2);
            let full = parts.next() == Some("F");
            let content = parts.next().unwrap();
            prop_assert!(content.len() <= MAX_LINE);
            back.extend_from_slice(content.as_bytes());
            if full {
                back.push(b'\n');
            }
        }
        let mut expected = text;
        if expected.last().is_some_and(|&b| b != b'\n') {
            expected.push(b'\n');
        }
        prop_assert_eq!(back, expected);
    }
}
