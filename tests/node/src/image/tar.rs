//! Just enough of the tape archive format (POSIX ustar) to write an image.

use std::io::Write as _;

const BLOCK: usize = 512;

/// An archive under construction. Everything in it belongs to root and is dated 1970, so that the same content produces
/// the same bytes.
#[derive(Debug, Default)]
pub(super) struct Archive(Vec<u8>);

impl Archive {
    /// Adds a folder. Names are shorter than 100 bytes and have no leading slash.
    pub(super) fn folder(&mut self, name: &str) {
        self.entry(b'5', &format!("{name}/"), 0o755, "", &[]);
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, name: &str, to: &str) {
        self.entry(b'2', name, 0o777, to, &[]);
    }

    /// Adds a file.
    pub(super) fn file(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entry(b'0', name, mode, "", content);
    }

    /// Returns the bytes of the archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 2 * BLOCK, 0);
        self.0
    }

    fn entry(&mut self, kind: u8, name: &str, mode: u32, link: &str, content: &[u8]) {
        let mut header = [0; BLOCK];
        let mut field = |at: usize, text: &[u8]| {
            let _ = (&mut header[at..]).write_all(text);
        };
        field(0, name.as_bytes());
        field(100, format!("{mode:07o}").as_bytes());
        field(108, b"0000000");
        field(116, b"0000000");
        field(124, format!("{:011o}", content.len()).as_bytes());
        field(136, b"00000000000");
        // The checksum counts its own field as blanks.
        field(148, b"        ");
        field(156, &[kind]);
        field(157, link.as_bytes());
        field(257, b"ustar\x0000");
        let sum: u32 = header.iter().copied().map(u32::from).sum();
        let _ = (&mut header[148..]).write_all(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend_from_slice(&header);
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::Archive;

    #[test]
    fn another_program_reads_what_was_written() {
        let mut archive = Archive::default();
        archive.folder("bin");
        archive.file("bin/busybox", 0o755, &[7; 700]);
        archive.link("bin/sh", "busybox");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("archive.tar");
        std::fs::write(&file, archive.finish()).unwrap();
        let listed = Command::new("tar").arg("-tvf").arg(&file).output().unwrap();
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        let text = String::from_utf8(listed.stdout).unwrap();
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0][0], "drwxr-xr-x");
        assert_eq!((lines[1][0], lines[1][2], lines[1][5]), ("-rwxr-xr-x", "700", "bin/busybox"));
        assert_eq!(lines[2][5..], ["bin/sh", "->", "busybox"]);
    }
}
