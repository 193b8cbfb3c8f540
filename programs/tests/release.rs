//! The parts of a release in addition to the packages.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_hosted_workflow_calls_targets_that_there_are() {
    let workflow = std::fs::read_to_string(repository().join(".github/workflows/ci.yml")).unwrap();
    let makefile = std::fs::read_to_string(repository().join("Makefile")).unwrap();
    let called: Vec<&str> = workflow
        .lines()
        .filter_map(|line| line.split_once("make ").filter(|(before, _)| before.contains("run:")))
        .filter_map(|(_, after)| after.split_whitespace().find(|word| !word.starts_with('-')))
        .map(|word| word.trim_end_matches([')', '"']))
        .collect();
    assert_eq!(called, ["deps", "lint", "published", "published", "test", "packages"]);
    for target in called {
        assert!(makefile.contains(&format!("\n{target}: ")), "there is no target {target}");
    }
}

/// `make packages` asks before it builds anything for minutes: in a fresh clone nothing is there yet.
#[test]
fn packages_are_refused_without_a_maintainer_before_there_is_any_program() {
    let nothing = tempfile::tempdir().unwrap();
    let check = |more: &[&str]| {
        let mut script = Command::new(repository().join("programs/packaging/build.sh"));
        script.args(["--check", "deb", "rpm"]).args(more).env_remove("WINDDOWN_MAINTAINER");
        script.env("CARGO_TARGET_DIR", nothing.path().join("target")).output().unwrap()
    };
    let refused = check(&[]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("WINDDOWN_MAINTAINER='Name <address> https://repository'"), "{said}");
    assert_eq!(refused.status.code(), Some(1));
    let trial = check(&["--fast"]);
    assert!(trial.status.success(), "{}", String::from_utf8_lossy(&trial.stderr));
}

#[test]
fn checksums_are_of_all_packages_and_say_so_when_there_are_none() {
    let packages = tempfile::tempdir().unwrap();
    let run = || {
        let script = repository().join("programs/packaging/checksums.sh");
        Command::new(script).arg(packages.path()).output().unwrap()
    };
    let output = run();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("run 'make packages' first"));
    for name in ["winddown_0.1.0-1_amd64.deb", "winddown-0.1.0.tar.gz", "notes.txt"] {
        std::fs::write(packages.path().join(name), name).unwrap();
    }
    assert_eq!(run().status.code(), Some(0));
    let sums = std::fs::read_to_string(packages.path().join("SHA256SUMS")).unwrap();
    let named: Vec<&str> = sums.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(named, ["winddown_0.1.0-1_amd64.deb", "winddown-0.1.0.tar.gz"]);
    let check = ["--check", "--quiet", "SHA256SUMS"];
    let checked = Command::new("sha256sum").args(check).current_dir(packages.path()).status();
    assert!(checked.unwrap().success());
}

/// What the packages' scripts ask of winddown as it goes. `install::companion` runs it.
pub(crate) const ASKED_BY_SCRIPTS: &str = "uninstall --dry-run --force";

/// What a package manager is told as it removes winddown: it cannot be refused.
#[test]
fn a_package_that_goes_says_loudly_what_its_kubelet_needs_and_else_nothing() {
    let scripts = repository().join("programs/packaging/scripts");
    for script in ["deb/prerm", "rpm/pre_uninstall.sh"] {
        let text = fs::read_to_string(scripts.join(script)).unwrap();
        assert!(text.contains("\n    tell_of_kubelet\n"), "{script}");
    }
    let bin = tempfile::tempdir().unwrap();
    let said = |dry_run: &str| {
        let winddown = bin.path().join("winddown");
        let insists = format!("[ \"$*\" = '{ASKED_BY_SCRIPTS}' ] || exit 2");
        fs::write(&winddown, format!("#!/bin/sh\n{insists}\ncat <<'END'\n{dry_run}\nEND\n"))
            .unwrap();
        fs::set_permissions(&winddown, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").unwrap());
        let line = ". ./shared.sh; systemd_runs() { true; }; tell_of_kubelet";
        let mut shell = Command::new("sh");
        shell.args(["-ec", line]).env("PATH", path).env("DPKG_ROOT", bin.path());
        let ran = shell.current_dir(&scripts).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    };
    assert_eq!(said("Dry run: nothing is changed.\nremove    /etc/x\nNote: y"), "");
    let told =
        said("Dry run: nothing is changed.\nNext:\n  set these\n  systemctl restart kubelet");
    assert!(told.starts_with("winddown: WARNING: without winddown NOTHING ENDS"), "{told}");
    assert!(told.ends_with(":\n  set these\n  systemctl restart kubelet\n"), "{told}");
    let run = bin.path().join("run/winddown");
    fs::create_dir_all(&run).unwrap();
    for (name, unit) in
        [("snap.k8s.kubelet.service", "snap.k8s.kubelet.service"), ("", "kubelet.service")]
    {
        fs::write(run.join("kubelet-stopped"), name).unwrap();
        let told = said("Dry run: nothing is changed.");
        assert!(told.ends_with(&format!(":\n  systemctl start {unit}\n")), "{told}");
    }
}

/// The script runs as root, outside any sandbox, and a container may write what it likes to its volumes.
#[test]
fn a_package_that_goes_names_pods_that_run_and_opens_nothing_that_a_container_made() {
    let root = tempfile::tempdir().unwrap();
    let pods = |runtime: &str| root.path().join(format!("var/lib/winddown/{runtime}/pods"));
    let run = pods("process").join("u/main/0");
    let volume = pods("cri").join("u/volumes/cache");
    for (directory, log) in [
        (&run, "/var/log/winddown/default_web_u/main/0.log"),
        (&volume, "/l/x_\u{1b}[2J_u/main/0.log"),
    ] {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join("supervisor"), "").unwrap();
        fs::write(directory.join("attempt.json"), format!("{{\"log\": \"{log}\"}}")).unwrap();
    }
    let held = [&run, &volume].map(|directory| {
        let file = fs::File::open(directory.join("supervisor")).unwrap();
        file.lock().unwrap();
        file
    });
    let said = || {
        let mut shell = Command::new("timeout");
        shell.args(["10", "sh", "-ec", ". ./shared.sh; tell_of_running_pods"]);
        shell.current_dir(repository().join("programs/packaging/scripts"));
        let ran = shell.env("DPKG_ROOT", root.path()).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    };
    let names = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.strip_prefix("  ")).map(str::to_owned).collect()
    };
    assert_eq!(names(&said()), ["default/web"]);
    drop(held);
    fs::remove_file(volume.join("supervisor")).unwrap();
    let fifo = Command::new("mkfifo").arg(volume.join("supervisor")).status();
    assert!(fifo.unwrap().success());
    assert_eq!(said(), "");
}
