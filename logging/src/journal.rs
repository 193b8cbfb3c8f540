//! Lines for the journal, in its native protocol: one datagram for each, fields and all.
//!
//! A journal that does not read (it hangs, or is flooded) must not hold up the end of a pod: lines
//! that it has no room for are counted instead, and the next one that fits says how many.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::Level;

use super::Sink;
use super::line::Line;

/// Where the journal listens.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";

/// The journal ignores longer names.
const LONGEST_NAME: usize = 64;

/// Names that mean something to the journal or to systemd, and are not ours to give.
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

/// The journal's socket.
#[derive(Debug)]
pub(super) struct Journal {
    socket: UnixDatagram,
    address: PathBuf,
    lost: AtomicU64,
}

impl Journal {
    /// Speaks to the journal that listens at `address`, now or later.
    ///
    /// # Errors
    /// No socket can be made, or nothing is there.
    pub(super) fn at(address: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        std::fs::metadata(address)?;
        Ok(Self { socket, address: address.to_owned(), lost: AtomicU64::new(0) })
    }

    /// Lines that the journal had no room for and that were not reported yet.
    #[cfg(test)]
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Sink for Journal {
    fn write(&self, line: &Line) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        // Not connected: a journal that was started anew has another socket under this name.
        if self.socket.send_to(&encode(line, lost), &self.address).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

/// The line as a datagram.
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

/// Errors, warnings, decisions (notice), the rest (info) and details (debug).
fn priority(line: &Line) -> &'static str {
    match line.level() {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO if line.kind.is_some() => "5",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    }
}

/// A field's name as the journal takes it: capitals, digits and `_`, not beginning with the latter
/// two, and none that has a meaning already.
fn own_name(name: &str) -> String {
    let letters = name.trim_start_matches(|c: char| !c.is_ascii_alphabetic()).chars();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let own: String = letters.map(plain).take(LONGEST_NAME - "WINDDOWN_".len()).collect();
    let taken = own.is_empty()
        || TAKEN.contains(&&*own)
        || TAKEN_BEGINNINGS.iter().any(|beginning| own.starts_with(beginning));
    if taken { format!("WINDDOWN_{own}") } else { own }
}

/// `NAME=value`, or with the length before it where a line end is in the value.
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
