//! Obstacles to an installation: foreign files, full and read-only disks, odd trees.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use winddown_install::{
    Host, HostError, InstallError, InstallOptions, Runtime, UninstallOptions, install_on,
    uninstall_on,
};

use super::Broken;
use super::image::{Image, LONG, Recorder, UNIT, WANTS};

#[test]
fn foreign_files_are_named_together_and_nothing_is_touched() {
    let image = Image::new();
    fs::create_dir_all(image.path("usr/bin")).unwrap();
    fs::write(image.path("usr/bin/winddown"), "somebody else's").unwrap();
    fs::create_dir_all(image.path("etc/systemd/system")).unwrap();
    symlink("/dev/null", image.path(UNIT)).unwrap();
    let before = image.tree();
    let error = image.install().unwrap_err();
    assert_eq!(
        error.to_string(),
        "2 files are in the way, nothing was changed:\n  \
         /usr/bin/winddown: it is not winddown's; --force replaces it and keeps the old one beside \
         it\n  \
         /etc/systemd/system/winddown.service: it is masked; remove that link first"
    );
    assert_eq!(image.tree(), before);
}

#[test]
fn an_edited_unit_is_replaced_only_by_force_and_kept_beside_it() {
    let image = Image::new();
    image.install().unwrap();
    let edited = image.read(UNIT) + "# mine\n";
    fs::write(image.path(UNIT), &edited).unwrap();
    let error = image.install().unwrap_err().to_string();
    assert!(error.contains("/etc/systemd/system/winddown.service: it was edited"), "{error}");
    let report = install_on(&InstallOptions { force: true, ..image.options() }, None).unwrap();
    assert!(report.to_string().contains("replaced  /etc/systemd/system/winddown.service"));
    assert_eq!(image.read(&format!("{UNIT}.before-winddown")), edited);
    assert!(!image.read(UNIT).contains("# mine"));

    // What was kept is not lost to the next one, and that one is not either.
    let again = image.read(UNIT) + "# mine, again\n";
    fs::write(image.path(UNIT), &again).unwrap();
    let force = InstallOptions { force: true, ..image.options() };
    let error = install_on(&force, None).unwrap_err().to_string();
    assert!(
        error.contains("/winddown.service: its place, NAME.before-winddown, is taken"),
        "{error}"
    );
    assert_eq!(image.read(UNIT), again);
    fs::remove_file(image.path(&format!("{UNIT}.before-winddown"))).unwrap();
    install_on(&force, None).unwrap();
    assert_eq!(image.read(&format!("{UNIT}.before-winddown")), again);
}

/// A package's drop-in is hidden by a link.
#[test]
fn a_file_that_makes_way_for_a_link_is_kept_beside_it() {
    let image = Image::new();
    image.package();
    let drop_in = "etc/systemd/system/winddown.service.d/10-process-runtime.conf";
    fs::create_dir_all(image.path(drop_in).parent().unwrap()).unwrap();
    fs::write(image.path(drop_in), "mine").unwrap();
    let systemd = InstallOptions { runtime: Runtime::Systemd, ..image.options() };
    let error = install_on(&systemd, None).unwrap_err().to_string();
    assert!(error.contains("it is not a link; --force replaces it"), "{error}");
    install_on(&InstallOptions { force: true, ..systemd }, None).unwrap();
    assert_eq!(fs::read_link(image.path(drop_in)).unwrap(), Path::new("/dev/null"));
    assert_eq!(image.read(&format!("{drop_in}.before-winddown")), "mine");
}

#[test]
fn uninstall_keeps_an_edited_unit_unless_forced() {
    let image = Image::new();
    image.install().unwrap();
    fs::write(image.path(UNIT), "# winddown, mine\n").unwrap();
    let report = image.uninstall(true).to_string();
    let line = "kept      /etc/systemd/system/winddown.service  (changed since it was installed)";
    assert!(report.contains(line), "{report}");
    assert_eq!(image.read(UNIT), "# winddown, mine\n");

    let image = Image::new();
    image.install().unwrap();
    fs::write(image.path(UNIT), "# winddown, mine\n").unwrap();
    uninstall_on(&UninstallOptions { force: true, ..image.removal(true) }, None).unwrap();
    assert_eq!(image.tree(), [""; 0]);
}

