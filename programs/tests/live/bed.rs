//! A terminal that runs `winddown status --watch`, and a scripted agent.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::num::NonZero;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use tokio::time::Instant;
use winddown_control::api::Status;

use crate::found_by_name::search_path;

/// A timeout far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The sequence at the end of every picture, after which the terminal may show it.
const SHOWN: &[u8] = b"\x1b[?2026l";

/// An agent that answers one watch at a time.
pub(crate) struct Agent {
    pub(crate) socket: PathBuf,
    listener: UnixListener,
    watch: Option<UnixStream>,
}

impl Agent {
    pub(crate) fn new(folder: &Path) -> Self {
        let socket = folder.join("winddown.sock");
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { socket, listener, watch: None }
    }

    /// Waits for a request, and answers it.
    pub(crate) fn answer(&mut self) {
        let stream = self.accept();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.starts_with("GET /v1/status?watch=1 "), "{line}");
        while line.trim_end() != "" {
            line.clear();
            lines.read_line(&mut line).unwrap();
        }
        let mut watch = stream;
        watch.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").unwrap();
        self.watch = Some(watch);
    }

    fn accept(&self) -> UnixStream {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    return stream;
                }
                Err(error) => assert!(
                    error.kind() == ErrorKind::WouldBlock && Instant::now() < deadline,
                    "nobody asks: {error}"
                ),
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    pub(crate) fn say(&mut self, status: &Status) {
        let mut line = serde_json::to_vec(status).unwrap();
        line.push(b'\n');
        self.watch.as_mut().unwrap().write_all(&line).unwrap();
    }

    /// Sends an invalid status.
    pub(crate) fn say_nonsense(&mut self) {
        self.watch.as_mut().unwrap().write_all(b"{\"kind\":17}\n").unwrap();
    }

    /// Closes the connection, as when the agent restarts.
    pub(crate) fn hang_up(&mut self) {
        self.watch = None;
    }
}

/// A terminal and the command that runs on it.
pub(crate) struct Tty {
    master: File,
    slave: File,
    before: Termios,
    pub(crate) screen: vt100::Parser,
    /// Everything sent to the terminal since this was last cleared.
    pub(crate) sent: Vec<u8>,
    heard: Receiver<Vec<u8>>,
    child: Child,
}

impl Tty {
    /// Starts the command on a terminal of this size.
    pub(crate) fn start(socket: &Path, size: (u16, u16), set: &[(&str, &str)]) -> Self {
        Self::start_by(&[], socket, size, set)
    }

    /// Starts the command by `shell`, which finds it in its arguments.
    pub(crate) fn start_by(
        shell: &[&str],
        socket: &Path,
        (columns, rows): (u16, u16),
        set: &[(&str, &str)],
    ) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = OpenOptions::new().read(true).write(true).open(name).unwrap();
        tcsetwinsize(&slave, size(columns, rows)).unwrap();
        let before = tcgetattr(&slave).unwrap();
        // A session of its own, so that the terminal's keys and changes of its size reach the command.
        let child = Command::new("setsid")
            .arg("--ctty")
            .args(shell)
            .args([env!("CARGO_BIN_EXE_winddown"), "status", "--watch"])
            .env("PATH", search_path())
            .env("WINDDOWN_SOCKET", socket)
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            .env_remove("NO_COLOR")
            .envs(set.iter().copied())
            .stdin(Stdio::from(slave.try_clone().unwrap()))
            .stdout(Stdio::from(slave.try_clone().unwrap()))
            .stderr(Stdio::from(slave.try_clone().unwrap()))
            .spawn()
            .expect("setsid of util-linux");
        let (told, heard) = channel();
        let master = File::from(master);
        let mut reader = master.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 8192];
            while let Ok(read @ 1..) = reader.read(&mut bytes) {
                if told.send(bytes[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        let screen = vt100::Parser::new(cells(rows), cells(columns), 0);
        Self { master, slave, before, screen, sent: Vec::new(), heard, child }
    }

    /// Waits for a complete picture for which `is` returns true.
    pub(crate) fn until(&mut self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = self.text();
            if self.sent.ends_with(SHOWN) && is(&text) {
                return text;
            }
            assert!(self.hear(deadline - Instant::now()), "{what}: not seen:\n{text}");
        }
    }

    /// Waits until `line` was printed, where nothing is drawn.
    pub(crate) fn until_line(&mut self, line: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.text().contains(line) {
            assert!(self.hear(deadline - Instant::now()), "{line}: not seen:\n{}", self.text());
        }
    }

    /// Whether nothing is sent during `time`.
    pub(crate) fn is_quiet(&mut self, time: Duration) -> bool {
        !self.hear(time)
    }

    pub(crate) fn text(&self) -> String {
        let rows = self.screen.screen().rows(0, self.screen.screen().size().1.get());
        rows.map(|row| row.trim_end().to_owned() + "\n").collect()
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        // Terminals differ in how they handle the old content; this one clears it.
        self.screen.screen_mut().set_size(cells(rows), cells(columns));
        tcsetwinsize(&self.slave, size(columns, rows)).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        kill(pid, signal).unwrap();
    }

    /// Waits for the command to exit; the terminal must be restored.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it goes on:\n{}", self.text());
            self.hear(Duration::from_millis(20));
        };
        // On a busy machine, its last output arrives some time after its exit.
        let is_back = |screen: &vt100::Screen| !screen.alternate_screen() && !screen.hide_cursor();
        while !is_back(self.screen.screen()) && self.hear(deadline - Instant::now()) {}
        while self.hear(Duration::from_millis(100)) {}
        let screen = self.screen.screen();
        assert!(!screen.alternate_screen(), "the other screen is still shown");
        assert!(!screen.hide_cursor(), "the cursor is still hidden");
        let now = tcgetattr(&self.slave).unwrap();
        let modes = |t: &Termios| (t.local_modes, t.input_modes, t.output_modes);
        assert_eq!(modes(&now), modes(&self.before), "the terminal's modes");
        status
    }

    fn hear(&mut self, time: Duration) -> bool {
        match self.heard.recv_timeout(time) {
            Ok(bytes) => {
                self.screen.process(&bytes);
                self.sent.extend(bytes);
                true
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
        }
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("no empty terminal")
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }
}
