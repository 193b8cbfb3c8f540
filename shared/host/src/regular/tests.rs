#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use super::*;

fn text(file: io::Result<File>) -> Result<String, String> {
    let mut file = file.map_err(|error| error.to_string())?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// It would be a write, for which a read waits where the disk is busy, as when a hundred containers exit.
#[test]
fn the_time_of_a_read_is_not_noted_on_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "text").unwrap();
    let long_ago = std::time::UNIX_EPOCH;
    let times = fs::FileTimes::new().set_accessed(long_ago);
    File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    for file in [open(&path), open_below(dir.path(), Path::new("file"))] {
        assert_eq!(text(file).unwrap(), "text");
    }
    assert_eq!(fs::metadata(&path).unwrap().accessed().unwrap(), long_ago);
}

#[test]
fn a_link_a_pipe_a_directory_and_a_device_in_place_of_a_file_are_neither_followed_nor_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("secret"), "of somebody else").unwrap();
    symlink(at("secret"), at("link")).unwrap();
    pipe(&at("pipe"));
    symlink(at("pipe"), at("link to a pipe")).unwrap();
    fs::create_dir(at("directory")).unwrap();
    fs::write(at("directory/0.log"), "inside").unwrap();
    symlink(at("directory"), at("linked directory")).unwrap();
    let below = |name: &str| text(open_below(dir.path(), Path::new(name)));

    assert_eq!(below("secret").unwrap(), "of somebody else");
    assert_eq!(below("directory/0.log").unwrap(), "inside");
    assert_eq!(below("link").unwrap_err(), "it is a symbolic link, not a regular file");
    assert_eq!(below("pipe").unwrap_err(), "it is a pipe, not a regular file");
    assert_eq!(below("directory").unwrap_err(), "it is a directory, not a regular file");
    for name in ["linked directory/0.log", "link to a pipe", "missing", "", ".."] {
        assert!(below(name).is_err(), "{name}");
    }
    for name in ["../secret", "directory/../secret", "/etc/passwd"] {
        assert!(below(name).is_err(), "{name}");
    }

    assert_eq!(text(open(&at("link"))).unwrap(), "of somebody else");
    assert_eq!(text(open(&at("linked directory/0.log"))).unwrap(), "inside");
    for name in ["link to a pipe", "pipe", "directory"] {
        assert!(open(&at(name)).is_err(), "{name}");
    }
    assert_eq!(
        text(open(Path::new("/dev/zero"))).unwrap_err(),
        "it is a device, not a regular file"
    );
}

#[test]
fn no_more_is_read_than_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "12345").unwrap();
    assert_eq!(read(&file, 5).unwrap(), b"12345");
    assert_eq!(read_to_string(&file, u64::MAX).unwrap(), "12345");
    assert_eq!(read(&file, 4).unwrap_err().to_string(), "it is larger than 4 bytes");
    assert_eq!(read_first(&file, 4).unwrap(), b"1234");
    fs::write(&file, [0xff]).unwrap();
    assert_eq!(read_to_string(&file, 5).unwrap_err().kind(), io::ErrorKind::InvalidData);
    // The kernel's own files have no size until they are read.
    assert!(
        read_to_string(Path::new("/proc/self/status"), MAX_CONFIGURATION_BYTES)
            .unwrap()
            .contains("Uid:")
    );
}

#[test]
fn what_a_link_a_pipe_or_a_device_leads_to_is_not_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("secret"), "of somebody else").unwrap();
    fs::create_dir(at("elsewhere")).unwrap();
    symlink(at("secret"), at("link")).unwrap();
    symlink(at("nothing"), at("dead link")).unwrap();
    symlink("/dev/null", at("device")).unwrap();
    symlink(at("elsewhere"), at("linked directory")).unwrap();
    pipe(&at("pipe"));
    for name in ["link", "dead link", "device", "linked directory/0.log", "pipe", "elsewhere"] {
        assert!(append_below(dir.path(), Path::new(name), 0o600).is_err(), "{name}");
    }
    assert!(remove_below(dir.path(), Path::new("linked directory/x")).is_err());
    for name in ["linked directory", "linked directory/new", "secret", "../new"] {
        assert!(make_directory_below(dir.path(), Path::new(name), 0o711).is_err(), "{name}");
    }
    assert_eq!(fs::read_to_string(at("secret")).unwrap(), "of somebody else");
    assert_eq!(fs::read_dir(at("elsewhere")).unwrap().count(), 0);
    assert!(!at("nothing").exists());

    make_directory_below(dir.path(), Path::new("a/b"), 0o777).unwrap();
    make_directory_below(dir.path(), Path::new("a/b/c"), 0o711).unwrap();
    let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(["a", "a/b", "a/b/c"].map(mode), [0o777, 0o777, 0o711]);
    for text in ["one", "two"] {
        let mut file = append_below(dir.path(), Path::new("a/b/0.log"), 0o600).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }
    assert_eq!(
        (fs::read_to_string(at("a/b/0.log")).unwrap().as_str(), mode("a/b/0.log")),
        ("onetwo", 0o600)
    );
    remove_below(dir.path(), Path::new("a/b/0.log")).unwrap();
    remove_below(dir.path(), Path::new("link")).unwrap();
    assert!(at("secret").exists() && !at("a/b/0.log").exists());
}

/// A pod that has `/var/log` as a volume may replace `/var/log/winddown` and `/var/log/containers`.
#[test]
fn a_link_in_place_of_the_directory_itself_is_not_followed_and_one_above_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (real, file) = (dir.path().join("real"), Path::new("file"));
    fs::create_dir_all(real.join("logs")).unwrap();
    fs::write(real.join("file"), "").unwrap();
    symlink(&real, dir.path().join("link")).unwrap();
    for link in ["link", "link/", "link/."].map(|name| dir.path().join(name)) {
        assert!(open_below(&link, file).is_err(), "{}", link.display());
        assert!(append_below(&link, file, 0o600).is_err());
        assert!(remove_below(&link, file).is_err());
        assert!(make_directory_below(&link, Path::new("new"), 0o711).is_err());
        assert!(open_directory_below(&link, Path::new("")).is_err());
        assert!(crate::removal::tree_below(&link, file).is_err());
    }
    assert_eq!(fs::read_dir(&real).unwrap().count(), 2);
    let said = |name: &str| directory_below(&dir.path().join(name), Path::new("")).unwrap_err();
    assert_eq!(said("link").to_string(), "link is a symbolic link, not a directory");
    assert_eq!(said("real/file").to_string(), "file is a regular file, not a directory");
    assert_eq!(said("none").kind(), io::ErrorKind::NotFound);
    append_below(&dir.path().join("link/logs"), file, 0o600).unwrap();
    assert!(real.join("logs/file").exists());
}

#[test]
fn a_path_is_split_into_what_is_roots_and_what_a_pod_may_have_made() {
    let table = [
        ("/var/log/pods/n_p_u/c/0.log", 3, "/var/log/pods", "n_p_u/c/0.log"),
        ("/a/b", 3, "/", "a/b"),
        ("0.log", 3, ".", "0.log"),
        ("logs/c/0.log", 2, "logs", "c/0.log"),
    ];
    for (path, names, directory, below) in table {
        assert_eq!(split(Path::new(path), names), (Path::new(directory), Path::new(below)));
    }
}