/// What else is in them is not known.
#[test]
fn a_purge_keeps_the_directories_that_the_configuration_chose_and_finds_a_drain_there() {
    let image = Image::new();
    image.install().unwrap();
    let chosen =
        "stateDirectory: /srv/state\npodLogsDir: /srv/logs\ncontrolSocket: /run/agent/a.sock\n";
    fs::write(image.path("etc/winddown/config.yaml"), format!("{LONG}{chosen}")).unwrap();
    let put = |path: &str, text: &str| {
        fs::create_dir_all(image.path(path).parent().unwrap()).unwrap();
        fs::write(image.path(path), text).unwrap();
    };
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    put("proc/sys/kernel/random/boot_id", &boot);
    let drain = format!(
        r#"{{"version": 1, "bootId": "{}", "timeSeconds": null, "isOver": true,
            "givenBootMs": {}}}"#,
        boot.trim(),
        winddown_host::machine::boot_clock().now().as_millis(),
    );
    put("srv/state/operator-drain.json", &drain);
    put("run/agent/kubelet-stopped", "snap.k8s.kubelet.service");
    let report = uninstall_on(&image.removal(true), Some(&Recorder::default())).unwrap();
    let report = report.to_string();
    for kept in ["/srv/state", "/srv/logs"] {
        let line = format!("{kept} stays: the configuration chose it; delete it yourself");
        assert!(report.contains(&line), "{report}");
    }
    assert!(report.contains("the node stays drained"), "{report}");
    assert!(report.contains("`systemctl start snap.k8s.kubelet.service`"), "{report}");
    assert_eq!(image.read("srv/state/operator-drain.json"), drain);
}

/// Its programs and its drop-in are what it needs: without the drop-in, the next daemon-reload would have a stop kill the pods.
#[test]
fn an_edited_unit_that_is_kept_keeps_what_it_needs_but_is_stopped_and_not_started_at_boot() {
    for purge in [false, true] {
        let image = Image::new();
        image.install().unwrap();
        fs::write(image.path(UNIT), "# winddown, mine\n").unwrap();
        let host = Recorder::default();
        let dry = UninstallOptions { dry_run: true, ..image.removal(purge) };
        let planned = uninstall_on(&dry, Some(&host)).unwrap().to_string();
        let report = uninstall_on(&image.removal(purge), Some(&host)).unwrap().to_string();
        let done = host.0.take();
        let stop = "systemctl stop winddown.service";
        assert_eq!(done, [stop, "systemctl stop winddown-order.target", "systemctl daemon-reload"]);
        for kept in [
            UNIT,
            "usr/bin/winddownd",
            "usr/bin/winddown-shim",
            "etc/systemd/system/winddown-order.target",
            "etc/systemd/system/winddown.slice",
            "etc/systemd/system/winddown.service.d/10-process-runtime.conf",
            "etc/sysusers.d/winddown.conf",
        ] {
            assert!(report.contains(&format!("kept      /{kept}  (")), "{kept}: {report}");
            assert!(image.path(kept).exists(), "{kept}");
        }
        assert!(image.path(WANTS).symlink_metadata().is_err(), "{report}");
        assert!(!report.contains("groupdel"), "{report}");
        let of_state = |report: &str| -> Vec<String> {
            let is_its = |line: &&str| line.split_whitespace().nth(1) == Some("/var/lib/winddown");
            report.lines().filter(is_its).map(|line| line.trim().to_owned()).collect()
        };
        assert_eq!(of_state(&planned).len(), 1, "{planned}");
        assert_eq!(of_state(&report), ["kept      /var/lib/winddown  (not empty)"], "{report}");
        // What is kept is still known to be winddown's.
        uninstall_on(&UninstallOptions { force: true, ..image.removal(true) }, None).unwrap();
        assert_eq!(image.tree(), [""; 0]);
    }
}

