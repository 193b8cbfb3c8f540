//! Properties of reading the kernel's files and the logs of containers, for any input. Called by tests/fuzz.

use crate::pod_logs::{LogLines, LogOptions};
use crate::{capacity, psi, usage};

/// Reads the bytes as a log, in pieces of the size in the first byte and with the options in the second. Panics if the
/// output depends on the pieces, or is more than was requested.
pub fn log(bytes: &[u8]) {
    let Some((&[cut, wanted], log)) = bytes.split_first_chunk::<2>() else { return };
    let limit = Some(u64::from(wanted >> 4)).filter(|limit| *limit > 0);
    let stream = [None, Some("stdout"), Some("stderr"), None][usize::from(wanted >> 1 & 3)];
    let options = LogOptions {
        timestamps: wanted & 1 == 1,
        limit_bytes: limit,
        stream,
        ..LogOptions::default()
    };
    let whole = given(&options, log, usize::MAX);
    assert_eq!(whole, given(&options, log, usize::from(cut) + 1), "however it is read");
    let unlimited = LogOptions { limit_bytes: None, ..options.clone() };
    let all = given(&unlimited, log, usize::MAX);
    assert!(all.starts_with(&whole) && limit.is_none_or(|most| whole.len() as u64 <= most));
    let of = |stream| LogOptions { stream, ..LogOptions::default() };
    let [both, out, err] = [None, Some("stdout"), Some("stderr")]
        .map(|stream| given(&of(stream), log, usize::MAX).len());
    assert!(both == out + err && both <= log.len(), "each line is of one stream");
}

fn given(options: &LogOptions, log: &[u8], size: usize) -> Vec<u8> {
    let (mut lines, mut out) = (LogLines::new(options), Vec::new());
    log.chunks(size).for_each(|piece| lines.take(piece, &mut out));
    out
}

#[test]
fn any_log_keeps_the_laws() {
    winddown_fuzz::short("logs", log);
}

/// Parses the text as each kind of kernel file. Panics if a property is violated.
pub fn kernel_file(text: &[u8]) {
    if let Some(pressure) = psi::parse_pressure(text) {
        for share in [pressure.some_avg10, pressure.full_avg10] {
            assert!((0.0..=100.0).contains(&share), "a share of time is 0 % to 100 %: {share}");
        }
    }
    usage::fuzzing::laws(text);
    capacity::fuzzing::laws(text);
}

#[test]
fn any_file_of_the_kernel_keeps_the_laws() {
    winddown_fuzz::short("kernel_files", kernel_file);
}
