//! Parses the lines of a CRI log, `TIME STREAM TAG LINE`, into the container's output. The tag `P` marks a partial
//! line, which continues in the next entry of its stream.

use std::io::Write as _;

use winddown_shared::WallTime;

use super::LogOptions;

/// The most bytes of a head; longer than any time, stream and tags.
const MAX_HEAD_BYTES: usize = 128;

/// Converts what the runtime wrote to what the container wrote. Buffers no more than the head of a line.
pub(crate) struct LogLines {
    since: Option<WallTime>,
    timestamps: bool,
    stream: Option<&'static str>,
    /// The number of bytes that may still be returned.
    left: u64,
    part: Part,
    /// Whether the last entry of stdout and of stderr was a partial line.
    goes_on: [bool; 2],
}

/// The part of a line that comes next.
enum Part {
    Head(Vec<u8>),
    Text {
        stream: usize,
        goes_on: bool,
    },
    /// The rest of a line that is filtered out or malformed.
    PassedOver,
}

impl LogLines {
    pub(crate) fn new(options: &LogOptions) -> Self {
        Self {
            since: options.since,
            timestamps: options.timestamps,
            stream: options.stream,
            left: options.limit_bytes.unwrap_or(u64::MAX),
            part: Part::Head(Vec::new()),
            goes_on: [false; 2],
        }
    }

    /// Whether the limit is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Begins a new line, also when another file follows: an incomplete line is never continued there.
    pub(crate) fn turn(&mut self) {
        self.part = Part::Head(Vec::new());
    }

    /// Parses the next bytes of the log and appends the output that they yield.
    pub(crate) fn take(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() && !self.is_full() {
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let (now, rest) = match end {
                Some(end) => (&bytes[..end], &bytes[end + 1..]),
                None => (bytes, &[][..]),
            };
            bytes = match &mut self.part {
                Part::Head(head) => {
                    let more = head_in(head, now);
                    head.extend_from_slice(&now[..more]);
                    let is_whole = head.iter().filter(|byte| **byte == b' ').count() == 3;
                    let head = std::mem::take(head);
                    if is_whole {
                        self.part = self.begin(&head, out);
                        &bytes[more..]
                    } else if end.is_some() {
                        rest
                    } else if head.len() > MAX_HEAD_BYTES {
                        self.part = Part::PassedOver;
                        rest
                    } else {
                        self.part = Part::Head(head);
                        rest
                    }
                }
                Part::Text { stream, goes_on } => {
                    let (stream, goes_on) = (*stream, *goes_on);
                    self.give(now, out);
                    if end.is_some() {
                        if !goes_on {
                            self.give(b"\n", out);
                        }
                        self.goes_on[stream] = goes_on;
                        self.turn();
                    }
                    rest
                }
                Part::PassedOver => {
                    if end.is_some() {
                        self.turn();
                    }
                    rest
                }
            };
        }
    }

    /// Starts the text of a line with this head.
    fn begin(&mut self, head: &[u8], out: &mut Vec<u8>) -> Part {
        let Some((at, stream, goes_on)) = read_head(head) else { return Part::PassedOver };
        let is_wanted = self.since.is_none_or(|since| at >= since)
            && self.stream.is_none_or(|wanted| wanted == STREAMS[stream]);
        if !is_wanted {
            return Part::PassedOver;
        }
        if self.timestamps && !self.goes_on[stream] {
            let mut time = Vec::with_capacity(40);
            // Writing to a Vec cannot fail. The kubelet also writes nine digits always.
            let _ = write!(time, "{at:.9} ");
            self.give(&time, out);
        }
        Part::Text { stream, goes_on }
    }

    fn give(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        out.extend_from_slice(&bytes[..most]);
        self.left -= most as u64;
    }
}

const STREAMS: [&str; 2] = ["stdout", "stderr"];

/// How many of `bytes` still belong to the head: up to the third space of both, or just beyond [`MAX_HEAD_BYTES`].
fn head_in(head: &[u8], bytes: &[u8]) -> usize {
    let blanks = head.iter().filter(|byte| **byte == b' ').count();
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b' ');
    let third = ends.map(|(at, _)| at + 1).nth(2_usize.saturating_sub(blanks));
    third.unwrap_or(bytes.len()).min(MAX_HEAD_BYTES + 1)
}

