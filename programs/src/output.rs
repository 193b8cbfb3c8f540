//! The output streams of commands.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;

use anyhow::Context as _;
use clap::ValueEnum;
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{CommandError, Exit};

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set or the terminal is dumb.
    #[default]
    Auto,
    /// Always, also into a pipe.
    Always,
    /// Never.
    Never,
}

/// Standard output and standard error, with their capabilities.
///
/// Results go to standard output, progress and errors to standard error, so that a pipe gets only
/// results. What prints results fails if standard output cannot be written to. Once its reader has gone, as in
/// `winddown drain | head -1`, results are dropped: the command goes on, and its exit code is what it would have been.
pub struct Output {
    out: Box<dyn Write>,
    err: Box<dyn Write>,
    /// Whether standard output is a terminal.
    pub terminal: bool,
    /// Whether standard output is a terminal on which lines may be overwritten.
    pub draws: bool,
    /// Whether standard error is a terminal on which progress lines may be overwritten.
    pub progress_terminal: bool,
    /// Whether results are coloured.
    pub color: bool,
    /// Whether errors are coloured.
    pub error_color: bool,
    /// The path of this program as a word of a shell's, where a shell does not find it by its name.
    program: Option<String>,
    /// Whether a progress line is on the terminal that must be overwritten.
    drawn: bool,
    /// Cancelled when a write has shown that the reader of standard output has gone.
    unread: CancellationToken,
}

impl Output {
    /// Returns the streams of the process.
    pub fn stdio(choice: ColorChoice) -> Self {
        let auto = |choice_of: anstream::ColorChoice| choice_of != anstream::ColorChoice::Never;
        let (color, error_color) = match choice {
            ColorChoice::Always => (true, true),
            ColorChoice::Never => (false, false),
            ColorChoice::Auto => (
                auto(anstream::AutoStream::choice(&std::io::stdout())),
                auto(anstream::AutoStream::choice(&std::io::stderr())),
            ),
        };
        let terminal = std::io::stdout().is_terminal();
        let term = std::env::var_os("TERM");
        Self {
            terminal,
            draws: terminal && moves_cursor(term.as_deref()),
            progress_terminal: std::io::stderr().is_terminal() && moves_cursor(term.as_deref()),
            color,
            error_color,
            program: program_without_name(),
            ..Self::plain(std::io::stdout(), std::io::stderr())
        }
    }

    /// Creates an output on streams that are no terminal, without colour.
    pub fn plain(out: impl Write + 'static, err: impl Write + 'static) -> Self {
        Self {
            out: Box::new(out),
            err: Box::new(err),
            terminal: false,
            draws: false,
            progress_terminal: false,
            color: false,
            error_color: false,
            program: None,
            drawn: false,
            unread: CancellationToken::new(),
        }
    }

    /// Returns the terminal's columns and rows; `None` when standard output is no terminal, so that
    /// nothing is truncated.
    pub fn size(&self) -> Option<(usize, usize)> {
        if self.terminal { terminal_size(std::io::stdout()) } else { None }
    }

    /// Prints a text for people, with commands that can be typed.
    pub fn text(&mut self, text: &str) -> Result<(), CommandError> {
        let text = self.typed(text);
        self.bytes(text.as_bytes())
    }

    /// Prints one line of a text for people.
    pub fn line(&mut self, line: &str) -> Result<(), CommandError> {
        self.text(&format!("{line}\n"))
    }

    /// This program as a shell finds it, if not by its name.
    pub(super) fn program(&self) -> Option<&str> {
        self.program.as_deref()
    }

