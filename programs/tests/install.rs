//! Installs into a directory, and removes everything again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

mod companion;
mod image;
mod layouts;
mod obstacles;

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use image::{Image, LOGIND, LONG, PROGRAMS, Recorder, UNIT, WANTS};
use sha2::{Digest as _, Sha256};
use winddown_install::{
    ChangeAction, Host, HostError, InstallOptions, InstallReport, Runtime, UninstallOptions,
    install_on, uninstall_on,
};

#[test]
fn an_empty_image_gets_exactly_these_files() {
    let image = Image::new();
    let report = image.install().unwrap();
    assert_eq!(
        image.tree(),
        [
            "etc/ 755",
            "etc/systemd/ 755",
            "etc/systemd/logind.conf.d/ 755",
            "etc/systemd/system/ 755",
            "etc/systemd/system/multi-user.target.wants/ 755",
            "etc/systemd/system/multi-user.target.wants/winddown.service -> /etc/systemd/system/winddown.service",
            "etc/systemd/system/winddown-order.target 644",
            "etc/systemd/system/winddown-survivors.slice 644",
            "etc/systemd/system/winddown.service 644",
            "etc/systemd/system/winddown.service.d/ 755",
            "etc/systemd/system/winddown.service.d/10-process-runtime.conf 644",
            "etc/systemd/system/winddown.slice 644",
            "etc/sysusers.d/ 755",
            "etc/sysusers.d/winddown.conf 644",
            "etc/tmpfiles.d/ 755",
            "etc/tmpfiles.d/winddown.conf 644",
            "etc/winddown/ 755",
            "etc/winddown/config.yaml 644",
            "etc/winddown/pods/ 755",
            "usr/ 755",
            "usr/bin/ 755",
            "usr/bin/winddown 755",
            "usr/bin/winddown-shim 755",
            "usr/bin/winddownd 755",
            "var/ 755",
            "var/lib/ 755",
            "var/lib/winddown/ 711",
            "var/lib/winddown/install.json 600",
            "var/log/ 755",
            "var/log/winddown/ 750",
        ]
    );
    assert!(report.changes.iter().all(|change| change.action == ChangeAction::Created), "{report}");
    assert!(image.read("usr/bin/winddown").starts_with("first"));
}

#[test]
fn for_a_container_runtime_scopes_are_ordered_and_nothing_is_loosened() {
    let image = Image::new();
    install_on(&InstallOptions { runtime: Runtime::Cri, ..image.options() }, None).unwrap();
    for scope in ["cri-containerd-", "crio-"] {
        let text = image.read(&format!("etc/systemd/system/{scope}.scope.d/50-winddown.conf"));
        assert!(text.contains("\nBefore=winddown.service\n"), "{text}");
    }
    assert!(!image.path("etc/systemd/system/winddown.service.d").exists());
}

#[test]
fn for_services_of_systemd_nothing_is_loosened_and_the_configuration_says_so() {
    let image = Image::new();
    let options = InstallOptions { runtime: Runtime::Systemd, ..image.options() };
    install_on(&options, None).unwrap();
    assert!(!image.path("etc/systemd/system/winddown.service.d").exists());
    assert!(!image.path("etc/systemd/system/crio-.scope.d").exists());
    assert!(image.read("etc/winddown/config.yaml").contains("\nruntime: systemd\n"));
    install_on(&options, None).unwrap();
    assert!(image.install().is_err(), "the configuration names another runtime");
}

/// It restarts services whose libraries were replaced; winddown restarts pods in their order.
#[test]
fn needrestart_is_told_to_leave_the_services_of_pods_alone() {
    const FILE: &str = "etc/needrestart/conf.d/winddown.conf";
    for package in [false, true] {
        let image = Image::new();
        if package {
            image.package();
        }
        let options = InstallOptions { runtime: Runtime::Systemd, ..image.options() };
        install_on(&options, None).unwrap();
        assert!(image.read(FILE).ends_with("\n$nrconf{override_rc}{qr(^winddown-pod)} = 0;\n"));
        image.uninstall(true);
        assert!(!image.path(FILE).exists());
    }
    let image = Image::new();
    image.install().unwrap();
    assert!(!image.path(FILE).exists(), "processes of the agent's unit are not restarted");
}