#[test]
fn nothing_is_removed_under_an_agent_that_cannot_be_stopped() {
    let image = Image::new();
    image.install().unwrap();
    let before = image.tree();
    let host = Broken("systemctl stop");
    let error = uninstall_on(&image.removal(true), Some(&host)).unwrap_err();
    assert!(error.to_string().contains("cannot be stopped, nothing was changed"), "{error}");
    assert_eq!(image.tree(), before);
    uninstall_on(&UninstallOptions { force: true, ..image.removal(true) }, Some(&host)).unwrap();
    assert_eq!(image.tree(), [""; 0]);
}

#[test]
fn an_image_with_absolute_links_never_leads_out_of_itself() {
    let image = Image::new();
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(image.path("data")).unwrap();
    // Inside the image this is /data; taken literally it would be the host's /data.
    symlink("/data", image.path("etc")).unwrap();
    symlink("../../../../../../../../../../data", image.path("var")).unwrap();
    symlink(outside.path(), image.path("data/lib")).unwrap();
    fs::create_dir_all(image.path(outside.path().to_str().unwrap().trim_start_matches('/')))
        .unwrap();
    image.install().unwrap();
    assert!(image.path("data/systemd/system/winddown.service").exists());
    assert!(image.path("data/log/winddown").exists());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);

    // The configuration of the image is the one that its link leads to.
    let (config, site) = (image.path("data/winddown/config.yaml"), image.path("data/site.yaml"));
    fs::remove_file(&config).unwrap();
    symlink("/data/site.yaml", &config).unwrap();
    fs::write(&site, LONG.replace("shutdown", "runtime: cri\nshutdown")).unwrap();
    let error = image.install().unwrap_err().to_string();
    assert!(error.contains(site.to_str().unwrap()), "{error}");
}

#[test]
fn a_link_loop_is_an_error_that_names_the_path() {
    let image = Image::new();
    symlink("/etc", image.path("etc")).unwrap();
    let error = image.install().unwrap_err().to_string();
    assert!(error.starts_with(image.path("etc/").to_str().unwrap()), "{error}");
    assert!(error.ends_with("leads through too many symbolic links"), "{error}");
}

#[test]
fn a_file_where_a_directory_belongs_is_named() {
    let image = Image::new();
    fs::write(image.path("usr"), "").unwrap();
    let error = image.install().unwrap_err().to_string();
    assert!(error.contains("/usr: it is not a directory; move it away"), "{error}");
}

/// Makes every write of `name` in `dir` fail, also for root: there is a directory at the path of
/// the temporary file.
fn obstruct(image: &Image, dir: &str, name: &str) -> PathBuf {
    let path = image.path(dir).join(format!(".{name}.winddown-new"));
    fs::create_dir_all(path.join("x")).unwrap();
    path
}

#[test]
fn an_install_that_failed_half_way_is_completed_by_the_next() {
    let image = Image::new();
    let obstacle = obstruct(&image, "usr/bin", "winddown");
    let error = image.install().unwrap_err().to_string();
    assert!(error.starts_with("cannot write "), "{error}");
    assert!(error.contains("/usr/bin/winddown"), "{error}");
    assert!(!image.path(UNIT).exists());
    assert!(image.path("var/lib/winddown/install.json").exists());
    fs::remove_dir_all(obstacle).unwrap();
    image.install().unwrap();
    image.uninstall(true);
    assert_eq!(image.tree(), ["usr/ 755", "usr/bin/ 755"]);
}

#[test]
fn what_an_interrupted_upgrade_left_is_taken_away() {
    let image = Image::new();
    image.install().unwrap();
    image.programs("second");
    // A step after the installation of the programs fails.
    fs::remove_file(image.path("etc/sysusers.d/winddown.conf")).unwrap();
    let obstacle = obstruct(&image, "etc/sysusers.d", "winddown.conf");
    image.install().unwrap_err();
    assert!(image.read("usr/bin/winddown").starts_with("second"));
    fs::remove_dir_all(obstacle).unwrap();
    image.uninstall(true);
    assert_eq!(image.tree(), [""; 0]);
}

