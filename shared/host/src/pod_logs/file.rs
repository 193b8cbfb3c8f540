//! The files of a container's log: one for each run, and the rotated ones.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::{MOST_FILES, numbered, open};

/// How many bytes are read at once.
const READ_BLOCK_BYTES: usize = 32 * 1024;

/// The log of one run: `3.log`, whose rotated files are `3.log.1`, `3.log.2` and so on. Every call blocks.
pub(super) struct OpenLog {
    path: PathBuf,
    file: File,
    at: u64,
}

impl OpenLog {
    /// Opens the log, or the first rotated file while a rotation is in progress.
    ///
    /// # Errors
    /// The log does not exist, is not a regular file or cannot be opened.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file = open(&path).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => open(&rotated_path(&path, 1)),
            _ => Err(error),
        })?;
        Ok(Self { path, file, at: 0 })
    }

    /// The current length in bytes.
    pub(super) fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Seeks to the start of the last `lines` lines of the first `size` bytes, or to the first of them that begins in
    /// the last `most` bytes: a container can make a log so long that looking for its lines would take hours.
    ///
    /// # Errors
    /// The log cannot be read, or `is_given_up`.
    pub(super) fn seek_tail(
        &mut self,
        lines: u64,
        size: u64,
        most: u64,
        is_given_up: impl Fn() -> bool,
    ) -> io::Result<()> {
        let mut block = vec![0; READ_BLOCK_BYTES];
        // The newline of the last line does not count.
        let (mut end, mut left) = (size, lines);
        let mut is_last = true;
        let first = size.saturating_sub(most);
        self.at = size;
        while end > first && lines > 0 {
            if is_given_up() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let begin = end.saturating_sub(READ_BLOCK_BYTES as u64).max(first);
            let length = usize::try_from(end - begin).unwrap_or(READ_BLOCK_BYTES);
            self.file.read_exact_at(&mut block[..length], begin)?;
            for (offset, byte) in block[..length].iter().enumerate().rev() {
                let at_end = std::mem::take(&mut is_last);
                if *byte != b'\n' || at_end {
                    continue;
                }
                left -= 1;
                self.at = begin + offset as u64 + 1;
                if left == 0 {
                    return Ok(());
                }
            }
            end = begin;
        }
        if lines > 0 && first == 0 {
            self.at = 0;
        }
        Ok(())
    }

    /// Reads the next bytes before `end`; empty if there are none now.
    pub(super) fn read<'a>(
        &mut self,
        end: Option<u64>,
        block: &'a mut Vec<u8>,
    ) -> io::Result<&'a [u8]> {
        let left = end.map_or(u64::MAX, |end| end.saturating_sub(self.at));
        block.resize(usize::try_from(left).unwrap_or(READ_BLOCK_BYTES).min(READ_BLOCK_BYTES), 0);
        let read = self.file.read_at(block, self.at)?;
        self.at += read as u64;
        Ok(&block[..read])
    }

    /// Opens the file that was written after this one, or `None` while this is the newest. If this one has been
    /// removed, opens the oldest that is left.
    pub(super) fn next(&self) -> io::Result<Option<Self>> {
        let own = self.file.metadata()?;
        let own = (own.dev(), own.ino());
        let mut newer = None;
        for number in 0..=MOST_FILES {
            let file = match open(&rotated_path(&self.path, number)) {
                Ok(file) => file,
                // The newest is created shortly after the previous one was renamed.
                Err(error) if error.kind() == io::ErrorKind::NotFound && number == 0 => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            };
            let found = file.metadata()?;
            if (found.dev(), found.ino()) == own {
                break;
            }
            newer = Some(file);
        }
        Ok(newer.map(|file| Self { path: self.path.clone(), file, at: 0 }))
    }
}

