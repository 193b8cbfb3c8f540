//! The serial line of a node with its own kernel, over which commands are run.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{NodeError, Output};

/// The directory in which the node's end of the line looks for commands. base.sh contains that end.
const REQUESTS: &str = "var/lib/node-line";
/// The number in the node's greeting, which answers no request: the node's end is ready.
const GREETING: u32 = 0;

/// The host's end of the line. Every command is a script on the node's disk, and a number on the line.
#[derive(Debug)]
pub(super) struct Line {
    socket: UnixStream,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    greeted: bool,
    /// Whether the node is off, so that no answer will come.
    closed: bool,
    last: u32,
    waiting: BTreeMap<u32, Sender<i32>>,
}

// === impl Line ===

impl Line {
    /// Creates the host's end of the line from a socket.
    pub(super) fn open(socket: UnixStream) -> io::Result<Self> {
        let state = Arc::new(Mutex::new(State::default()));
        let (reader, told) = (BufReader::new(socket.try_clone()?), Arc::clone(&state));
        std::thread::spawn(move || {
            for line in reader.lines().map_while(Result::ok) {
                told.lock().unwrap_or_else(PoisonError::into_inner).hear(&line);
            }
            let mut state = told.lock().unwrap_or_else(PoisonError::into_inner);
            state.closed = true;
            state.waiting.clear();
        });
        Ok(Self { socket, state })
    }

    /// Whether the node's end is ready.
    pub(super) fn is_up(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).greeted
    }

    /// Runs a command in the node, whose root is at `root` on the host, and waits for its end. A command that takes
    /// longer than `limit` continues.
    pub(super) fn run(
        &self,
        root: &Path,
        argv: &[&str],
        limit: Duration,
    ) -> Result<Output, NodeError> {
        self.run_with(root, argv, &[], limit)
    }

    /// Like [`Self::run`], with a file that `@data` among the arguments stands for.
    pub(super) fn run_with(
        &self,
        root: &Path,
        argv: &[&str],
        data: &[u8],
        limit: Duration,
    ) -> Result<Output, NodeError> {
        let (answer, answered) = mpsc::channel();
        let number = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.closed {
                return Err(NodeError::Off);
            }
            state.last += 1;
            let number = state.last;
            state.waiting.insert(number, answer);
            number
        };
        let file = |ending: &str| root.join(REQUESTS).join(format!("{number}.{ending}"));
        put(file("data"), data)?;
        put(file("sh"), script(number, argv).as_bytes())?;
        (&self.socket).write_all(format!("{number}\n").as_bytes()).map_err(|_| NodeError::Off)?;
        let text = |ending| {
            let bytes = fs::read(file(ending)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let code = match answered.recv_timeout(limit) {
            Ok(code) => code,
            Err(RecvTimeoutError::Timeout) => {
                let what = format!("`{}`", argv.join(" "));
                let seen = format!("{}{}", text("out"), text("err"));
                return Err(NodeError::TimedOut { what, limit, seen });
            }
            Err(RecvTimeoutError::Disconnected) => return Err(NodeError::Off),
        };
        let output = Output {
            // The shell's exit code for a command that was killed by a signal is kept as it is.
            status: ExitStatus::from_raw((code & 0xff) << 8),
            stdout: text("out"),
            stderr: text("err"),
        };
        for ending in ["sh", "data", "out", "err"] {
            // Leftovers are removed with the node.
            let _ = fs::remove_file(file(ending));
        }
        Ok(output)
    }
}

// === impl State ===

impl State {
    fn hear(&mut self, line: &str) {
        let mut numbers = line.split_whitespace().map(str::parse::<i32>);
        let (Some(Ok(number)), Some(Ok(code))) = (numbers.next(), numbers.next()) else { return };
        match u32::try_from(number) {
            Ok(GREETING) => self.greeted = true,
            Ok(number) => {
                if let Some(waiting) = self.waiting.remove(&number) {
                    // The caller may have given up.
                    let _ = waiting.send(code);
                }
            }
            Err(_) => {}
        }
    }
}

fn put(path: PathBuf, bytes: &[u8]) -> Result<(), NodeError> {
    fs::write(&path, bytes).map_err(|source| NodeError::File { path, source })
}

/// The script for a command. `@data` among its arguments stands for the file that belongs to it.
fn script(number: u32, argv: &[&str]) -> String {
    let mut text = "exec".to_owned();
    for argument in argv {
        text.push_str(" '");
        match *argument {
            "@data" => text.push_str(&format!("/{REQUESTS}/{number}.data")),
            argument => text.push_str(&argument.replace('\'', r"'\''")),
        }
        text.push('\'');
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::{State, script};

    #[test]
    fn every_argument_stays_one() {
        assert_eq!(
            script(7, &["sh", "-c", "echo 'a b'", "@data"]),
            "exec 'sh' '-c' 'echo '\\''a b'\\''' '/var/lib/node-line/7.data'\n"
        );
    }

    #[test]
    fn an_answer_goes_to_its_request_and_noise_to_none() {
        let mut state = State::default();
        let (one, first) = std::sync::mpsc::channel();
        let (two, second) = std::sync::mpsc::channel();
        state.waiting = [(1, one), (2, two)].into();
        for line in ["0 0", "2 5", "kernel: 3", "9 9", ""] {
            state.hear(line);
        }
        assert!(state.greeted);
        assert_eq!(second.try_recv(), Ok(5));
        assert!(first.try_recv().is_err());
    }
}
