use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use super::{Content, Source, effective, inhibit_delay};
use crate::drop_in::{INFINITY, Setting, find};

fn text(file: &str, text: &str) -> Source {
    Source { file: file.into(), content: Content::Text(text.to_owned()) }
}

fn sets(file: &str, seconds: u64) -> Source {
    text(file, &format!("[Login]\nInhibitDelayMaxSec={seconds}\n"))
}

fn mask(file: &str) -> Source {
    Source { file: file.into(), content: Content::Mask }
}

const MAIN: &str = "/etc/systemd/logind.conf";
const ETC: &str = "/etc/systemd/logind.conf.d/";
const RUN: &str = "/run/systemd/logind.conf.d/";
const USR: &str = "/usr/lib/systemd/logind.conf.d/";

fn at(directory: &str, name: &str) -> String {
    format!("{directory}{name}")
}

#[test]
fn the_last_name_wins_wherever_it_is() {
    let unattended = at(USR, "unattended-upgrades-logind-maxdelay.conf");
    let kubelet = at(ETC, "99-kubelet.conf");
    let ours = at(ETC, "zz-winddown.conf");
    let site = at(RUN, "zzz-site.conf");
    type Case<'a> = (&'a [Source], &'a [Source], Option<(&'a str, u64)>);
    let cases: [Case<'_>; 9] = [
        (&[], &[], None),
        (&[sets(MAIN, 7)], &[], Some((MAIN, 7))),
        (&[sets(MAIN, 7)], &[sets(&kubelet, 40)], Some((&kubelet, 40))),
        // kubernetes/kubernetes#102818
        (&[], &[sets(&kubelet, 40), sets(&unattended, 30)], Some((&unattended, 30))),
        (&[], &[sets(&ours, 40), sets(&unattended, 30)], Some((&ours, 40))),
        (&[], &[sets(&ours, 40), sets(&site, 3)], Some((&site, 3))),
        // A drop-in without a valid assignment leaves the value of the one before it.
        (
            &[],
            &[sets(&ours, 40), text(&site, "[Login]\nKillUserProcesses=no\n")],
            Some((&ours, 40)),
        ),
        (
            &[],
            &[sets(&ours, 40), text(&site, "[Login]\nInhibitDelayMaxSec=soon")],
            Some((&ours, 40)),
        ),
        // Only the strongest main file counts.
        (&[text(MAIN, ""), sets("/usr/lib/systemd/logind.conf", 9)], &[], None),
    ];
    for (main, drop_ins, expected) in cases {
        let expected = expected.map(|(file, seconds)| Setting {
            file: file.into(),
            value: Duration::from_secs(seconds),
        });
        assert_eq!(effective(main, drop_ins), expected, "{main:?} {drop_ins:?}");
    }
}

#[test]
fn the_same_name_in_a_stronger_directory_hides_the_weaker_and_a_mask_hides_it_too() {
    let name = "unattended-upgrades-logind-maxdelay.conf";
    let (etc, usr) = (at(ETC, name), at(USR, name));
    let found = effective(&[], &[sets(&etc, 10), sets(&usr, 30)]).map(|setting| setting.file);
    assert_eq!(found.as_deref(), Some(Path::new(&etc)));
    assert_eq!(effective(&[], &[mask(&etc), sets(&usr, 30)]), None);
    let kubelet = at(ETC, "99-kubelet.conf");
    let found = effective(&[], &[sets(&kubelet, 40), mask(&etc), sets(&usr, 30)]);
    assert_eq!(found.map(|setting| setting.file).as_deref(), Some(Path::new(&kubelet)));
}

#[test]
fn a_files_text_is_read_as_systemd_reads_it() {
    let minute = Some(Duration::from_secs(60));
    let cases: [(&str, Option<Duration>); 21] = [
        ("[Login]\nInhibitDelayMaxSec=60\n", minute),
        ("[Login]\nInhibitDelayMaxSec=1min", minute),
        ("[Login]\r\n InhibitDelayMaxSec = 60s \r\n", minute),
        ("[Login]\nInhibitDelayMaxSec=30\nInhibitDelayMaxSec=60\n", minute),
        ("[Login]\nInhibitDelayMaxSec=60\nInhibitDelayMaxSec=\n", minute),
        ("[Login]\nInhibitDelayMaxSec=60\nInhibitDelayMaxSec=-1\n", minute),
        ("[Login]\nInhibitDelayMaxSec=60\n[Other]\nInhibitDelayMaxSec=5\n", minute),
        ("[Other]\n[Login]\nInhibitDelayMaxSec=60\n", minute),
        ("[Login]\nInhibitDelayMaxSec=\\\n60\n", minute),
        ("[Login]\nInhibitDelayMaxSec=\\\n# not this one\n60\n", minute),
        ("[Login]\nInhibitDelayMaxSec=60\\", minute),
        ("[Login]\nInhibitDelayMaxSec=\\\n60 \\\n# the end", minute),
        ("[Login]\nInhibitDelayMaxSec=60\nInhibitDelayMaxSec=5\\ \n", minute),
        ("[Login]\nInhibitDelayMaxSec=60\nInhibitDelayMaxSec=5\\\\\n", minute),
        ("[Login]\nInhibitDelayMaxSec=infinity\n", Some(INFINITY)),
        ("InhibitDelayMaxSec=60\n", None),
        ("[Login]\n#InhibitDelayMaxSec=60\n;InhibitDelayMaxSec=60\n", None),
        ("[login]\nInhibitDelayMaxSec=60\n", None),
        ("[Login]\ninhibitdelaymaxsec=60\n", None),
        ("[Login]\nInhibitDelayMaxSec\n", None),
        ("", None),
    ];
    for (text, expected) in cases {
        assert_eq!(inhibit_delay(text), expected, "{text:?}");
    }
}