#[test]
fn a_damaged_record_is_an_error_with_a_way_out() {
    let image = Image::new();
    image.install().unwrap();
    fs::write(image.path("var/lib/winddown/install.json"), "{").unwrap();
    let error = image.install().unwrap_err();
    assert!(error.to_string().starts_with("the list of installed files "), "{error}");
    assert_eq!(error.hint(), "move it away and run `winddown install` again");
    fs::remove_file(image.path("var/lib/winddown/install.json")).unwrap();
    image.install().unwrap();
}

#[test]
fn a_configuration_for_the_other_runtime_or_with_an_error_stops_the_install() {
    let image = Image::new();
    let error = |image: &Image, config: &str| -> (String, String) {
        fs::create_dir_all(image.path("etc/winddown")).unwrap();
        fs::write(image.path("etc/winddown/config.yaml"), config).unwrap();
        let error = image.install().unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        (error.to_string(), source)
    };
    let (text, why) = error(&image, &LONG.replace("shutdown", "runtime: cri\nshutdown"));
    assert!(text.ends_with("/etc/winddown/config.yaml is not usable"), "{text}");
    assert_eq!(why, "it says `runtime: cri`: change that first, or install with --runtime cri");
    let (_, why) = error(&image, &LONG.replace("shutdown", "runtime: systemd\nshutdown"));
    assert!(why.ends_with("or install with --runtime systemd"), "{why}");
    let (_, why) = error(&image, &LONG.replace("100s", "never"));
    assert!(why.contains("shutdownGracePeriod"), "{why}");
    assert!(!image.path("usr").exists());
}

#[test]
fn a_read_only_place_is_named_with_a_way_out() {
    let test = "a_read_only_place_is_named_with_a_way_out";
    let image = Image::new();
    let Some(_mount) = Mount::over(test, &image.path("usr"), "ro") else { return };
    let before = image.tree();
    for dry_run in [false, true] {
        let error = install_on(&InstallOptions { dry_run, ..image.options() }, None).unwrap_err();
        let why = "/usr/bin is on a read-only file system, nothing was changed";
        assert!(error.to_string().contains(why), "{error}");
        assert!(error.hint().ends_with("--bin-dir /opt/winddown/bin"), "{}", error.hint());
        assert_eq!(image.tree(), before);
    }
    let options = InstallOptions { bin_dir: Some("/opt/winddown/bin".into()), ..image.options() };
    let report = install_on(&options, Some(&Recorder::default())).unwrap();
    assert!(image.path("opt/winddown/bin/winddown").exists());
    // A shell does not look there.
    let next: Vec<&str> = report.next.iter().map(|step| &**step).collect();
    assert_eq!(next.last(), Some(&"/opt/winddown/bin/winddown status"), "{report}");
}

#[test]
fn an_uninstallation_from_a_read_only_disk_is_refused_before_the_agent_is_stopped() {
    let test = "an_uninstallation_from_a_read_only_disk_is_refused_before_the_agent_is_stopped";
    let image = Image::new();
    for purge in [false, true] {
        image.install().unwrap();
        let installed = image.tree();
        let Some(mount) = Mount::read_only(test, &image.path("etc")) else { return };
        let host = Recorder::default();
        let error = uninstall_on(&image.removal(purge), Some(&host)).unwrap_err();
        assert!(error.to_string().ends_with("read-only file system, nothing was changed"));
        assert_eq!(error.hint(), "make it writable, then run the same command again");
        assert_eq!((host.0.borrow().len(), image.tree()), (0, installed), "{error}");
        drop(mount);
    }
}

/// A machine on which the unit's file cannot be removed once the agent was stopped.
struct Stubborn(PathBuf);

impl Host for Stubborn {
    fn run(&self, _: &str, args: &[&str]) -> Result<(), HostError> {
        if args == ["stop", "winddown.service"] {
            fs::remove_file(&self.0).unwrap();
            fs::create_dir(&self.0).unwrap();
        }
        Ok(())
    }

    fn kubelet_holds_lock(&self) -> Option<bool> {
        None
    }