    /// The text with this program named as it can be typed.
    fn typed<'a>(&self, text: &'a str) -> Cow<'a, str> {
        winddown_render::by_path(text, self.program())
    }

    /// Runs what follows something without an end, and ends it once the reader of standard output has gone.
    pub(super) async fn while_read(
        &mut self,
        follow: impl AsyncFnOnce(&mut Self) -> Result<Exit, CommandError>,
    ) -> Result<Exit, CommandError> {
        let unread = self.unread.clone();
        // While nothing is printed, no write reveals it.
        tokio::select! {
            done = follow(self) => done,
            () = unread.cancelled() => Ok(Exit::Success),
            () = reader_gone() => Ok(Exit::Success),
        }
    }

    /// Prints bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), CommandError> {
        if self.unread.is_cancelled() {
            return Ok(());
        }
        let written = self.out.write_all(bytes).and_then(|()| self.out.flush());
        if written.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe) {
            self.unread.cancel();
            return Ok(());
        }
        written.context("the answer cannot be written").map_err(CommandError::from)
    }

    /// Prints a value as indented JSON.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), CommandError> {
        let mut text = winddown_control::json::pretty(value).map_err(anyhow::Error::new)?;
        text.push(b'\n');
        self.bytes(&text)
    }

    /// Prints a value as one line of JSON.
    pub fn json_line(&mut self, value: &impl Serialize) -> Result<(), CommandError> {
        let mut text = winddown_control::json::line(value).map_err(anyhow::Error::new)?;
        text.push(b'\n');
        self.bytes(&text)
    }

    /// Prints a value as YAML, with the same fields as [`json`](Self::json), in alphabetical order.
    pub fn yaml(&mut self, value: &impl Serialize) -> Result<(), CommandError> {
        let json = winddown_control::json::line(value).map_err(anyhow::Error::new)?;
        let value: serde_json::Value = serde_json::from_slice(&json).map_err(anyhow::Error::new)?;
        self.bytes(winddown_config::yaml(&value).as_bytes())
    }

    /// Prints a value as one YAML document of several.
    pub fn yaml_document(&mut self, value: &impl Serialize) -> Result<(), CommandError> {
        self.bytes(b"---\n")?;
        self.yaml(value)
    }

    /// Prints a line of progress to standard error, ignoring errors.
    pub fn progress(&mut self, line: &str) {
        let line = self.typed(line);
        let _ = writeln!(self.err, "{line}");
    }

    /// Replaces the last progress line, on a terminal; an empty line removes it.
    pub fn progress_over(&mut self, line: &str) {
        if self.progress_terminal && (self.drawn || !line.is_empty()) {
            self.drawn = !line.is_empty();
            let columns = terminal_size(std::io::stderr()).map(|(columns, _)| columns);
            let _ = self.err.write_all(replacing(line, columns).as_bytes());
            let _ = self.err.flush();
        }
    }

    /// Prints the error, if any, and returns the exit code.
    pub fn finish(&mut self, result: Result<Exit, CommandError>) -> Exit {
        self.progress_over("");
        match result {
            Ok(exit) => exit,
            Err(error) => {
                self.progress(&winddown_render::error(&error.error, &error.hint, self.error_color));
                error.exit
            }
        }
    }
}

/// The path of this program as a word of a shell's; `None` if a shell finds one by its name.
pub(super) fn program_without_name() -> Option<String> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    if winddown_install::find_program("winddown".as_ref(), &search).is_some() {
        return None;
    }
    std::env::current_exe().ok().map(winddown_host::path_word)
}

/// Resolves when standard output is a pipe whose reader has closed it. Cancel-safe.
async fn reader_gone() {
    let (printer, gone) = oneshot::channel();
    // A separate thread sleeps in poll(2), and the process does not wait for it at its exit. For
    // files and the like poll(2) never reports anything.
    std::thread::spawn(move || {
        let output = std::io::stdout();
        let mut output = [PollFd::new(&output, PollFlags::empty())];
        loop {
            match poll(&mut output, None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
                Ok(_) => break,
            }
        }
        let _ = printer.send(());
    });
    if gone.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Returns the columns and rows of a terminal, if it knows them.
fn terminal_size(terminal: impl AsFd) -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    let known = size.ws_col > 0 && size.ws_row > 0;
    known.then(|| (usize::from(size.ws_col), usize::from(size.ws_row)))
}

/// Whether a terminal of the type `term` understands the escape sequences that overwrite lines.
fn moves_cursor(term: Option<&OsStr>) -> bool {
    term.is_none_or(|term| term != "dumb")
}

/// Returns what replaces the last line with `line`, which is cut: of a line that wraps, only the last row could be
/// replaced.
fn replacing(line: &str, columns: Option<usize>) -> String {
    let room = columns.map_or(usize::MAX, |columns| columns.saturating_sub(1));
    format!("\r\x1b[2K{}", winddown_render::fit(line, room))
}

#[cfg(test)]
mod tests {
    use super::{CommandError, Exit, Output, moves_cursor, replacing};
    use crate::tests::Sink;

    #[test]
    fn nothing_is_overwritten_on_a_dumb_terminal() {
        for (term, moves) in [(Some("dumb"), false), (Some("xterm"), true), (None, true)] {
            assert_eq!(moves_cursor(term.map(AsRef::as_ref)), moves, "{term:?}");
        }
    }

    #[test]
    fn where_a_shell_does_not_find_the_program_each_text_names_it_by_its_path() {
        let (out, err) = (Sink::default(), Sink::default());
        let mut output = Output::plain(out.clone(), err.clone());
        output.program = Some("/opt/x/winddown".to_owned());
        output.text("lock held\n`winddown doctor` says why\n").unwrap();
        output.line("`winddown\n  status`; `journalctl -u winddown -e`").unwrap();
        output.bytes(b"# `winddown config check`\n").unwrap();
        let refused = CommandError::message(Exit::Failure, "no").with_hint("`winddown undrain`");
        assert_eq!(output.finish(Err(refused)), Exit::Failure);
        let said = "lock held\n`/opt/x/winddown doctor` says why\n\
                    `/opt/x/winddown\n  status`; `journalctl -u winddown -e`\n\
                    # `winddown config check`\n";
        assert_eq!(out.text(), said);
        assert!(err.text().contains("`/opt/x/winddown undrain`"), "{}", err.text());
    }

    #[test]
    fn a_line_of_progress_never_wraps() {
        let line = format!("default/{}: waiting for it to terminate, 3s", "a".repeat(80));
        assert_eq!(replacing(&line, Some(20)), "\r\x1b[2Kdefault/aaaaaaaaaa…");
        assert_eq!(replacing(&line, None), format!("\r\x1b[2K{line}"));
    }
}
