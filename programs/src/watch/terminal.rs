//! Takes over the whole terminal, and restores it whatever happens.

use std::io::{self, BufWriter, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::Print;
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};
use nix::sys::signal::{Signal, raise};
use winddown_render::{Line, painted};

/// Whether the terminal is taken over.
static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// The terminal while it is taken over. Dropping this restores the terminal; so does a panic.
pub(super) struct Terminal {
    color: bool,
    size: (u16, u16),
    /// The lines on the screen.
    shown: Vec<String>,
}

impl Terminal {
    /// Takes over the terminal: the alternate screen, no cursor, raw mode.
    pub(super) fn take(color: bool) -> io::Result<Self> {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                before(panic);
            }));
        });
        enter()?;
        Ok(Self { color, size: (0, 0), shown: Vec::new() })
    }

    /// Draws the result of `lines` for the terminal's columns and rows, none wider than that; only changed lines are
    /// written.
    pub(super) fn draw(&mut self, lines: impl FnOnce(usize, usize) -> Vec<Line>) -> io::Result<()> {
        if !TAKEN.load(Ordering::Relaxed) {
            return Err(io::Error::other("the terminal was restored after a panic"));
        }
        let mut out = BufWriter::new(io::stdout());
        queue!(out, BeginSynchronizedUpdate)?;
        let size = size()?;
        if size != self.size {
            queue!(out, Clear(ClearType::All))?;
            (self.size, self.shown) = (size, Vec::new());
        }
        let lines = lines(usize::from(size.0), usize::from(size.1));
        let lines: Vec<String> = lines.iter().map(|line| painted(line, self.color)).collect();
        for (row, line) in (0..).zip(&lines) {
            if self.shown.get(usize::from(row)) != Some(line) {
                // Clear first: after a full line, the cursor is on its last character, which would be cleared.
                queue!(out, MoveTo(0, row), Clear(ClearType::UntilNewLine), Print(line))?;
            }
        }
        if let Ok(below) = u16::try_from(lines.len())
            && lines.len() < self.shown.len()
        {
            queue!(out, MoveTo(0, below), Clear(ClearType::FromCursorDown))?;
        }
        self.shown = lines;
        execute!(out, EndSynchronizedUpdate)
    }

    /// Stops this process as Ctrl-Z does; returns when it is continued.
    pub(super) fn stop_here(&mut self) -> io::Result<()> {
        give_back();
        raise(Signal::SIGTSTP)?;
        self.size = (0, 0);
        enter()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

fn enter() -> io::Result<()> {
    TAKEN.store(true, Ordering::Relaxed);
    let entered =
        enable_raw_mode().and_then(|()| execute!(io::stdout(), EnterAlternateScreen, Hide));
    if entered.is_err() {
        give_back();
    }
    entered
}

/// Restores the terminal; does nothing if it is not taken over.
fn give_back() {
    if TAKEN.swap(false, Ordering::Relaxed) {
        // Ignore errors: they could not be reported any more.
        let _ = execute!(io::stdout(), EndSynchronizedUpdate, Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
        let _ = io::stdout().flush();
    }
}