    fn has_processes(&self, _: &Path) -> Option<bool> {
        Some(false)
    }
}

#[test]
fn an_uninstallation_that_fails_after_the_agents_stop_says_that_the_node_is_unprotected() {
    let image = Image::new();
    image.install().unwrap();
    let host = Stubborn(image.path(UNIT));
    let error = uninstall_on(&image.removal(false), Some(&host)).unwrap_err();
    let said = "the agent is stopped, and nothing terminates the pods in order";
    assert!(error.to_string().starts_with(said), "{error}");
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert!(why.contains("cannot remove") && why.ends_with(UNIT), "{why}");
    assert!(error.hint().ends_with("run the same command again, or install it again"));
}

/// "Run `winddown install` again" is what follows a change of the grace periods, and what the doctor says.
#[test]
fn programs_stay_in_the_directory_that_was_chosen_for_them() {
    let image = Image::new();
    let into = |place: &str| {
        let options = InstallOptions { bin_dir: Some(place.into()), ..image.options() };
        install_on(&options, None).unwrap()
    };
    into("/opt/winddown/bin");
    image.programs("second");
    let report = image.install().unwrap();
    assert!(image.read("opt/winddown/bin/winddownd").starts_with("second"), "{report}");
    assert!(image.read(UNIT).contains("\nExecStart=/opt/winddown/bin/winddownd\n"));
    assert!(!image.path("usr/bin").exists(), "{report}");
    into("/usr/bin");
    assert!(!image.path("opt/winddown/bin").exists() && image.path("usr/bin/winddownd").exists());
}

#[test]
fn what_is_mounted_in_a_directory_that_a_purge_leaves_to_be_deleted_is_named() {
    let test = "what_is_mounted_in_a_directory_that_a_purge_leaves_to_be_deleted_is_named";
    let image = Image::new();
    image.install().unwrap();
    let chosen = format!("{LONG}stateDirectory: /srv/state\n");
    fs::write(image.path("etc/winddown/config.yaml"), chosen).unwrap();
    let volume = image.path("srv/state/cri/pods/u/subpaths/db/0");
    let Some(_mount) = Mount::over(test, &volume, "size=512k") else { return };
    let report = uninstall_on(&image.removal(true), None).unwrap().to_string();
    let line =
        format!("/srv/state stays: the configuration chose it; `umount {}`", volume.display());
    assert!(report.contains(&line), "{report}");
}

#[test]
fn a_full_disk_is_named_and_the_next_install_goes_on() {
    let test = "a_full_disk_is_named_and_the_next_install_goes_on";
    let image = Image::new();
    image.programs(&"x".repeat(1 << 20));
    let Some(mount) = Mount::over(test, &image.path("usr"), "size=512k") else { return };
    let error = image.install().unwrap_err();
    assert!(error.to_string().ends_with("/usr/bin/winddown-shim"), "{error}");
    assert!(error.hint().starts_with("make room and run the same command"), "{}", error.hint());
    assert_eq!(fs::read_dir(image.path("usr/bin")).unwrap().count(), 0, "no half a program");
    drop(mount);
    image.install().unwrap();
    image.uninstall(true);
    assert_eq!(image.tree(), ["usr/ 755"]);
}

/// rpm cannot purge, and removes the agent that would unmount what pods have mounted.
#[test]
fn an_erased_rpm_names_what_is_mounted_where_somebody_may_now_delete() {
    let test = "an_erased_rpm_names_what_is_mounted_where_somebody_may_now_delete";
    let image = Image::new();
    let volume = image.path("var/lib/winddown/cri/pods/u/subpaths/db/0");
    let Some(mount) = Mount::over(test, &volume, "size=512k") else { return };
    let (done, said) = scriptlet(&image, "rpm/post_uninstall.sh", "0");
    assert!(done && said.contains(&format!("umount {}", volume.display())), "{said}");
    drop(mount);
    assert_eq!(scriptlet(&image, "rpm/post_uninstall.sh", "0"), (true, String::new()));
}