/// systemd starts no program whose label is not that of programs, and a new file has its directory's label.
#[test]
fn programs_get_the_label_that_selinux_wants_of_them_wherever_they_are() {
    for (enforced, ran) in [(false, false), (true, true)] {
        let image = Image::new();
        let options =
            InstallOptions { bin_dir: Some("/opt/winddown/bin".into()), ..image.options() };
        if enforced {
            let enforce = image.path("sys/fs/selinux/enforce");
            fs::create_dir_all(enforce.parent().unwrap()).unwrap();
            fs::write(enforce, "1").unwrap();
        }
        let host = Recorder::default();
        install_on(&options, Some(&host)).unwrap();
        let wanted = "restorecon /opt/winddown/bin/winddown-shim /opt/winddown/bin/winddownd \
                      /opt/winddown/bin/winddown";
        assert_eq!(host.0.borrow()[0] == wanted, ran, "{:?}", host.0);
    }
}

#[test]
fn changing_the_runtime_takes_the_other_ones_drop_ins_away() {
    let image = Image::new();
    image.install().unwrap();
    let process = image.tree();
    // The configuration names its runtime; an operator changes both.
    fs::remove_file(image.path("etc/winddown/config.yaml")).unwrap();
    install_on(&InstallOptions { runtime: Runtime::Cri, ..image.options() }, None).unwrap();
    assert!(!image.path("etc/systemd/system/winddown.service.d").exists());
    assert!(image.path("etc/systemd/system/crio-.scope.d").exists());
    fs::remove_file(image.path("etc/winddown/config.yaml")).unwrap();
    image.install().unwrap();
    assert_eq!(image.tree(), process);
}

#[test]
fn no_word_is_left_to_fill_in() {
    let image = Image::new();
    image.install().unwrap();
    let unit = image.read(UNIT);
    for line in unit.lines().filter(|line| !line.starts_with('#')) {
        // In these lines an @ is systemd's prefix for a set of system calls.
        assert!(line.starts_with("SystemCallFilter=") || !line.contains('@'), "{line}");
    }
    assert!(unit.contains("\nExecStart=/usr/bin/winddownd\n"), "{unit}");
    assert!(unit.contains("\nTimeoutStopSec=92s\n"), "{unit}");
}

#[test]
fn a_second_install_changes_nothing_and_says_so() {
    let image = Image::new();
    image.install().unwrap();
    let inodes = |image: &Image| {
        [UNIT, "usr/bin/winddown", "var/lib/winddown/install.json"]
            .map(|file| fs::metadata(image.path(file)).unwrap().ino())
    };
    let before = (image.tree(), inodes(&image));
    let report = image.install().unwrap();
    assert!(!report.changed(), "{report}");
    assert!(report.to_string().contains("Nothing to do."), "{report}");
    assert_eq!((image.tree(), inodes(&image)), before);
}

#[test]
fn an_upgrade_replaces_the_programs_and_nothing_else() {
    let image = Image::new();
    image.install().unwrap();
    image.programs("second");
    let report = image.install().unwrap();
    let changed = report.changes.iter().filter(|change| change.action != ChangeAction::Kept);
    let changed: Vec<_> = changed.map(|change| (change.action, &*change.path)).collect();
    let of_bin = ["/usr/bin/winddown-shim", "/usr/bin/winddownd", "/usr/bin/winddown"];
    assert_eq!(changed, of_bin.map(|path| (ChangeAction::Updated, path)), "{report}");
    for program in PROGRAMS {
        assert!(image.read(&format!("usr/bin/{program}")).starts_with("second"));
    }
}

