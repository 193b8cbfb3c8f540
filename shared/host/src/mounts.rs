//! Parser for `/proc/PID/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mount {
    /// The device of its file system, `major:minor`; `None` if the line has no such numbers.
    pub device: Option<(u32, u32)>,
    /// The directory or file of its file system that is mounted.
    pub root: PathBuf,
    /// The mount point.
    pub point: PathBuf,
    /// Whether its file system is in memory only.
    pub is_in_memory: bool,
}

/// The mounts in the text, in order: of two at the same point, the later is on top. Malformed lines
/// are ignored.
pub fn mounts(mountinfo: &[u8]) -> impl Iterator<Item = Mount> + '_ {
    mountinfo.split(|&b| b == b'\n').filter_map(|line| {
        let mut words = line.split(|&b| b == b' ').skip(2);
        let (device, root, point) = (words.next()?, words.next()?, words.next()?);
        let point = (!point.is_empty()).then(|| path(point))?;
        // The type of the file system is the first word after a dash.
        let kind = words.skip_while(|word| *word != b"-").nth(1);
        let is_in_memory = kind.is_some_and(|kind| kind == b"tmpfs" || kind == b"ramfs");
        Some(Mount { device: device_number(device), root: path(root), point, is_in_memory })
    })
}

fn path(word: &[u8]) -> PathBuf {
    OsString::from_vec(unescaped(word)).into()
}

fn device_number(text: &[u8]) -> Option<(u32, u32)> {
    let (major, minor) = std::str::from_utf8(text).ok()?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Decodes blanks and the like, which are written as a backslash and three octal digits.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, tail)) = rest.split_first() {
        match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] if byte == b'\\' => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                plain.push(byte);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mount_point(line: &[u8]) -> Option<PathBuf> {
        mounts(line).next().map(|mount| mount.point)
    }

    #[test]
    fn a_mount_point_is_read_with_its_blanks() {
        for (word, path) in [
            (r"/a\040b\134c", "/a b\\c"),
            (r"/tab\011line\012", "/tab\tline\n"),
            // Not three octal digits of a byte: unchanged.
            (r"/x\9", r"/x\9"),
            (r"/x\+12", r"/x\+12"),
            (r"/x\400", r"/x\400"),
            (r"/x\04", r"/x\04"),
            (r"/x\", r"/x\"),
        ] {
            let line = format!("36 35 98:0 /mnt1 {word} rw,noatime master:1 - ext3 /dev/root rw");
            assert_eq!(mount_point(line.as_bytes()), Some(PathBuf::from(path)), "{word}");
        }
        for line in ["", "1 2 3 4", "1 2 3 4  rw"] {
            assert_eq!(mount_point(line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn a_mount_of_a_part_of_a_file_system_names_the_part() {
        let line = br"36 35 98:0 /data/a\040b /mnt rw,noatime master:1 - ext3 /dev/root rw";
        let mount = mounts(line).next().unwrap();
        assert_eq!((mount.device, &*mount.root), (Some((98, 0)), "/data/a b".as_ref()));
    }

    /// As the kernel writes it (`mangle_path`).
    fn written(path: &[u8]) -> Vec<u8> {
        let each = path.iter().map(|&byte| match byte {
            b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
            byte => vec![byte],
        });
        each.flatten().collect()
    }

    proptest! {
        #[test]
        fn what_the_kernel_writes_is_read_back(path in prop::collection::vec(1..=255_u8, 1..60)) {
            let line = [b"36 35 98:0 / ".as_slice(), &written(&path), b" rw - tmpfs tmpfs rw"].concat();
            prop_assert_eq!(mount_point(&line), Some(PathBuf::from(OsString::from_vec(path))));
        }
    }
}