#[test]
fn a_tree_is_searched_in_all_four_directories_without_hidden_and_foreign_files() {
    let root = tempfile::tempdir().expect("a directory");
    let put = |path: &str, seconds: u64| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, format!("[Login]\nInhibitDelayMaxSec={seconds}\n")).expect("a file");
    };
    let found = || find(root.path()).map(|setting| (setting.file, setting.value.as_secs()));
    let expect = |file: &str, seconds: u64| assert_eq!(found(), Some((file.into(), seconds)));
    assert_eq!(found(), None);
    put("usr/lib/systemd/logind.conf", 1);
    expect("/usr/lib/systemd/logind.conf", 1);
    put("etc/systemd/logind.conf", 2);
    expect("/etc/systemd/logind.conf", 2);
    put("usr/lib/systemd/logind.conf.d/a.conf", 3);
    expect("/usr/lib/systemd/logind.conf.d/a.conf", 3);
    put("etc/systemd/logind.conf.d/B.conf", 4);
    expect("/usr/lib/systemd/logind.conf.d/a.conf", 3);
    put("usr/local/lib/systemd/logind.conf.d/b.conf", 5);
    expect("/usr/local/lib/systemd/logind.conf.d/b.conf", 5);
    put("run/systemd/logind.conf.d/b.conf", 6);
    expect("/run/systemd/logind.conf.d/b.conf", 6);
    put("etc/systemd/logind.conf.d/.zz.conf", 7);
    put("etc/systemd/logind.conf.d/zz.conf.bak", 8);
    put("etc/systemd/logind.conf.d/zz", 9);
    expect("/run/systemd/logind.conf.d/b.conf", 6);
    let masked = root.path().join("etc/systemd/logind.conf.d/b.conf");
    symlink("/dev/null", masked).expect("a link");
    expect("/usr/lib/systemd/logind.conf.d/a.conf", 3);
    // A file that cannot be read sets nothing, but hides files of the same name.
    put("usr/lib/systemd/logind.conf.d/zzz.conf", 10);
    expect("/usr/lib/systemd/logind.conf.d/zzz.conf", 10);
    fs::create_dir(root.path().join("etc/systemd/logind.conf.d/zzz.conf")).expect("a directory");
    expect("/usr/lib/systemd/logind.conf.d/a.conf", 3);
    symlink("nowhere", root.path().join("run/systemd/logind.conf.d/a.conf")).expect("a link");
    expect("/etc/systemd/logind.conf.d/B.conf", 4);
}

/// NixOS and others have links there. Such a link would lead to the files of the machine that looks at the image.
#[test]
fn absolute_links_of_an_image_lead_to_its_own_files() {
    let root = tempfile::tempdir().expect("a directory");
    let own = root.path().join("etc/static/logind.conf.d");
    fs::create_dir_all(&own).expect("a directory");
    fs::create_dir_all(root.path().join("etc/systemd")).expect("a directory");
    fs::create_dir_all(root.path().join("store")).expect("a directory");
    symlink("/etc/static/logind.conf.d", root.path().join("etc/systemd/logind.conf.d"))
        .expect("a link");
    fs::write(root.path().join("store/a"), "[Login]\nInhibitDelayMaxSec=7\n").expect("a file");
    symlink("/store/a", own.join("a.conf")).expect("a link");
    let found = find(root.path()).expect("it is set");
    let file = Path::new("/etc/systemd/logind.conf.d/a.conf");
    assert_eq!((&*found.file, found.value.as_secs()), (file, 7));
    symlink("/dev/null", own.join("b.conf")).expect("a link");
    assert!(find(root.path()).is_some());
    fs::remove_file(own.join("a.conf")).expect("removed");
    symlink("/dev/null", own.join("a.conf")).expect("a link");
    assert_eq!(find(root.path()), None);
}
