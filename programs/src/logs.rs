//! `winddown logs`.

use winddown_control::Client;
use winddown_control::api::LogQuery;
use winddown_shared::display::clean;

use super::{CommandError, Exit, GlobalArgs, LogsArgs, Output};

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
    let client = Client::new(&global.socket);
    let mut blocks = client.log(&args.pod.namespace, &args.pod.name, &query).await?;
    let mut kept = Vec::new();
    while let Some(block) = blocks.next().await? {
        match out.terminal {
            true => out.text(&printable(&mut kept, &block))?,
            false => out.bytes(&block)?,
        }
    }
    out.text(&printable(&mut Vec::new(), &kept))?;
    Ok(Exit::Success)
}

/// What a terminal may be sent of the next block: a container's output must not control it. The start of a character
/// that goes on in the next block is kept until then.
fn printable(kept: &mut Vec<u8>, block: &[u8]) -> String {
    kept.extend_from_slice(block);
    let cut = match std::str::from_utf8(kept) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        // Whatever is wrong before the end is replaced.
        _ => kept.len(),
    };
    let rest = kept.split_off(cut);
    let text = String::from_utf8_lossy(kept);
    let lines: Vec<_> = text.split('\n').map(clean).collect();
    let printable = lines.join("\n");
    *kept = rest;
    printable
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
}