fn rotated_path(path: &Path, number: u32) -> PathBuf {
    numbered(path, number).into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn rest(file: &mut OpenLog) -> String {
        let (mut block, mut all) = (Vec::new(), Vec::new());
        loop {
            let read = file.read(None, &mut block).unwrap();
            if read.is_empty() {
                return String::from_utf8(all).unwrap();
            }
            all.extend_from_slice(read);
        }
    }

    #[test]
    fn the_last_lines_are_found_from_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let line = "x".repeat(1000);
        let text: String = (0..100).map(|n| format!("{n} {line}\n")).collect();
        for (log, lines, wanted) in [
            ("", 3, ""),
            ("a\nb\nc\n", 0, ""),
            ("a\nb\nc\n", 1, "c\n"),
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb\nc\n", 9, "a\nb\nc\n"),
            ("a\nb\nc", 1, "c"),
            ("\n\n", 1, "\n"),
            (&text, 60, &text[text.find("40 x").unwrap()..]),
        ] {
            fs::write(&path, log).unwrap();
            let mut file = OpenLog::open(path.clone()).unwrap();
            let size = file.size().unwrap();
            file.seek_tail(lines, size, u64::MAX, || false).unwrap();
            assert_eq!(rest(&mut file), wanted, "the last {lines}");
        }
    }

    #[test]
    fn no_more_of_a_log_is_searched_than_it_may_be_long() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        fs::write(&path, "one\ntwo\nthree\n").unwrap();
        let mut file = OpenLog::open(path.clone()).unwrap();
        for (most, wanted) in [(14, "one\ntwo\nthree\n"), (13, "two\nthree\n"), (6, ""), (0, "")] {
            file.seek_tail(9, 14, most, || false).unwrap();
            assert_eq!(rest(&mut file), wanted, "{most}");
        }
        // Without a line in it: it could hold any number of bytes.
        let sparse = fs::File::create(&path).unwrap();
        sparse.set_len(1 << 40).unwrap();
        let mut file = OpenLog::open(path).unwrap();
        file.seek_tail(1, 1 << 40, 1 << 20, || false).unwrap();
        assert_eq!(rest(&mut file), "");
        assert!(file.seek_tail(1, 1 << 25, 1 << 25, || true).is_err(), "its client is gone");
    }

    #[test]
    fn a_reader_that_is_slow_misses_no_file_that_the_log_was_turned_into() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let turn = |text: &str| {
            for number in (0..5).rev() {
                let _ = fs::rename(rotated_path(&path, number), rotated_path(&path, number + 1));
            }
            fs::write(&path, text).unwrap();
        };
        fs::write(&path, "one").unwrap();
        let mut file = OpenLog::open(path.clone()).unwrap();
        assert!(file.next().unwrap().is_none());
        fs::rename(&path, rotated_path(&path, 1)).unwrap();
        assert!(file.next().unwrap().is_none(), "the next is not made yet");
        assert_eq!(rest(&mut OpenLog::open(path.clone()).unwrap()), "one", "while it turns");
        fs::write(&path, "two").unwrap();
        turn("three");
        turn("four");
        let mut all = rest(&mut file);
        while let Some(mut next) = file.next().unwrap() {
            all.push_str(&rest(&mut next));
            file = next;
        }
        assert_eq!(all, "onetwothreefour");
        fs::remove_file(&path).unwrap();
        fs::remove_file(rotated_path(&path, 1)).unwrap();
        fs::remove_file(rotated_path(&path, 2)).unwrap();
        fs::remove_file(rotated_path(&path, 3)).unwrap();
        turn("five");
        turn("six");
        assert_eq!(rest(&mut file.next().unwrap().unwrap()), "five", "what is left of it");
    }

    #[test]
    fn a_link_a_pipe_and_a_directory_in_place_of_a_log_are_neither_followed_nor_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("secret"), "x").unwrap();
        std::os::unix::fs::symlink(at("secret"), at("0.log")).unwrap();
        nix::unistd::mkfifo(&at("1.log"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::create_dir(at("2.log")).unwrap();
        for name in ["0.log", "1.log", "2.log"] {
            assert!(OpenLog::open(at(name)).is_err(), "{name}");
        }
    }
}
