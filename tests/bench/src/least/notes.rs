//! What the least program wrote down.

use std::time::Duration;

/// Times of the monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// It waits for the signal.
    pub(crate) ready: bool,
    /// The kernel had told of the last exit of an ordinary pod.
    pub(crate) ordinary: Option<Duration>,
    /// The same of a critical pod.
    pub(crate) critical: Option<Duration>,
}

impl Notes {
    pub(crate) fn parse(text: &str) -> Self {
        let time = |name: &str| {
            let nanos = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            nanos.map(Duration::from_nanos)
        };
        Self {
            ready: text.starts_with("ready\n"),
            ordinary: time("ordinary "),
            critical: time("critical "),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Notes;

    #[test]
    fn the_notes_are_read_as_far_as_they_were_written() {
        let notes = Notes::parse("ready\nordinary 1500\n");
        let expected =
            Notes { ready: true, ordinary: Some(Duration::from_nanos(1500)), ..Notes::default() };
        assert_eq!(notes, expected);
        assert_eq!(Notes::parse("rea"), Notes::default());
    }
}