/// Parses a head into its time, stream and whether the line is partial.
fn read_head(head: &[u8]) -> Option<(WallTime, usize, bool)> {
    let head = std::str::from_utf8(head).ok().filter(|head| head.len() <= MAX_HEAD_BYTES)?;
    let mut words = head.split(' ');
    let at = words.next()?.parse().ok()?;
    let stream = words.next()?;
    let stream = STREAMS.iter().position(|one| *one == stream)?;
    // More tags may follow after a colon.
    let goes_on = words.next()?.split(':').next() == Some("P");
    Some((at, stream, goes_on))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn how_a_log_is_read_does_not_change_what_is_given(
            log in proptest::collection::vec(
                prop_oneof![
                    Just("2026-01-01T00:00:00Z stdout F ".to_owned()),
                    Just("2026-01-01T00:00:00Z stderr P ".to_owned()),
                    Just("\n".to_owned()),
                    ".{0,200}",
                ],
                0..20,
            ),
            size in 1..40_usize,
            limit in proptest::option::of(0..200_u64),
            timestamps in any::<bool>(),
        ) {
            let log = log.concat();
            let options = LogOptions { limit_bytes: limit, timestamps, ..LogOptions::default() };
            let read = |size| {
                let (mut lines, mut out) = (LogLines::new(&options), Vec::new());
                log.as_bytes().chunks(size).for_each(|piece| lines.take(piece, &mut out));
                out
            };
            let whole = read(usize::MAX);
            prop_assert_eq!(&read(size), &whole);
            prop_assert!(limit.is_none_or(|limit| whole.len() as u64 <= limit));
        }
    }

    const LOG: &str = "\
2026-01-01T00:00:00.5Z stdout F one
2026-01-01T00:00:01.123456789+00:00 stdout P two, 
2026-01-01T00:00:02Z stderr F an error
2026-01-01T00:00:03Z stdout F:x and its end
no line of a log
2026-01-01T00:00:04Z stdin F nothing

2026-01-01T00:00:05Z stdout F 
2026-01-01T01:00:06+01:00 stdout F  last
";

    fn lines(log: &str, options: &LogOptions, size: usize) -> String {
        let (mut lines, mut out) = (LogLines::new(options), Vec::new());
        for piece in log.as_bytes().chunks(size) {
            lines.take(piece, &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_text_is_what_the_container_wrote_however_it_is_read() {
        for size in [1, 2, 3, 7, 50, 10_000] {
            let text = lines(LOG, &LogOptions::default(), size);
            assert_eq!(text, "one\ntwo, an error\nand its end\n\n last\n", "{size}");
        }
    }

    #[test]
    fn a_time_stands_before_each_line_and_not_before_its_pieces() {
        let options = LogOptions { timestamps: true, ..LogOptions::default() };
        let wanted = "\
2026-01-01T00:00:00.500000000Z one
2026-01-01T00:00:01.123456789Z two, 2026-01-01T00:00:02.000000000Z an error
and its end
2026-01-01T00:00:05.000000000Z 
2026-01-01T00:00:06.000000000Z  last
";
        assert_eq!(lines(LOG, &options, 10_000), wanted);
    }

    #[test]
    fn a_time_a_stream_and_a_number_of_bytes_bound_what_is_given() {
        let since = Some("2026-01-01T00:00:03Z".parse().unwrap());
        let options = LogOptions { since, ..LogOptions::default() };
        assert_eq!(lines(LOG, &options, 9), "and its end\n\n last\n");
        let options = LogOptions { stream: Some("stderr"), ..LogOptions::default() };
        assert_eq!(lines(LOG, &options, 9), "an error\n");
        for limit in [1, 4, 7, 20] {
            let options = LogOptions { limit_bytes: Some(limit), ..LogOptions::default() };
            let text = lines(LOG, &options, 9);
            assert_eq!(text.len() as u64, limit);
            assert!("one\ntwo, an error\nand its end\n\n last\n".starts_with(&text));
        }
    }

    #[test]
    fn a_line_without_end_is_given_as_it_comes_and_one_without_a_head_is_kept_nowhere() {
        let (mut lines, mut out) = (LogLines::new(&LogOptions::default()), Vec::new());
        lines.take(b"2026-01-01T00:00:00Z stdout F ", &mut out);
        for _ in 0..1000 {
            lines.take(&[b'x'; 1000], &mut out);
        }
        assert_eq!(out.len(), 1_000_000);
        lines.take(b"\n", &mut out);
        out.clear();
        for _ in 0..1000 {
            lines.take(&[b'x'; 1000], &mut out);
            if let Part::Head(head) = &lines.part {
                assert!(head.len() <= MAX_HEAD_BYTES);
            }
        }
        lines.take(b"\n2026-01-01T00:00:00Z stdout F again\n", &mut out);
        assert_eq!(out, b"again\n");
    }
}
