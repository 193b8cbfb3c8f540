//! Properties that hold for any content of a process's files and for any output. Called by tests/fuzz.

use winddown_shared::WallTime;

use crate::log::{Stream, StreamLines};
use crate::procfs;

/// Parses the text as `/proc/PID/stat`. Panics if a property is violated.
pub fn process_state(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    // A process chooses the name of its command: the name must not change how the rest is parsed.
    let rest = text.get(text.rfind(')').map_or(0, |at| at + 1)..).unwrap_or_default();
    let renamed = format!("1 (R 0 0 ) S 9){rest}");
    if text.contains(')') {
        assert_eq!(procfs::parse_stat(text), procfs::parse_stat(&renamed), "{text:?}");
    } else {
        assert_eq!(procfs::parse_stat(text), None);
    }
}

/// Takes the bytes as output of a container, read as a whole and in chunks whose size is the first byte plus 1. Panics
/// if the log loses, adds or changes anything.
pub fn container_log(output: &[u8]) {
    let Some((&cut, output)) = output.split_first() else { return };
    let whole = logged(&mut [output].into_iter());
    let pieces = logged(&mut output.chunks(usize::from(cut) + 1));
    assert_eq!(whole, pieces, "how output is read does not change the log");
    let mut back = Vec::with_capacity(output.len());
    for line in whole.split_inclusive(|&byte| byte == b'\n') {
        let mut words = line.splitn(4, |&byte| byte == b' ');
        let (_, stream, tag) = (words.next(), words.next(), words.next());
        assert_eq!(stream, Some(&b"stdout"[..]));
        let content = words.next().unwrap_or_default();
        let content = content.strip_suffix(b"\n").unwrap_or_default();
        assert!(content.len() <= 16 * 1024, "a line is never longer than collectors take");
        back.extend_from_slice(content);
        match tag {
            Some(b"F") => back.push(b'\n'),
            other => assert_eq!(other, Some(&b"P"[..])),
        }
    }
    let mut expected = output.to_vec();
    if expected.last().is_some_and(|&last| last != b'\n') {
        expected.push(b'\n');
    }
    assert!(back == expected, "the log says what the container wrote, no more and no less");
}

fn logged(reads: &mut dyn Iterator<Item = &[u8]>) -> Vec<u8> {
    let (mut lines, mut log) = (StreamLines::new(Stream::Out), Vec::new());
    let at = WallTime::UNIX_EPOCH;
    let mut counted = 0;
    for read in reads {
        counted += lines.take(read, at, &mut log);
    }
    counted += lines.finish(at, &mut log);
    let written = log.iter().filter(|&&byte| byte == b'\n').count();
    assert_eq!(usize::try_from(counted).ok(), Some(written), "every line is counted");
    log
}

#[test]
fn any_state_of_a_process_keeps_the_laws() {
    winddown_fuzz::short("procfs", process_state);
}

#[test]
fn any_output_of_a_container_keeps_the_laws() {
    winddown_fuzz::short("container_logs", container_log);
}
