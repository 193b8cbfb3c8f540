//! Reads files that containers write; this process may have more privileges than the container.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Reads the first bytes of a regular file, at most `most`. Never blocks: a symbolic link is not followed, and a pipe
/// that replaced the file is not waited for.
///
/// # Errors
/// The file cannot be read, or is not a regular file.
pub fn first_bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_a_pipe_and_a_device_in_place_of_the_file_are_neither_followed_nor_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("secret"), "of somebody else").unwrap();
        symlink(at("secret"), at("link")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        for name in ["link", "pipe", "directory", "missing"] {
            assert!(first_bytes(&at(name), 100).is_err(), "{name}");
        }
        assert!(first_bytes(Path::new("/dev/zero"), 100).is_err());
        std::fs::write(at("message"), "it failed").unwrap();
        assert_eq!(first_bytes(&at("message"), 100).unwrap(), b"it failed");
        assert_eq!(first_bytes(&at("message"), 2).unwrap(), b"it");
    }
}