/// Runs a package's script, and returns whether it succeeded and what it said.
fn scriptlet(image: &Image, name: &str, argument: &str) -> (bool, String) {
    let scripts =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/scripts").canonicalize().unwrap();
    let of = |name: &str| fs::read_to_string(scripts.join(name)).unwrap();
    let script = format!("exec 2>&1\njournalctl() {{ :; }}\n{}{}", of("shared.sh"), of(name));
    let mut sh = Command::new("sh");
    sh.args(["-ec", &script, "sh", argument]).env("DPKG_ROOT", image.root.path());
    let done = sh.output().unwrap();
    (done.status.success(), String::from_utf8(done.stdout).unwrap())
}

/// Their volumes and their records would go. Whatever the runtime is, a process has the log of each open.
#[test]
fn a_purge_is_refused_while_pods_run_and_nothing_is_touched() {
    let image = Image::new();
    image.install().unwrap();
    let log = image.path("var/log/winddown/default_web_u/web/0.log");
    for file in [log.as_path(), &image.path("var/lib/winddown/cri/pods/u/volumes/data/x")] {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "x").unwrap();
    }
    // A log shipper's, which outlasts the pod.
    let _reads = fs::File::open(&log).unwrap();
    let writes = fs::File::options().append(true).open(&log).unwrap();
    let before = image.tree();
    let host = Recorder::default();
    let error = uninstall_on(&image.removal(true), Some(&host)).unwrap_err();
    let said = format!("/var/log/winddown is in use by process {} (", std::process::id());
    assert!(error.to_string().contains(&said), "{error}");
    assert!(error.hint().starts_with("`winddown drain` first"), "{}", error.hint());
    assert_eq!((host.0.borrow().len(), image.tree()), (0, before));

    // Nor does a package's purge go on.
    uninstall_on(&image.removal(false), Some(&host)).unwrap();
    let before = image.tree();
    let (done, said) = scriptlet(&image, "deb/postrm", "purge");
    assert!(!done && said.contains("pods run"), "{said}");
    assert_eq!(image.tree(), before);
    drop(writes);
    let (done, said) = scriptlet(&image, "deb/postrm", "purge");
    assert!(done, "{said}");
    assert_eq!(image.tree(), ["etc/ 755", "var/ 755", "var/lib/ 755", "var/log/ 755"], "{said}");
}

