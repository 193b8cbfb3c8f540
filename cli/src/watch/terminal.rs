//! The terminal as a whole screen, and given back as it was whatever happens.

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

/// The terminal is ours.
static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// The terminal while it is taken. Dropping it gives it back; so does a panic.
pub(super) struct Terminal {
    color: bool,
    size: (u16, u16),
    /// The lines that are on the screen.
    shown: Vec<String>,
}

impl Terminal {
    /// Takes the terminal: its other screen, without a cursor, keys as they are typed.
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

    /// Draws what `lines` gives for the columns and rows there are, no line wider than that; only lines that are
    /// different are sent.
    pub(super) fn draw(&mut self, lines: impl FnOnce(usize, usize) -> Vec<Line>) -> io::Result<()> {
        if !TAKEN.load(Ordering::Relaxed) {
            return Err(io::Error::other("the terminal was given back after a panic"));
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
                // Cleared first: behind a full line there is nothing to clear but its last character.
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

    /// Stops this process as Ctrl-Z does; returns when it is told to go on.
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

/// Leaves the terminal as it was found; does nothing where it is not taken.
fn give_back() {
    if TAKEN.swap(false, Ordering::Relaxed) {
        // An error could not be told any more.
        let _ = execute!(io::stdout(), EndSynchronizedUpdate, Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
        let _ = io::stdout().flush();
    }
}
