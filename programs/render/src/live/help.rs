//! The explanation of keys and symbols.

use super::{Page, PodOrder};
use crate::line::span;
use crate::paint::{HEAD, PLAIN};
use crate::wrap;

/// The width of the keys at the left, in columns.
const KEY_COLUMNS: usize = 12;

impl Page<'_> {
    /// The keys, then the symbols: on a low screen the keys stay.
    pub(super) fn help(&mut self) {
        self.heading("KEYS");
        let orders = PodOrder::ALL.map(PodOrder::as_str).join(", ");
        for (keys, what) in [
            ("q, Ctrl-C", "quit"),
            ("/", "show only pods with a text in namespace/name; Enter keeps it"),
            ("s", &*format!("next order of the pods: {orders}")),
            ("?", "this help"),
            ("Esc", "leave help, filter or order; without these, quit"),
            ("arrows, j k", "scroll the pods; so do page keys, space, Home and End"),
            ("Ctrl-Z", "suspend"),
        ] {
            self.explained(keys, what);
        }
        self.blank();
        self.heading("SYMBOLS");
        let bar = self.bar(1, 2, 6);
        for (symbol, what) in [
            ("!", "a problem; the lines below it say what to do"),
            (&*bar, "time used, or pods of the group that have terminated"),
            ("over", "the grace period is over: SIGKILL was sent"),
            ("-", "none, or unknown"),
        ] {
            self.explained(symbol, what);
        }
    }

    fn explained(&mut self, keys: &str, what: &str) {
        let room = self.columns.saturating_sub(KEY_COLUMNS);
        for (number, line) in wrap(what, Some(room), 0).iter().enumerate() {
            let keys = if number == 0 { keys } else { "" };
            self.two(vec![span(HEAD, format!("{keys:<KEY_COLUMNS$}")), span(PLAIN, line)], vec![]);
        }
    }
}
