use super::*;

fn disks(images: Option<&Path>, containers: Option<&Path>, node: &Path) -> Disks {
    let places = UsagePaths {
        imagefs: images.map(Path::to_owned),
        containerfs: containers.map(Path::to_owned),
        ..UsagePaths::of_host(node)
    };
    Disks::new(&places)
}

#[tokio::test]
async fn a_disk_tells_what_it_has_and_what_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let usage = disks(None, None, folder.path()).read();
    let nodefs = usage.nodefs.unwrap();
    assert!(nodefs.at.is_some() && nodefs.available_bytes <= nodefs.capacity_bytes);
    assert!(nodefs.inodes_free <= nodefs.inodes);
    assert_eq!((usage.imagefs, usage.containerfs), (None, None));
    assert_eq!(usage.layout, Some(FsLayout::One));
    assert!(usage.problems.is_empty());
}

#[tokio::test]
async fn images_in_another_directory_of_the_same_disk_are_on_one_disk() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("images");
    fs::create_dir(&images).unwrap();
    let usage = disks(Some(&images), None, folder.path()).read();
    assert_eq!(usage.layout, Some(FsLayout::One));
    assert!(usage.imagefs.is_some() && usage.containerfs.is_some());
}

#[tokio::test]
async fn disks_of_their_own_are_told_apart() {
    // /proc and /sys are file systems of their own on every machine.
    let (proc, sys, root) = (Path::new("/proc"), Path::new("/sys"), Path::new("/"));
    let layout = |images, containers| disks(Some(images), containers, root).read().layout;
    assert_eq!(layout(proc, None), Some(FsLayout::ImageFs));
    assert_eq!(layout(proc, Some(proc)), Some(FsLayout::ImageFs));
    assert_eq!(layout(proc, Some(root)), Some(FsLayout::Split));
    assert_eq!(layout(proc, Some(sys)), Some(FsLayout::Split));
    assert_eq!(layout(root, Some(proc)), Some(FsLayout::Split));
}

#[tokio::test]
async fn a_directory_that_is_not_there_costs_its_own_numbers_and_the_layout() {
    let gone = Path::new("/nowhere/at/all");
    let usage = disks(Some(gone), None, Path::new("/")).read();
    assert!(usage.nodefs.is_some());
    assert_eq!((usage.imagefs, usage.layout), (None, None));
    assert_eq!(usage.problems.len(), 1);
    assert!(usage.problems[0].to_string().contains("/nowhere/at/all"));
}

#[tokio::test]
async fn a_file_system_without_a_number_of_inodes_tells_none() {
    // Of those that are always there, /proc has none.
    let proc = stats(Path::new("/proc")).unwrap();
    assert_eq!((proc.inodes, proc.inodes_free), (None, None));
}

#[tokio::test(start_paused = true)]
async fn what_a_file_system_said_a_minute_before_another_answered_is_not_used() {
    let said = stats(Path::new("/")).unwrap();
    let is_used = || {
        let mut reading = Reading::default();
        DisksUsage { nodefs: Some(said), ..DisksUsage::default() }.enter(&mut reading);
        reading.stats.nodefs.is_some()
    };
    tokio::time::sleep(ANSWER_MAX_AGE - Duration::from_secs(1)).await;
    assert!(is_used());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!is_used());
}