/// What is beside `winddown` may be left of another version, or no program of winddown.
#[test]
fn programs_of_another_version_are_refused_by_name_and_force_does_not_override_it() {
    let mark = winddown_install::BUILD_MARK;
    let version = env!("CARGO_PKG_VERSION");
    let other = mark.replace(version, "0.0.9");
    for (content, wanted) in [(&*other, "is of version 0.0.9"), ("#!/bin/sh", "names no version")] {
        for name in PROGRAMS {
            let image = Image::new();
            fs::write(image.source.path().join(name), content).unwrap();
            for force in [false, true] {
                let options = InstallOptions { force, ..image.options() };
                let error = install_on(&options, None).unwrap_err().to_string();
                let beginning = format!("{} {wanted}", image.source.path().join(name).display());
                assert!(error.starts_with(&beginning), "{error}");
                assert!(error.contains(&format!("this is winddown {version}")), "{error}");
            }
            assert_eq!(image.tree(), [""; 0], "{name}");
        }
    }
}

/// The programs as they are built: each is what its mark says.
#[test]
fn each_program_has_the_mark_of_its_version() {
    let image = Image::new();
    let built = Path::new(env!("CARGO_BIN_EXE_winddown"));
    for name in PROGRAMS {
        let from = built.with_file_name(name);
        fs::copy(&from, image.source.path().join(name)).unwrap();
    }
    image.install().unwrap();
}

/// An installation of a version that had one program, which ran as `winddown agent`.
#[test]
fn an_upgrade_from_one_program_adds_the_others_and_has_the_unit_start_its_own() {
    let image = Image::new();
    image.install().unwrap();
    for newer in ["winddownd", "winddown-shim"] {
        fs::remove_file(image.path(&format!("usr/bin/{newer}"))).unwrap();
    }
    let old = image.read(UNIT).replace("/usr/bin/winddownd", "/usr/bin/winddown agent");
    fs::write(image.path(UNIT), &old).unwrap();
    let record = image.path("var/lib/winddown/install.json");
    let mut text: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    let entries = text["entries"].as_object_mut().unwrap();
    entries.remove("/usr/bin/winddownd").unwrap();
    entries.remove("/usr/bin/winddown-shim").unwrap();
    let sha256: String = Sha256::digest(&old).iter().map(|byte| format!("{byte:02x}")).collect();
    entries[&format!("/{UNIT}")]["sha256"] = serde_json::json!([sha256]);
    fs::write(&record, text.to_string()).unwrap();

    image.install().unwrap();
    assert!(image.read(UNIT).contains("\nExecStart=/usr/bin/winddownd\n"));
    for program in PROGRAMS {
        assert!(image.read(&format!("usr/bin/{program}")).starts_with("first"));
    }
}

#[test]
fn uninstall_and_purge_leave_an_empty_image() {
    let image = Image::new();
    image.install().unwrap();
    fs::write(image.path("var/log/winddown/pod.log"), "x").unwrap();
    fs::create_dir(image.path("var/lib/winddown/reports")).unwrap();
    image.uninstall(true);
    assert_eq!(image.tree(), [""; 0]);
    let report = image.uninstall(true);
    assert!(!report.changed(), "{report}");
}

/// As in an installer's chroot without /proc: the kernel does not report which program runs.
#[test]
fn without_proc_the_program_is_found_by_the_name_it_was_started_by() {
    let name = "without_proc_the_program_is_found_by_the_name_it_was_started_by";
    let may = Command::new("unshare").args(["-m", "true"]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{name}: no mount namespace");
        println!("SKIPPED: {name}: unshare -m needs root");
        return;
    }
    // Links in a separate directory: another test may replace the programs with new builds in the meantime.
    let built = Path::new(env!("CARGO_BIN_EXE_winddown"));
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for name in PROGRAMS {
        fs::hard_link(built.with_file_name(name), folder.path().join(name)).unwrap();
    }
    let program = &folder.path().join("winddown");
    for (started_as, here) in [
        ("\"$PROGRAM\"", "/"),
        ("winddown", "/"),
        ("./winddown", program.parent().unwrap().to_str().unwrap()),
    ] {
        let image = Image::new();
        let script =
            format!("mount -t tmpfs tmpfs /proc && {started_as} install --root \"$IMAGE\"");
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", &script])
            .current_dir(here)
            .env("PROGRAM", program)
            .env("IMAGE", image.root.path())
            .env(
                "PATH",
                format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", program.parent().unwrap().display()),
            )
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{started_as}: {said}");
        let size = |path: &Path| fs::metadata(path).unwrap().len();
        for name in PROGRAMS {
            let (there, here) =
                (image.path(&format!("usr/bin/{name}")), program.with_file_name(name));
            assert_eq!(size(&there), size(&here), "{started_as}");
        }
    }
}

