//! The last line: the filter and order of the pods, or the keys; and the time of the picture.

use winddown_shared::display::clean;

use super::{Page, PodOrder};
use crate::line::span;
use crate::paint::{DIM, WARN};
use winddown_control::api::Status;

/// The screen height from which there is always a last line.
const LOW_SCREEN_ROWS: usize = 8;
/// The screen width below which only the most important keys are named.
const NARROW_SCREEN_COLUMNS: usize = 60;

impl Page<'_> {
    /// The number of lines at the bottom: one where there is room, or pods are hidden or in an unusual order.
    pub(super) fn foot_rows(&self, rows: usize) -> usize {
        usize::from(rows >= LOW_SCREEN_ROWS || rows > 0 && !self.choice().is_empty())
    }

    pub(super) fn foot(&mut self, rows: usize) {
        if self.foot_rows(rows) == 0 {
            return;
        }
        self.lines.truncate(rows - 1);
        while self.lines.len() < rows - 1 {
            self.blank();
        }
        let answer = match (self.scene.gone, self.scene.status) {
            (None, Some(status)) => format!("changed {}", status.time.strftime("%H:%M:%S UTC")),
            _ => String::new(),
        };
        let left = vec![span(WARN, self.choice()), span(DIM, self.keys())];
        self.two(left, vec![span(DIM, answer)]);
    }

    /// What the user has chosen to see of the pods; empty without a choice.
    fn choice(&self) -> String {
        let scene = self.scene;
        let mut parts = Vec::new();
        if scene.help {
            return String::new();
        }
        if scene.typing {
            parts.push(format!("/{}_", clean(scene.filter)));
        } else if !scene.filter.is_empty() {
            let count = |status: &Status| {
                format!(" ({} of {})", self.chosen(status).len(), status.pods.len())
            };
            let count = scene.status.map(count).unwrap_or_default();
            parts.push(format!("/{}{count}", clean(scene.filter)));
        }
        if scene.order != PodOrder::default() {
            parts.push(scene.order.as_str().to_owned());
        }
        parts.join(", ")
    }

    fn keys(&self) -> &'static str {
        let scene = self.scene;
        match () {
            () if scene.help => "Esc back   q quit",
            () if scene.typing => "   Enter done   Esc all pods",
            () if !self.choice().is_empty() => "   Esc back   ? help",
            () if self.columns < NARROW_SCREEN_COLUMNS => "q quit   ? help",
            () => "q quit   / filter   s order   ? help",
        }
    }
}
