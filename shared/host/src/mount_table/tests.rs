use super::*;

/// A `/proc` with this list of mounts.
fn proc_with(mountinfo: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("self")).unwrap();
    fs::write(dir.path().join("self/mountinfo"), mountinfo).unwrap();
    dir
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
    let dir = tempfile::tempdir().unwrap();
    let (proc_root, point) = (dir.path().join("proc"), dir.path().join("volumes/v"));
    for made in [&point, &dir.path().join("volumes/vv")] {
        fs::create_dir_all(made).unwrap();
    }
    fs::write(point.join("log"), "").unwrap();
    let process = |pid: &str, cwd: &Path| {
        let dir = proc_root.join(pid);
        fs::create_dir_all(dir.join("fd")).unwrap();
        fs::write(dir.join("comm"), "tail\n").unwrap();
        std::os::unix::fs::symlink(cwd, dir.join("cwd")).unwrap();
        dir
    };
    process("12", &dir.path().join("volumes/vv"));
    // Paths are shown as the process has them, which may have mounted what it likes there.
    process("13", &point.join("of-its-own"));
    assert_eq!(holders(&proc_root, &point), None);
    let open = process("17", Path::new("/"));
    std::os::unix::fs::symlink(point.join("log"), open.join("fd/3")).unwrap();
    assert_eq!(holders(&proc_root, &point).unwrap(), "process 17 (tail)");
    for pid in ["20", "21", "22"] {
        process(pid, &point);
    }
    assert!(holders(&proc_root, &point).unwrap().ends_with(" and 1 more"));
}

/// A quiet container's log that `find /var/log -mtime +30 -delete` took is still open in a process of the container.
#[test]
fn a_process_with_a_deleted_file_there_still_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("0.log");
    let open = fs::File::create(&log).unwrap();
    assert!(holders(Path::new("/proc"), dir.path()).is_some());
    fs::remove_file(&log).unwrap();
    assert!(holders(Path::new("/proc"), dir.path()).is_some(), "deleted, and still written to");
    drop(open);
}