#[test]
fn uninstall_keeps_the_configuration_the_manifests_and_the_state() {
    let image = Image::new();
    image.install().unwrap();
    fs::write(image.path("etc/winddown/pods/web.yaml"), "kind: Pod").unwrap();
    fs::write(image.path("var/lib/winddown/report.json"), "{}").unwrap();
    image.uninstall(false);
    assert_eq!(
        image.tree(),
        [
            "etc/ 755",
            "etc/winddown/ 755",
            "etc/winddown/config.yaml 644",
            "etc/winddown/pods/ 755",
            "etc/winddown/pods/web.yaml 644",
            "var/ 755",
            "var/lib/ 755",
            "var/lib/winddown/ 711",
            "var/lib/winddown/report.json 644",
        ]
    );
    // The purge still knows what the first uninstall kept; manifests are never removed.
    let report = image.uninstall(true);
    assert!(report.to_string().contains("/etc/winddown/pods stays: it holds 1 file"), "{report}");
    assert!(image.path("etc/winddown/pods/web.yaml").exists());
    assert!(!image.path("etc/winddown/config.yaml").exists());
    assert!(!image.path("var/lib/winddown").exists());
}

#[test]
fn a_drain_that_outlives_the_agent_is_named_as_it_is_uninstalled() {
    const STATE: &str = "var/lib/winddown";
    const RUN: &str = "run/winddown";
    // Where the drain is, whether it was withdrawn, of which boot; whether the state is purged; and what is said.
    for (place, withdrawn, boot_id, purge, said) in [
        (STATE, false, "b1", false, true),
        (STATE, true, "b1", false, false),
        (STATE, false, "b0", false, false),
        (STATE, false, "b1", true, false),
        (RUN, false, "b1", false, true),
        (RUN, false, "b1", true, false),
    ] {
        let image = Image::new();
        image.install().unwrap();
        fs::create_dir_all(image.path("proc/sys/kernel/random")).unwrap();
        fs::write(image.path("proc/sys/kernel/random/boot_id"), "b1\n").unwrap();
        let mut drain = serde_json::json!({"version": 1, "bootId": boot_id});
        match withdrawn {
            true => drain["withdrawn"] = true.into(),
            false => drain["isOver"] = true.into(),
        }
        fs::create_dir_all(image.path(place)).unwrap();
        // Spaces between: it is read as JSON.
        let drain = serde_json::to_string_pretty(&drain).unwrap();
        fs::write(image.path(&format!("{place}/operator-drain.json")), drain).unwrap();
        let report = uninstall_on(&image.removal(purge), Some(&Recorder::default())).unwrap();
        let drained = report.notes.iter().any(|note| note.contains("until `winddown undrain`"));
        assert_eq!(drained, said, "{place} {withdrawn} {boot_id} {purge} {report}");
        assert_eq!(image.path(place).exists(), !purge, "{place} {report}");
    }
}

#[test]
fn what_was_there_before_is_there_after() {
    let image = Image::new();
    for dir in ["usr/bin", "etc/systemd/system/multi-user.target.wants", "var/lib", "var/log"] {
        fs::create_dir_all(image.path(dir)).unwrap();
    }
    fs::write(image.path("etc/systemd/system/other.service"), "").unwrap();
    fs::create_dir_all(image.path("etc/winddown/pods")).unwrap();
    let mine = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nmaxPods: 7\n";
    fs::write(image.path("etc/winddown/config.yaml"), mine).unwrap();
    let before = image.tree();
    image.install().unwrap();
    assert_eq!(image.read("etc/winddown/config.yaml"), mine);
    image.uninstall(false);
    assert_eq!(image.tree(), before);
}

