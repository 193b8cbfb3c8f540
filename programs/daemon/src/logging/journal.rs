//! Writes lines to the journal in its native protocol: one datagram per line, with all fields.
//!
//! A journal that does not read (it hangs, or is flooded) must not delay the stop of a pod: lines
//! that do not fit are counted instead, and the next one that fits reports the count.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::Level;

use super::Sink;
use super::line::Line;

/// The path of the journal's socket.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";

/// The longest name of a field; the journal ignores longer ones.
const LONGEST_NAME: usize = 64;

/// Names that have a meaning to the journal or to systemd, or that winddown sets itself.
const TAKEN: [&str; 12] = [
    "MESSAGE",
    "MESSAGE_ID",
    "PRIORITY",
    "ERRNO",
    "UNIT",
    "USER_UNIT",
    "TID",
    "DOCUMENTATION",
    "INVOCATION_ID",
    "USER_INVOCATION_ID",
    "KIND",
    "PHASE",
];
const TAKEN_BEGINNINGS: [&str; 4] = ["CODE_", "SYSLOG_", "OBJECT_", "COREDUMP_"];

#[derive(Debug)]
pub(super) struct JournalSink {
    socket: UnixDatagram,
    address: PathBuf,
    lost: AtomicU64,
}

impl JournalSink {
    /// Creates the sink for the journal at `address`.
    ///
    /// # Errors
    /// No socket can be created, or `address` does not exist.
    pub(super) fn at(address: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        std::fs::metadata(address)?;
        Ok(Self { socket, address: address.to_owned(), lost: AtomicU64::new(0) })
    }

    /// Returns the number of lost lines that were not reported yet.
    #[cfg(test)]
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Sink for JournalSink {
    fn write(&self, line: &Line) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        // Not connected, because a restarted journal has another socket at this path.
        if self.socket.send_to(&encode(line, lost), &self.address).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

/// Encodes the line as a datagram.
pub(super) fn encode(line: &Line, lost: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.text.len() + 512);
    if lost == 0 {
        put(&mut out, "MESSAGE", &line.text);
    } else {
        let told =
            format!("{} ({lost} lines before this were lost: the journal was busy)", line.text);
        put(&mut out, "MESSAGE", &told);
        put(&mut out, "LINES_LOST", &lost.to_string());
    }
    put(&mut out, "PRIORITY", priority(line));
    put(&mut out, "SYSLOG_IDENTIFIER", "winddown");
    put(&mut out, "TARGET", line.place.target());
    if let Some(kind) = line.kind {
        put(&mut out, "MESSAGE_ID", kind.id);
        put(&mut out, "KIND", kind.name);
        put(&mut out, "PHASE", kind.phase);
    }
    if line.repeated > 0 {
        put(&mut out, "REPEATED", &line.repeated.to_string());
    }
    if let (Some(file), Some(number)) = (line.place.file(), line.place.line()) {
        put(&mut out, "CODE_FILE", file);
        put(&mut out, "CODE_LINE", &number.to_string());
    }
    let of_a_pod = line.field("namespace").is_some();
    for (name, value) in &line.fields {
        match *name {
            "pod" => match value.split_once('/') {
                Some((namespace, name)) => {
                    put(&mut out, "POD_NAMESPACE", namespace);
                    put(&mut out, "POD_NAME", name);
                }
                None => put(&mut out, "POD_NAME", value),
            },
            "namespace" => put(&mut out, "POD_NAMESPACE", value),
            "name" if of_a_pod => put(&mut out, "POD_NAME", value),
            "uid" => put(&mut out, "POD_UID", value),
            "container" => put(&mut out, "POD_CONTAINER", value),
            "node" => put(&mut out, "NODE_NAME", value),
            name => put(&mut out, &own_name(name), value),
        }
    }
    out
}

/// Returns the syslog priority: decisions are notices; other levels map to their own.
fn priority(line: &Line) -> &'static str {
    match line.level() {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO if line.kind.is_some() => "5",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    }
}

/// Converts a field's name to a valid one of the journal: upper-case letters, digits and `_`,
/// beginning with a letter. A name that is already taken gets a prefix.
fn own_name(name: &str) -> String {
    let letters = name.trim_start_matches(|c: char| !c.is_ascii_alphabetic()).chars();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let own: String = letters.map(plain).take(LONGEST_NAME - "WINDDOWN_".len()).collect();
    let taken = own.is_empty()
        || TAKEN.contains(&&*own)
        || TAKEN_BEGINNINGS.iter().any(|beginning| own.starts_with(beginning));
    if taken { format!("WINDDOWN_{own}") } else { own }
}

/// Appends `NAME=value`, or the binary form with a length if the value contains a line break.
fn put(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        out.push(b'\n');
        out.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        out.push(b'=');
    }
    out.extend_from_slice(value.as_bytes());
    out.push(b'\n');
}
