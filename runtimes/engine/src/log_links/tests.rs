#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

const ID: &str = "80f6c3a1f5e9d2b7c4a8e6f0d1b3a5c7e9f1a3b5c7d9e1f3a5b7c9d1e3f5a7b9";

/// A directory of links, and the log of one run below it.
fn scene() -> (tempfile::TempDir, LogLink) {
    let dir = tempfile::tempdir().unwrap();
    let link = LogLink {
        links: dir.path().join("links"),
        prefix: prefix(("shop", "web"), "main"),
        id: ID.to_owned(),
        is_of_first_run: false,
        log: dir.path().join("pods/shop_web_u/main/0.log"),
    };
    fs::create_dir(&link.links).unwrap();
    fs::create_dir_all(link.log.parent().unwrap()).unwrap();
    fs::write(&link.log, "").unwrap();
    (dir, link)
}

fn all(links: &Path) -> Vec<String> {
    let entries =
        fs::read_dir(links).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut all: Vec<_> = entries.collect();
    all.sort();
    all
}

#[test]
fn a_link_has_the_kubelets_name_which_is_cut_where_the_kubelet_cuts_it() {
    let of = |letter: &str, count| letter.repeat(count);
    let (pod, container) = (of("p", 128), of("c", 70));
    for (namespace, pod, container, id, expected) in [
        ("shop", "web-0", "main", ID, format!("web-0_shop_main-{ID}.log")),
        // The lengths of the kubelet's own test.
        ("namespace0", &pod, &container, &*of("i", 80), {
            format!("{pod}_namespace0_{container}-{}.log", of("i", 40))
        }),
        // 251 bytes and the suffix are just not too long.
        ("namespace0", &pod, &container, &of("i", 40), {
            format!("{pod}_namespace0_{container}-{}.log", of("i", 40))
        }),
        (
            "shop",
            &of("p", 200),
            &container,
            ID,
            format!("{}_shop_{}.log", of("p", 200), of("c", 45)),
        ),
    ] {
        let name = link_name(&prefix((namespace, pod), container), id);
        assert_eq!(name, expected);
        assert!(name.len() <= 255);
    }
}