#[test]
fn the_agents_drop_in_is_neither_written_nor_changed_by_an_installation_and_goes_with_it() {
    let image = Image::new();
    image.install().unwrap();
    assert!(!image.path(LOGIND).exists(), "another package's delay may be longer");
    let raised = "# Written by winddown's agent.\n[Login]\nInhibitDelayMaxSec=300\n";
    fs::write(image.path(LOGIND), raised).unwrap();
    fs::create_dir_all(image.path("run/systemd/logind.conf.d")).unwrap();
    fs::write(image.path("run/systemd/logind.conf.d/zz-winddown.conf"), raised).unwrap();
    assert!(!image.install().unwrap().changed());
    assert_eq!(image.read(LOGIND), raised);
    image.uninstall(true);
    assert_eq!(image.tree(), ["run/ 755", "run/systemd/ 755", "run/systemd/logind.conf.d/ 755"]);
}

#[test]
fn what_hid_a_packages_drop_in_goes_although_a_purge_took_the_record_of_it() {
    let image = Image::new();
    image.package();
    let hidden = image.path("etc/systemd/system/winddown.service.d/10-process-runtime.conf");
    install_on(&InstallOptions { runtime: Runtime::Systemd, ..image.options() }, None).unwrap();
    assert!(hidden.is_symlink());
    for gone in ["var/lib/winddown", "etc/winddown"] {
        fs::remove_dir_all(image.path(gone)).unwrap();
    }
    image.install().unwrap();
    assert!(!hidden.is_symlink());
}

#[test]
fn programs_that_came_with_a_package_stay_their_packages() {
    let image = Image::new();
    fs::create_dir_all(image.path("usr/bin")).unwrap();
    for program in PROGRAMS {
        let mark = winddown_install::BUILD_MARK;
        fs::write(image.path(&format!("usr/bin/{program}")), mark).unwrap();
    }
    let mut options = image.options();
    options.programs = image.path("usr/bin");
    let report = install_on(&options, None).unwrap().to_string();
    for program in PROGRAMS {
        assert!(report.contains(&format!("kept      /usr/bin/{program}\n")), "{report}");
    }
    image.uninstall(true);
    let left = image.tree();
    let programs = PROGRAMS.map(|program| format!("usr/bin/{program} 644"));
    assert_eq!(left[..2], ["usr/ 755", "usr/bin/ 755"]);
    assert_eq!(left[2..], programs);
}

#[test]
fn a_dry_run_names_every_step_and_does_none() {
    let image = Image::new();
    let host = Recorder::default();
    let report =
        install_on(&InstallOptions { dry_run: true, ..image.options() }, Some(&host)).unwrap();
    assert_eq!(image.tree(), [""; 0]);
    assert!(host.0.borrow().is_empty());
    let text = report.to_string();
    assert!(text.starts_with("Dry run: nothing is changed.\ncreate    /var\n"), "{text}");
    assert!(text.contains("create    /usr/bin/winddown\n"), "{text}");
    assert!(text.contains("run       systemctl daemon-reload\n"), "{text}");

    image.install().unwrap();
    let before = image.tree();
    let report = uninstall_on(&UninstallOptions { dry_run: true, ..image.removal(true) }, None);
    assert!(report.unwrap().changed());
    assert_eq!(image.tree(), before);
}

#[test]
fn a_running_systemd_is_told_what_changed_and_no_more() {
    let image = Image::new();
    let host = Recorder::default();
    let options = InstallOptions { start: true, ..image.options() };
    install_on(&options, Some(&host)).unwrap();
    assert_eq!(
        host.0.take(),
        [
            "systemd-sysusers /etc/sysusers.d/winddown.conf",
            "systemd-tmpfiles --create /etc/tmpfiles.d/winddown.conf",
            "systemctl daemon-reload",
            "systemctl restart winddown.service",
        ]
    );
    install_on(&options, Some(&host)).unwrap();
    assert_eq!(host.0.take(), ["systemctl start winddown.service"]);
    fs::write(image.path(LOGIND), "# Written by winddown's agent.\n").unwrap();
    uninstall_on(&image.removal(false), Some(&host)).unwrap();
    assert_eq!(
        host.0.take(),
        [
            "systemctl stop winddown.service",
            "systemctl stop winddown-order.target",
            "systemctl daemon-reload",
            "systemctl kill -s HUP systemd-logind.service",
        ]
    );
}

