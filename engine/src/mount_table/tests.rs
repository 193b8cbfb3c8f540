use proptest::prelude::*;

use super::*;

/// A `/proc` with this list of mounts.
fn proc_with(mountinfo: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("self")).unwrap();
    fs::write(dir.path().join("self/mountinfo"), mountinfo).unwrap();
    dir
}

#[test]
fn a_mount_point_is_read_with_its_blanks() {
    for (word, path) in [
        (r"/a\040b\134c", "/a b\\c"),
        (r"/tab\011line\012", "/tab\tline\n"),
        // Not three octal digits of a byte: as it stands.
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
fn what_is_below_a_directory_comes_deepest_and_uppermost_first() {
    let text = "1 0 0:1 / / rw\n2 1 0:2 / /pods/a rw\n3 1 0:3 / /pods/ab rw\n\
                4 2 0:4 / /pods/a/v\\040w rw\nnonsense\n5 2 0:5 / /pods/a/v\\040w/x rw\n\
                6 4 0:6 / /pods/a/v\\040w rw\n";
    let proc_root = proc_with(text);
    let found = below(proc_root.path(), Path::new("/pods/a")).unwrap();
    let expected = ["/pods/a/v w/x", "/pods/a/v w", "/pods/a/v w", "/pods/a"];
    assert_eq!(found, expected.map(PathBuf::from));
    let told = of_pod(proc_root.path(), Path::new("/pods/a")).unwrap();
    assert_eq!(told, ["/pods/a/v w/x", "/pods/a/v w", "/pods/a"]);
    assert_eq!(of_pod(proc_root.path(), Path::new("/pods/c")).unwrap(), [""; 0]);
}

#[test]
fn a_list_that_cannot_be_read_is_an_error_and_not_an_empty_list() {
    let error = of_pod(Path::new("/nonexistent"), Path::new("/pods/a")).unwrap_err();
    let text = winddown_shared::error_chain(&error);
    assert!(text.starts_with("looking for mounts below /pods/a: No such file"), "{text}");
}

#[test]
fn a_holder_is_named_with_its_program() {
    let proc_root = tempfile::tempdir().unwrap();
    let process = |pid: &str, cwd: &str| {
        let dir = proc_root.path().join(pid);
        fs::create_dir_all(dir.join("fd")).unwrap();
        fs::write(dir.join("comm"), "tail\n").unwrap();
        std::os::unix::fs::symlink(cwd, dir.join("cwd")).unwrap();
        dir
    };
    let point = Path::new("/pods/a/volumes/v");
    process("12", "/pods/a/volumes/vv");
    assert_eq!(holders(proc_root.path(), point), "no process that can be seen");
    let open = process("17", "/");
    std::os::unix::fs::symlink("/pods/a/volumes/v/log", open.join("fd/3")).unwrap();
    assert_eq!(holders(proc_root.path(), point), "process 17 (tail)");
    for pid in ["20", "21", "22"] {
        process(pid, "/pods/a/volumes/v");
    }
    assert!(holders(proc_root.path(), point).ends_with(" and 1 more"));
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
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let lines = bytes.iter().filter(|b| **b == b'\n').count() + 1;
        prop_assert!(points(&bytes).count() <= lines);
    }

    #[test]
    fn what_the_kernel_writes_is_read_back(path in prop::collection::vec(1..=255_u8, 1..60)) {
        let line = [b"36 35 98:0 / ".as_slice(), &written(&path), b" rw - tmpfs tmpfs rw"].concat();
        prop_assert_eq!(mount_point(&line), Some(PathBuf::from(OsString::from_vec(path))));
    }
}