/// The kernel shows a path as the process has it, which any user's may have in a namespace of its own.
#[test]
fn a_process_with_a_file_of_its_own_where_logs_are_keeps_no_purge_from_its_end() {
    let test = "a_process_with_a_file_of_its_own_where_logs_are_keeps_no_purge_from_its_end";
    let image = Image::new();
    image.install().unwrap();
    let script = "mount -t tmpfs tmpfs \"$0\" && exec 3>\"$0/0.log\" && echo && read -r _";
    let mut stranger = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .arg(image.path("var/log/winddown"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let is_mounted = stranger.stdout.as_mut().unwrap().read(&mut [0]).unwrap() == 1;
    let purged = is_mounted.then(|| {
        uninstall_on(&UninstallOptions { dry_run: true, ..image.removal(true) }, None).unwrap();
        image.uninstall(false);
        scriptlet(&image, "deb/postrm", "purge")
    });
    drop(stranger.stdin.take());
    stranger.wait().unwrap();
    match purged {
        Some((done, said)) => assert!(done, "{said}"),
        None => {
            assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{test}: no mount namespace");
            println!("SKIPPED: {test}: unshare -m needs root");
        }
    }
}

#[test]
fn a_purge_that_is_forced_deletes_the_data_of_pods_that_run() {
    let image = Image::new();
    image.install().unwrap();
    let _writes = fs::File::create(image.path("var/log/winddown/0.log")).unwrap();
    uninstall_on(&UninstallOptions { force: true, ..image.removal(true) }, None).unwrap();
    assert_eq!(image.tree(), [""; 0]);
}

#[test]
fn a_purge_of_the_package_takes_all_that_an_installation_wrote_for_it_and_no_more() {
    let image = Image::new();
    let units = "etc/systemd/system";
    let put = |name: &str, first: &str| {
        let path = image.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{first}\n[Unit]\n")).unwrap();
    };
    for name in ["winddown.service.d/20-stop-time.conf", "winddown-order.target.d/50-kubelet.conf"]
    {
        put(&format!("{units}/{name}"), "# Installed by \"winddown install --companion\".");
    }
    put("etc/needrestart/conf.d/winddown.conf", "# Installed by \"winddown install\".");
    put(&format!("{units}/winddown-order.target.d/60-mine.conf"), "# mine");
    assert!(scriptlet(&image, "deb/postrm", "purge").0);
    let files: Vec<String> =
        image.tree().into_iter().filter(|line| line.contains(".conf ")).collect();
    assert_eq!(files, [format!("{units}/winddown-order.target.d/60-mine.conf 644")]);
}

/// A tmpfs over a directory, for as long as it lives.
struct Mount(PathBuf);

impl Mount {
    fn over(test: &str, dir: &Path, options: &str) -> Option<Self> {
        fs::create_dir_all(dir).unwrap();
        let options = format!("mode=755,{options}");
        let mut mount = Command::new("mount");
        let status = mount.args(["-t", "tmpfs", "-o", &options, "winddown-test"]).arg(dir).output();
        if status.is_ok_and(|output| output.status.success()) {
            return Some(Self(dir.to_owned()));
        }
        assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "cannot mount a tmpfs");
        println!("SKIPPED: {test}: cannot mount a tmpfs; run the tests as root");
        None
    }
}

impl Mount {
    /// Makes what is in a directory read-only.
    fn read_only(test: &str, dir: &Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        let status = mount.args(["--bind", "-o", "ro"]).args([dir, dir]).output();
        if status.is_ok_and(|output| output.status.success()) {
            return Some(Self(dir.to_owned()));
        }
        assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "cannot mount");
        println!("SKIPPED: {test}: cannot mount; run the tests as root");
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_place_that_a_unit_file_cannot_name_is_refused() {
    let image = Image::new();
    for place in ["opt/bin", "/opt/my bin", "/opt/%h", "/opt/../bin", "/opt/$x", "/opt/\"q"] {
        let options = InstallOptions { bin_dir: Some(place.into()), ..image.options() };
        let error = install_on(&options, None).unwrap_err();
        assert!(matches!(error, InstallError::ProgramDirectory { .. }), "{place}: {error}");
    }
    let options = InstallOptions { bin_dir: Some("/opt//winddown/bin/".into()), ..image.options() };
    install_on(&options, None).unwrap();
    assert!(image.read(UNIT).contains("\nExecStart=/opt/winddown/bin/winddownd\n"));
}

/// The unit's sandbox shows the agent nothing of these directories; the process runtime has no sandbox.
#[test]
fn programs_where_the_unit_does_not_see_them_are_refused() {
    let image = Image::new();
    let to = |place: &str, runtime| {
        let options = InstallOptions { bin_dir: Some(place.into()), runtime, ..image.options() };
        install_on(&InstallOptions { dry_run: true, ..options }, None).map(drop)
    };
    fs::create_dir_all(image.path("root/opt")).unwrap();
    symlink("/root/opt", image.path("opt")).unwrap();
    for place in
        ["/root", "/root/bin", "/home/me/bin", "/tmp/b", "/var/tmp/b", "/run/user/0", "/opt/b"]
    {
        let error = to(place, Runtime::Systemd).unwrap_err();
        assert!(error.hint().contains("--bin-dir /usr/local/bin"), "{place}: {error}");
        to(place, Runtime::Process).unwrap();
    }
    for place in ["/usr/local/bin", "/rootless", "/srv/home"] {
        to(place, Runtime::Systemd).unwrap();
    }
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let image = Image::new();
    let options = InstallOptions { programs: "/nowhere".into(), ..image.options() };
    let error = install_on(&options, None).unwrap_err().to_string();
    assert!(
        error.starts_with("a program to install, /nowhere/winddown-shim, is not a regular file"),
        "{error}"
    );
}
