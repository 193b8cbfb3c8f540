//! What the keys of the live view do. Pure.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use winddown_render::PodOrder;

#[cfg(test)]
mod tests;

/// The most characters of a filter: a namespace has up to 63, and a name up to 253.
const MAX_FILTER_CHARS: usize = 320;

/// What happens after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Draw,
    Stop,
    Quit,
}

/// What the user has chosen to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LiveControls {
    /// Only pods with this text in `namespace/name` are shown.
    pub(super) filter: String,
    /// Whether the filter is being typed.
    pub(super) typing: bool,
    pub(super) order: PodOrder,
    /// Whether the keys are explained instead of the node.
    pub(super) help: bool,
    /// The number of pods that are scrolled past.
    pub(super) skipped: usize,
    /// The number of pods that are visible at once.
    pub(super) page: usize,
}

impl LiveControls {
    pub(super) fn press(&mut self, key: KeyEvent) -> Act {
        if key.kind == KeyEventKind::Release {
            return Act::Draw;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c' | 'd') => Act::Quit,
                KeyCode::Char('z') => Act::Stop,
                _ => Act::Draw,
            };
        }
        match key.code {
            KeyCode::Esc => return self.leave(),
            KeyCode::Char(typed) if self.typing => self.lengthen(typed),
            KeyCode::Backspace if self.typing => self.shorten(),
            KeyCode::Enter => self.typing = false,
            KeyCode::Char('q' | 'Q') => return Act::Quit,
            KeyCode::Char('?') => self.help = !self.help,
            KeyCode::Char('/') => (self.typing, self.help) = (true, false),
            KeyCode::Char('s') => (self.order, self.skipped) = (self.order.next(), 0),
            code => self.scroll(code),
        }
        Act::Draw
    }

    /// Leaves the explanation, the filter or the order, whichever was entered last in this list; else the program.
    fn leave(&mut self) -> Act {
        if self.help {
            self.help = false;
        } else if self.typing || !self.filter.is_empty() {
            (self.typing, self.skipped) = (false, 0);
            self.filter.clear();
        } else if self.order != PodOrder::default() {
            (self.order, self.skipped) = (PodOrder::default(), 0);
        } else {
            return Act::Quit;
        }
        Act::Draw
    }

    fn lengthen(&mut self, typed: char) {
        if !typed.is_control() && self.filter.chars().count() < MAX_FILTER_CHARS {
            self.filter.push(typed);
            self.skipped = 0;
        }
    }

    /// Removes the last character, or leaves a filter without any.
    fn shorten(&mut self) {
        self.typing = self.filter.pop().is_some();
        self.skipped = 0;
    }

    fn scroll(&mut self, code: KeyCode) {
        self.skipped = match code {
            KeyCode::Down | KeyCode::Char('j') => self.skipped.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.skipped.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.skipped.saturating_add(self.page.max(1)),
            KeyCode::PageUp => self.skipped.saturating_sub(self.page.max(1)),
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => self.skipped,
        };
    }
}