#[test]
fn a_run_whose_id_is_a_path_has_one_that_log_shippers_take_for_a_containers() {
    let is_containers = |id: &str| {
        id.len() == 64 && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    let of = |uid: &str, attempt| id_in_name("uid/main/3", &PodUid::new(uid), attempt);
    let uid = "0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0";
    for id in [of(uid, 3), of(uid, u32::MAX), of("u", 0), of(&"x".repeat(99), 1), of("..", 1)] {
        assert!(is_containers(&id), "{id}");
    }
    assert_ne!(of(uid, 3), of(uid, 4));
    assert_eq!(id_in_name(ID, &PodUid::new("u"), 3), ID);
}

#[test]
fn the_id_in_a_name_is_read_as_the_kubelet_reads_it() {
    for (name, id) in [
        (format!("web_shop_main-{ID}.log"), Some(ID)),
        ("web_shop_main-abcdef.log".to_owned(), Some("abcdef")),
        ("web_shop_main-abcde.log".to_owned(), None),
        ("web_shop_main-abcdef.txt".to_owned(), None),
    ] {
        assert_eq!(DeadLink { name: name.clone() }.id(), id, "{name}");
    }
}

#[test]
fn a_link_leads_to_the_log_and_making_it_again_changes_nothing() {
    let (_dir, link) = scene();
    for _ in 0..2 {
        link.make().unwrap();
        assert_eq!(fs::read_link(link.links.join(link.name())).unwrap(), link.log);
    }
    assert_eq!(all(&link.links), [link.name()]);
}

#[test]
fn a_link_replaces_those_of_earlier_runs_that_lead_to_nothing_or_have_its_name() {
    let (_dir, link) = scene();
    let run = |n: u32| link.log.with_file_name(format!("{n}.log"));
    fs::write(run(2), "").unwrap();
    let put = |target: PathBuf, name: &str| symlink(target, link.links.join(name)).unwrap();
    put(run(1), "web_shop_main-dead.log");
    put(run(2), "web_shop_main-alive.log");
    put(run(2), &link.name());
    put("/no/such/log".into(), "web_shop_main-foreign.log");
    put(run(1), "web_shop_other-dead.log");
    link.make().unwrap();
    let left = [
        &*link.name(),
        "web_shop_main-alive.log",
        "web_shop_main-foreign.log",
        "web_shop_other-dead.log",
    ];
    assert_eq!(all(&link.links), left);
    assert_eq!(fs::read_link(link.links.join(link.name())).unwrap(), link.log);
}

/// It has those of all pods: a hundred pods that start at once, or an agent that starts, would read it a hundred times.
#[test]
fn the_links_of_others_are_looked_at_for_a_container_that_is_started_again_and_not_for_others() {
    let (_dir, mut link) = scene();
    let dead = link.links.join("web_shop_main-dead.log");
    for (is_of_first_run, is_there, is_read) in
        [(true, false, false), (true, true, false), (false, true, false), (false, false, true)]
    {
        link.is_of_first_run = is_of_first_run;
        if !is_there {
            let _ = fs::remove_file(link.links.join(link.name()));
        }
        let _ = symlink(link.log.with_file_name("1.log"), &dead);
        link.make().unwrap();
        assert_eq!(!all(&link.links).contains(&"web_shop_main-dead.log".to_owned()), is_read);
        assert_eq!(fs::read_link(link.links.join(link.name())).unwrap(), link.log);
    }
}

#[test]
fn what_has_the_name_of_a_link_and_is_somebody_elses_is_left() {
    let (dir, link) = scene();
    let path = link.links.join(link.name());
    fs::write(&path, "kept").unwrap();
    assert_eq!(link.make().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
    fs::remove_file(&path).unwrap();
    symlink(dir.path(), &path).unwrap();
    assert_eq!(link.make().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read_link(&path).unwrap(), dir.path());
}

/// Without the id in them, names are those of a namesake's links too, such as a static pod's that has been written anew.
#[test]
fn the_first_link_of_a_pod_replaces_one_that_has_its_cut_name_unless_that_leads_to_a_log() {
    let (dir, mut link) = scene();
    link.prefix = prefix(("shop", &"p".repeat(240)), "main");
    link.is_of_first_run = true;
    let (path, other) = (link.links.join(link.name()), dir.path().join("other.log"));
    symlink(&other, &path).unwrap();
    fs::write(&other, "").unwrap();
    let taken = link.make().unwrap_err().kind();
    assert_eq!(taken, io::ErrorKind::AlreadyExists);
    let said = advice(taken, &path);
    assert!(said.ends_with("shorten the name of the pod or of the container"), "{said}");
    fs::remove_file(&other).unwrap();
    link.make().unwrap();
    assert_eq!(fs::read_link(path).unwrap(), link.log);
}

#[test]
fn only_a_directory_that_cannot_be_written_to_is_said_to_be_one() {
    for (error, is_said) in [
        (io::ErrorKind::PermissionDenied, true),
        (io::ErrorKind::ReadOnlyFilesystem, true),
        (io::ErrorKind::NotFound, true),
        (io::ErrorKind::AlreadyExists, false),
        (io::ErrorKind::TimedOut, false),
        (io::ErrorKind::StorageFull, false),
    ] {
        let said = advice(error, Path::new("/var/log/containers/a.log"));
        assert!(said.contains("/var/log/containers"), "{said}");
        assert_eq!(said.contains("ReadWritePaths="), is_said, "{said}");
    }
}

/// A pod that has `/var/log` as a volume can make one, whose owner is root like any directory it leads to.
#[test]
fn a_link_in_place_of_the_directory_of_links_is_not_followed() {
    let (dir, mut link) = scene();
    let elsewhere = dir.path().join("logrotate.d");
    fs::rename(&link.links, &elsewhere).unwrap();
    symlink(&elsewhere, &link.links).unwrap();
    symlink("/no/such/log", elsewhere.join("dead.log")).unwrap();
    symlink(&link.log, elsewhere.join("web.log")).unwrap();
    for path in [link.links.clone(), link.links.join("")] {
        link.links = path;
        assert_eq!(link.make().unwrap_err().kind(), io::ErrorKind::NotADirectory);
        dead(&link.links).unwrap_err();
        DeadLink { name: "dead.log".to_owned() }.remove(&link.links).unwrap_err();
        remove_below(&link.links, dir.path());
        assert_eq!(all(&elsewhere), ["dead.log", "web.log"]);
    }
}

#[test]
fn no_link_is_made_where_there_is_no_directory_of_roots() {
    let (_dir, link) = scene();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&link.links, Some(1234), None).unwrap();
        let error = link.make().unwrap_err().to_string();
        assert!(error.ends_with("belongs to user 1234"), "{error}");
        dead(&link.links).unwrap_err();
    }
    fs::remove_dir(&link.links).unwrap();
    assert_eq!(link.make().unwrap_err().kind(), io::ErrorKind::NotFound);
    fs::write(&link.links, "").unwrap();
    assert_eq!(link.make().unwrap_err().kind(), io::ErrorKind::NotADirectory);
}

#[test]
fn the_links_of_a_pod_go_with_its_logs_and_those_of_others_stay() {
    let (dir, link) = scene();
    link.make().unwrap();
    let logs = dir.path().join("pods/shop_web_u");
    let other = dir.path().join("pods/shop_web_u2/main/0.log");
    symlink(&other, link.links.join("web_shop_main-other.log")).unwrap();
    // Not a link of an agent's.
    symlink(&link.log, link.links.join("notes")).unwrap();
    remove_below(&link.links, &logs);
    assert_eq!(all(&link.links), ["notes", "web_shop_main-other.log"]);
}

#[test]
fn only_links_whose_logs_are_gone_are_dead_and_one_that_has_a_log_again_stays() {
    let (dir, link) = scene();
    link.make().unwrap();
    fs::write(link.links.join("file-abcdef.log"), "").unwrap();
    let gone = dir.path().join("gone.log");
    symlink(&gone, link.links.join("a_b_c-abcdef.log")).unwrap();
    symlink(&gone, link.links.join("a_b_c-abcdef")).unwrap();
    let found = dead(&link.links).unwrap();
    assert_eq!(found, [DeadLink { name: "a_b_c-abcdef.log".to_owned() }]);
    fs::write(&gone, "").unwrap();
    found[0].remove(&link.links).unwrap();
    assert!(link.links.join("a_b_c-abcdef.log").exists());
    fs::remove_file(&gone).unwrap();
    for _ in 0..2 {
        found[0].remove(&link.links).unwrap();
    }
    assert_eq!(all(&link.links).len(), 3);
}
