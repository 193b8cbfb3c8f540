//! `winddown logs`.

use winddown_control::Client;
use winddown_control::api::LogQuery;
use winddown_shared::display::{clean, is_combining};

use super::{CommandError, Exit, GlobalArgs, LogsArgs, Output, ask};

pub(super) async fn run(
    global: &GlobalArgs,
    args: &LogsArgs,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let query = LogQuery {
        container: args.container.clone(),
        follow: args.follow,
        previous: args.previous,
        timestamps: args.timestamps,
        tail_lines: args.tail,
    };
    match args.follow {
        true => out.while_read(async |out| print(global, args, &query, out).await).await,
        false => print(global, args, &query, out).await,
    }
}

async fn print(
    global: &GlobalArgs,
    args: &LogsArgs,
    query: &LogQuery,
    out: &mut Output,
) -> Result<Exit, CommandError> {
    let client = Client::new(&global.socket);
    let asked = client.log(&args.pod.namespace, &args.pod.name, query);
    let mut blocks = ask::patiently(out, "waiting for the container to start", asked).await?;
    let mut kept = Vec::new();
    while let Some(block) = blocks.next().await? {
        match out.terminal {
            true => out.bytes(printable(&mut kept, &block).as_bytes())?,
            false => out.bytes(&block)?,
        }
    }
    out.bytes(shown(&String::from_utf8_lossy(&kept)).as_bytes())?;
    Ok(Exit::Success)
}

/// The longest sequence that sets colours. A longer one is shown as text.
const MAX_COLOUR_BYTES: usize = 64;

/// What a terminal may be sent of the next block: a container's output must not control it. What goes on in the next
/// block, such as the start of a character, is kept until then.
fn printable(kept: &mut Vec<u8>, block: &[u8]) -> String {
    kept.extend_from_slice(block);
    let rest = kept.split_off(complete(kept));
    let text = shown(&String::from_utf8_lossy(kept));
    *kept = rest;
    text
}

/// How many bytes stand for themselves, whatever follows them.
fn complete(bytes: &[u8]) -> usize {
    let end = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        // Whatever is wrong before the end is replaced.
        _ => bytes.len(),
    };
    let bytes = bytes.get(..end).unwrap_or_default();
    let last = bytes.len().saturating_sub(MAX_COLOUR_BYTES);
    let tail = bytes.get(last..).unwrap_or_default();
    match tail.iter().rposition(|byte| matches!(byte, b'\r' | 0x1b)) {
        Some(at) if is_begun(tail.get(at..).unwrap_or_default()) => last + at,
        _ => end,
    }
}

/// Whether these bytes are the beginning of a line end or of a colour.
fn is_begun(bytes: &[u8]) -> bool {
    match bytes {
        b"\r" | b"\x1b" => true,
        [0x1b, b'[', parameters @ ..] => parameters.iter().all(|byte| is_of_colour(*byte)),
        _ => false,
    }
}

fn is_of_colour(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b';' | b':')
}

/// The text with its tabs and lines, but without colours, which could hide it.
fn shown(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if let Some(after) = after_colour(rest) {
            rest = after;
            continue;
        }
        rest = rest.get(next.len_utf8()..).unwrap_or_default();
        match next {
            '\n' | '\t' => safe.push(next),
            '\r' if rest.starts_with('\n') => {}
            // What follows would be written over the line.
            '\r' => safe.push('\n'),
            _ if is_combining(next) => safe.push(next),
            _ => safe.push_str(&clean(next.encode_utf8(&mut [0; 4]))),
        }
    }
    safe
}

/// What follows the colour that the text begins with, if it does.
fn after_colour(text: &str) -> Option<&str> {
    let parameters = text.strip_prefix("\x1b[")?;
    let end = parameters.bytes().position(|byte| !is_of_colour(byte))?;
    parameters.get(end..)?.strip_prefix('m')
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn a_terminal_gets_whole_characters_and_none_that_control_it() {
        let mut kept = Vec::new();
        let text = "é\x1b[2Jü\nnext\n".as_bytes();
        let mut all = String::new();
        for byte in text {
            all.push_str(&printable(&mut kept, &[*byte]));
        }
        assert!(kept.is_empty());
        assert!(all.starts_with('é') && all.contains('ü') && all.ends_with("\nnext\n"), "{all:?}");
        assert!(!all.contains('\x1b'), "{all:?}");
        assert_eq!(printable(&mut Vec::new(), b"\xff\n").matches('\u{fffd}').count(), 1);
    }

    #[test]
    fn a_terminal_gets_tabs_lines_and_accents_as_they_are_and_no_colours() {
        let stack = "Exception: x\r\n\tat a.B\r\n\x1b[1;31mred\x1b[0m cafe\u{301} \u{2714}\u{fe0f}\n10 %\r20 %\n";
        let wanted = "Exception: x\n\tat a.B\nred cafe\u{301} \u{2714}\u{fe0f}\n10 %\n20 %\n";
        assert_eq!(printable(&mut Vec::new(), stack.as_bytes()), wanted);
        let (mut kept, mut all) = (Vec::new(), String::new());
        for byte in stack.bytes() {
            all.push_str(&printable(&mut kept, &[byte]));
        }
        assert_eq!(all, wanted, "also if it comes byte by byte");
        let hostile = "\x1b]0;title\x07\x1b[2J\u{202e}x\x1b[31\n";
        let shown = printable(&mut Vec::new(), hostile.as_bytes());
        assert!(!shown.contains(['\x1b', '\x07', '\u{202e}']), "{shown:?}");
    }
}