/// The unit is the package's, and whether or not `systemctl enable` was typed, it does not start the next agent.
#[test]
fn an_uninstallation_beside_a_package_stops_the_agent_first_and_takes_its_link_away() {
    for (purge, runtime) in [(false, Runtime::Systemd), (true, Runtime::Process)] {
        for by in
            ["/usr/lib/systemd/system/winddown.service", "/lib/systemd/system/winddown.service"]
        {
            let image = Image::new();
            image.package();
            fs::create_dir_all(image.path(WANTS).parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(by, image.path(WANTS)).unwrap();
            install_on(&InstallOptions { runtime, ..image.options() }, None).unwrap();
            let host = Recorder::default();
            let report = uninstall_on(&image.removal(purge), Some(&host)).unwrap().to_string();
            let done = host.0.take();
            assert_eq!(
                done,
                [
                    "systemctl stop winddown.service",
                    "systemctl stop winddown-order.target",
                    "systemctl daemon-reload"
                ],
                "{report}"
            );
            assert!(image.path(WANTS).symlink_metadata().is_err(), "{report}");
            assert!(image.path("usr/lib/systemd/system/winddown.service").exists());
            // A purge is refused while any run.
            assert_eq!(report.contains("running pods keep running"), !purge, "{report}");
        }
    }
}

#[test]
fn a_second_uninstallation_on_a_machine_has_nothing_to_do() {
    /// A systemd that has no such unit.
    struct Without;
    impl Host for Without {
        fn run(&self, program: &str, args: &[&str]) -> Result<(), HostError> {
            let (command, status) =
                (format!("{program} {}", args.join(" ")), ExitStatus::from_raw(5 << 8));
            Err(HostError::Failed { command, status, output: "not loaded".to_owned() })
        }

        fn kubelet_holds_lock(&self) -> Option<bool> {
            None
        }

        fn has_processes(&self, _: &Path) -> Option<bool> {
            None
        }
    }
    let report = uninstall_on(&Image::new().removal(false), Some(&Without)).unwrap().to_string();
    assert_eq!(report, "Nothing to do.\n");
}

#[test]
fn a_drop_in_of_the_tarball_makes_way_for_a_packages_and_back() {
    let image = Image::new();
    image.install().unwrap();
    let drop_in = image.path("etc/systemd/system/winddown.service.d/10-process-runtime.conf");
    let config = image.path("etc/winddown/config.yaml");
    image.package();
    fs::remove_file(&config).unwrap();
    let host = Recorder(RefCell::default(), true);
    let options = InstallOptions { runtime: Runtime::Cri, start: true, ..image.options() };
    install_on(&options, Some(&host)).unwrap();
    assert_eq!(fs::read_link(&drop_in).unwrap(), Path::new("/dev/null"));
    let done = host.0.take();
    assert!(!done.iter().any(|command| command.contains("restart")), "it has pods: {done:?}");

    fs::remove_dir_all(image.path("usr/lib")).unwrap();
    fs::remove_file(&config).unwrap();
    image.install().unwrap();
    assert!(drop_in.is_file() && !drop_in.is_symlink());
}

#[test]
fn the_time_of_systemd_follows_the_configuration() {
    let image = Image::new();
    let long = image.source.path().join("long.yaml");
    fs::write(&long, LONG).unwrap();
    install_on(&InstallOptions { config: Some(long), ..image.options() }, None).unwrap();
    assert_eq!(image.read("etc/winddown/config.yaml"), LONG);
    assert!(image.read(UNIT).contains("\nTimeoutStopSec=132s\n"));

    let longer = LONG.replace("100s", "200s") + "shutdownEndpointDrainPeriod: 60s\n";
    fs::write(image.path("etc/winddown/config.yaml"), longer).unwrap();
    let report = image.install().unwrap().to_string();
    assert!(report.contains("updated   /etc/systemd/system/winddown.service\n"), "{report}");
    assert!(image.read(UNIT).contains("\nTimeoutStopSec=292s\n"));
}

#[test]
fn changing_to_a_container_runtime_never_restarts_the_agent_over_running_pods() {
    let image = Image::new();
    let host = Recorder(RefCell::default(), true);
    image.install().unwrap();
    fs::remove_file(image.path("etc/winddown/config.yaml")).unwrap();
    let options = InstallOptions { start: true, runtime: Runtime::Cri, ..image.options() };
    let report = install_on(&options, Some(&host)).unwrap();
    assert_eq!(host.0.take(), ["systemctl daemon-reload"]);
    // A drain that needed SIGKILL exits with 5: a chain with && would leave the node drained.
    let next = [
        "winddown drain",
        "systemctl restart winddown    # when the pods are gone",
        "winddown undrain",
    ];
    let steps = |report: &InstallReport| report.next.iter().map(|step| step.to_string()).collect();
    let typed: Vec<String> = steps(&report);
    assert_eq!(typed[..3], next);

    // Nor does a later one that changes nothing, or only the programs; by then the drop-in is long gone.
    for programs in ["first", "second"] {
        image.programs(programs);
        let report = install_on(&options, Some(&host)).unwrap();
        let typed: Vec<String> = steps(&report);
        assert_eq!(typed[..3], next, "{report}");
    }
    // Nor the next one, if this one failed after the files.
    image.programs("third");
    install_on(&options, Some(&Broken("systemctl daemon-reload"))).unwrap_err();
    install_on(&options, Some(&host)).unwrap();
    let done = host.0.take();
    assert!(!done.iter().any(|command| command.contains("restart")), "{done:?}");
}

#[test]
fn changing_to_a_container_runtime_where_no_pod_runs_drains_nothing() {
    for start in [false, true] {
        let image = Image::new();
        image.install().unwrap();
        fs::remove_file(image.path("etc/winddown/config.yaml")).unwrap();
        let options = InstallOptions { start, runtime: Runtime::Cri, ..image.options() };
        let report = install_on(&options, Some(&Recorder::default())).unwrap();
        let said = report.to_string();
        assert!(!said.contains("drain"), "{said}");
        let next = report.next.iter().map(|step| &**step);
        let commands = report.commands.iter().map(String::as_str);
        let starts = commands.chain(next).any(|c| c.contains("start winddown"));
        assert!(starts, "{said}");
    }
}

/// A host on which the commands that begin like this one hang.
struct Broken(&'static str);

impl Host for Broken {
    fn run(&self, program: &str, args: &[&str]) -> Result<(), HostError> {
        let command = format!("{program} {}", args.join(" "));
        if !command.starts_with(self.0) {
            return Ok(());
        }
        let after = Duration::from_secs(120);
        Err(HostError::Timeout { command, after })
    }

    fn kubelet_holds_lock(&self) -> Option<bool> {
        None
    }

    fn has_processes(&self, _: &Path) -> Option<bool> {
        None
    }
}

#[test]
fn a_failing_daemon_reload_is_an_error_and_a_missing_tool_a_note() {
    let image = Image::new();
    let error = install_on(&image.options(), Some(&Broken("systemctl daemon-reload"))).unwrap_err();
    assert!(error.to_string().starts_with("the files are in place, but systemd"), "{error}");
    assert_eq!(
        std::error::Error::source(&error).unwrap().to_string(),
        "systemctl daemon-reload did not exit within 120s and was killed"
    );
    // As the error says: the same command again.
    let host = Recorder::default();
    let options = InstallOptions { start: true, ..image.options() };
    install_on(&options, Some(&host)).unwrap();
    let done = host.0.take();
    assert_eq!(done.len(), 4, "{done:?}");
    assert_eq!(done[2..], ["systemctl daemon-reload", "systemctl restart winddown.service"]);
    install_on(&options, Some(&host)).unwrap();
    assert_eq!(host.0.take(), ["systemctl start winddown.service"]);
    let image = Image::new();
    let report = install_on(&image.options(), Some(&Broken("systemd-sysusers"))).unwrap();
    let of_tools = report.notes.iter().filter(|note| note.starts_with("systemd-sysusers "));
    assert_eq!(of_tools.count(), 1, "{report}");
}
