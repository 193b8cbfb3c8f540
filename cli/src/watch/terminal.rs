//! The terminal as a whole screen, and given back as it was whatever happens.

use std::io::{self, BufWriter, Stdout, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use nix::sys::signal::{Signal, raise};
use ratatui::Terminal as Drawing;
use ratatui::backend::CrosstermBackend;
use ratatui::text::{Line, Text};

/// The terminal is ours.
static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// The terminal while it is taken. Dropping it gives it back; so does a panic.
pub(super) struct Terminal {
    drawing: Drawing<CrosstermBackend<BufWriter<Stdout>>>,
}

// === impl Terminal ===

impl Terminal {
    /// Takes the terminal: its other screen, without a cursor, keys as they are typed.
    pub(super) fn take(color: bool) -> io::Result<Self> {
        // The choice was made before; the library would look at NO_COLOR again.
        crossterm::style::force_color_output(color);
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                before(panic);
            }));
        });
        enter()?;
        let backend = CrosstermBackend::new(BufWriter::new(io::stdout()));
        match Drawing::new(backend) {
            Ok(drawing) => Ok(Self { drawing }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    /// Draws what `lines` gives for the columns and rows there are; only what is different is sent.
    pub(super) fn draw(
        &mut self,
        lines: impl FnOnce(usize, usize) -> Vec<Line<'static>>,
    ) -> io::Result<()> {
        if !TAKEN.load(Ordering::Relaxed) {
            return Err(io::Error::other("the terminal was given back after a panic"));
        }
        queue!(self.drawing.backend_mut(), BeginSynchronizedUpdate)?;
        self.drawing.draw(|frame| {
            let area = frame.area();
            let lines = lines(usize::from(area.width), usize::from(area.height));
            frame.render_widget(Text::from(lines), area);
        })?;
        execute!(self.drawing.backend_mut(), EndSynchronizedUpdate)
    }

    /// Stops this process as Ctrl-Z does; returns when it is told to go on.
    pub(super) fn stop_here(&mut self) -> io::Result<()> {
        give_back();
        raise(Signal::SIGTSTP)?;
        enter()?;
        self.drawing.clear()
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
        // There is nobody left to tell that this failed.
        let _ = execute!(io::stdout(), EndSynchronizedUpdate, Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
        let _ = io::stdout().flush();
    }
}
