//! A bare Debian node gets the package, a newer one, loses it, and loses what it left.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use winddown_node_tests::packages::{
    DPKG, Packages, are_here, dpkg, dpkg_file, programs_are_here, text_of,
};
use winddown_node_tests::scenario::{SOON, Scenario, TestResult, seven_pods};
use winddown_node_tests::{Flavour, Node, base_or_skip, install_pods, programs};

/// As short as pods allow; the disk is the host's, and may be as full as it likes.
const CONFIG: &str = "\
apiVersion: winddown.dev/v1alpha1
kind: Configuration
runtime: process
evictionHard: {memory.available: 100Mi}
shutdownGracePeriod: 14s
shutdownGracePeriodCriticalPods: 4s
";

/// What watches over the lock, and where it notes when there is none.
const WATCH: &str = "/var/tmp/watch-lock";
const GAPS: &str = "/var/tmp/gaps";

pub(super) const ENABLED: &str = "/etc/systemd/system/multi-user.target.wants/winddown.service";

#[tokio::test]
async fn a_package_is_installed_upgraded_and_removed_without_harm_to_a_pod() -> TestResult {
    let test = "a_package_is_installed_upgraded_and_removed_without_harm_to_a_pod";
    if !are_here(test, &[("dpkg-deb", "dpkg"), ("strip", "binutils")])? {
        return Ok(());
    }
    let Some(base) = base_or_skip(test, Flavour::Plain).await? else { return Ok(()) };
    let packages = (Packages::make("1", &["deb"]).await?, Packages::make("2", &["deb"]).await?);
    let (first, second) = (packages.0.deb()?, packages.1.deb()?);
    let mut scenario = Scenario { node: Node::boot(&base).await?, pods: Vec::new() };
    let bare = files(&scenario.node).await?;

    // One command, and one to start it.
    install(&scenario, &first).await?;
    let idle = scenario.node.run(&["systemctl", "show", "-p", "ActiveState", "winddown"]).await?;
    assert_eq!(idle, "ActiveState=inactive\n", "the installation starts nothing");
    assert!(!scenario.node.host_path(ENABLED).exists(), "nor does it enable anything");
    scenario.node.run(&["systemctl", "enable", "--now", "winddown"]).await?;
    scenario.lock_is_back().await?;
    println!("{}", scenario.text(&["status"]).await?);

    let pids = run_pods(&mut scenario).await?;
    upgrade(&scenario, async || install(&scenario, &second).await).await?;
    assert_eq!(scenario.untouched_pids().await?, pids, "an upgrade is nothing to a pod");

    let said = dpkg(&scenario.node, &["--remove", "winddown"]).await?;
    println!("{said}");
    for pod in &scenario.pods {
        assert!(said.contains(&format!("default/{}", pod.name)), "{} is not named", pod.name);
    }
    assert_eq!(scenario.untouched_pids().await?, pids, "a removal terminates no pod");
    assert!(!scenario.lock_is_listed().await, "nobody is left who would release the lock");
    let left = left_behind(&scenario.node, &bare).await?;
    let kept = ["/etc/winddown", "/var/lib/winddown", "/var/log/winddown"];
    assert_only(&left, &kept, "removal");

    // It is taken back: the same pods, not new ones.
    install(&scenario, &second).await?;
    scenario.node.run(&["systemctl", "enable", "--now", "winddown"]).await?;
    scenario.lock_is_back().await?;
    scenario.all_pods_are("Running").await?;
    assert_eq!(scenario.untouched_pids().await?, pids, "pods are adopted");

    scenario.node.run(&["winddown", "drain"]).await?;
    // As `winddown install --runtime systemd` does.
    let mask = "/etc/systemd/system/winddown.service.d/10-process-runtime.conf";
    scenario.node.run(&["sh", "-ec", "mkdir -p ${0%/*}; ln -s /dev/null $0", mask]).await?;
    let said = dpkg(&scenario.node, &["--purge", "winddown"]).await?;
    println!("{said}");
    assert!(!said.contains("go on running"), "nothing runs any more");
    assert!(said.contains("/etc/winddown/pods stays"));
    let left = left_behind(&scenario.node, &bare).await?;
    assert_only(&left, &["/etc/winddown", "/etc/winddown/pods"], "purge");
    assert!(!left.contains("/etc/winddown/config.yaml"), "purge takes the configuration");
    Ok(())
}

#[tokio::test]
async fn a_purge_deletes_nothing_that_is_mounted_and_no_secret_of_a_container() -> TestResult {
    let test = "a_purge_deletes_nothing_that_is_mounted_and_no_secret_of_a_container";
    let Some((scenario, deb)) = a_node_and_the_deb(test).await? else { return Ok(()) };
    let node = &scenario.node;
    install(&scenario, &deb).await?;
    let (precious, link) = ("/srv/precious/of-an-operator", "/var/lib/winddown/link");
    let (volume, secret) = ("/var/lib/winddown/volume of/a pod", "/run/winddown/volumes/uid/token");
    node.run(&["mkdir", "-p", "/srv/precious", volume, "/run/winddown/volumes/uid"]).await?;
    node.write(precious, "x", 0o644)?;
    node.write("/srv/other", "x", 0o644)?;
    node.run(&["ln", "-s", "/srv", link]).await?;
    // /run is the node's own, in memory.
    node.run(&["sh", "-c", &format!("echo s3cret >{secret}; echo x >/run/winddown/record.json")])
        .await?;
    node.run(&["mount", "--bind", "/srv/precious", volume]).await?;

    for purge in [&["winddown", "uninstall", "--purge"][..], &["dpkg", "--purge", "winddown"]] {
        let refused = node.exec(purge, DPKG).await?;
        let said = refused.stdout + &refused.stderr;
        println!("{said}");
        assert!(!refused.status.success(), "{purge:?}: {said}");
        assert!(said.contains("is mounted below /var/lib/winddown"), "{said}");
        assert_eq!(node.read(precious)?, "x", "{purge:?}");
        assert!(node.host_path(link).is_symlink(), "nothing was begun: {purge:?}");
    }
    // The same command goes on from there.
    node.run(&["umount", volume]).await?;
    let said = dpkg(node, &["--purge", "winddown"]).await?;
    println!("{said}");
    assert!(said.contains("/run/winddown stays until the next boot"), "{said}");
    assert!(!node.host_path("/var/lib/winddown").exists());
    assert_eq!(node.read(precious)?, "x");
    assert_eq!(node.read("/srv/other")?, "x", "links are not followed");
    let left = node.run(&["find", "/run/winddown", "-type", "f"]).await?;
    assert_eq!(left, format!("{secret}\n"));
    Ok(())
}

/// The package manager has stopped the agent by then, and the package can be installed again.
#[tokio::test]
async fn a_purge_is_refused_while_pods_run_wherever_their_logs_are() -> TestResult {
    let test = "a_purge_is_refused_while_pods_run_wherever_their_logs_are";
    let chosen = format!("{CONFIG}podLogsDir: '/var/log/pods'  # for a shipper\n");
    for (logs, config) in [("/var/log/winddown", CONFIG), ("/var/log/pods", &chosen)] {
        let Some((mut scenario, deb)) = a_node_and_the_deb(test).await? else { return Ok(()) };
        install(&scenario, &deb).await?;
        let unit = "/etc/systemd/system/winddown.service.d";
        scenario.node.run(&["mkdir", "-p", logs, unit]).await?;
        let writes = format!("[Service]\nReadWritePaths={logs}\n");
        scenario.node.write(&format!("{unit}/logs.conf"), &writes, 0o644)?;
        scenario.node.run(&["systemctl", "daemon-reload"]).await?;
        let pids = run_pods_with(&mut scenario, config).await?;

        let refused = scenario.node.exec(&["dpkg", "--purge", "winddown"], DPKG).await?;
        println!("{}{}", refused.stdout, refused.stderr);
        assert!(!refused.status.success(), "{logs}");
        assert!(refused.stderr.contains(&format!("pods run and write to {logs}")), "{logs}");

        install(&scenario, &deb).await?;
        scenario.node.run(&["systemctl", "restart", "winddown"]).await?;
        scenario.lock_is_back().await?;
        scenario.all_pods_are("Running").await?;
        assert_eq!(scenario.untouched_pids().await?, pids, "pods are adopted");
    }
    Ok(())
}

#[tokio::test]
async fn a_purge_empties_a_mount_point_and_keeps_it() -> TestResult {
    let test = "a_purge_empties_a_mount_point_and_keeps_it";
    let Some((scenario, deb)) = a_node_and_the_deb(test).await? else { return Ok(()) };
    let node = &scenario.node;
    install(&scenario, &deb).await?;
    let disks = ["/var/lib/winddown", "/var/log/winddown"];
    for disk in disks {
        let fill = "mkdir -p $0; mount -t tmpfs disk $0; mkdir $0/.pods; echo x >$0/.pods/record";
        node.run(&["sh", "-ec", fill, disk]).await?;
    }
    let said = dpkg(node, &["--purge", "winddown"]).await?;
    for disk in disks {
        assert!(said.contains(&format!("{disk} is empty and stays")), "{said}");
        assert_eq!(node.run(&["find", disk, "-mindepth", "1"]).await?, "");
        node.run(&["mountpoint", "--quiet", disk]).await?;
    }
    Ok(())
}

/// The package is removed, the tarball takes over its pods, and only then what the package left is purged.
#[tokio::test]
async fn a_purge_takes_nothing_from_a_tarballs_installation_that_came_later() -> TestResult {
    let test = "a_purge_takes_nothing_from_a_tarballs_installation_that_came_later";
    let Some((scenario, deb)) = a_node_and_the_deb(test).await? else { return Ok(()) };
    let said = purge_behind_a_tarball(scenario, &[&deb]).await?;
    assert!(said.contains("the configuration stays, too"), "{said}");
    Ok(())
}

/// The configuration was dpkg's once, which removes it before the package is asked.
#[tokio::test]
async fn a_purge_gives_a_tarballs_installation_the_configuration_back_that_dpkg_removes()
-> TestResult {
    let test = "a_purge_gives_a_tarballs_installation_the_configuration_back_that_dpkg_removes";
    let Some((scenario, deb)) = a_node_and_the_deb(test).await? else { return Ok(()) };
    let made = tempfile::tempdir()?;
    let old = with_conffile(&deb, made.path())?;
    let said = purge_behind_a_tarball(scenario, &[&old, &deb]).await?;
    assert!(said.contains("the one that was last in force is there again"), "{said}");
    Ok(())
}

/// A node without winddown, and the package. Returns none, after reporting why, if they cannot be had.
async fn a_node_and_the_deb(test: &str) -> TestResult<Option<(Scenario, PathBuf)>> {
    if !programs_are_here(test, &[("dpkg-deb", "dpkg"), ("strip", "binutils")])? {
        return Ok(None);
    }
    let Some(base) = base_or_skip(test, Flavour::Plain).await? else { return Ok(None) };
    let deb = Packages::the_deb().await?;
    Ok(Some((Scenario { node: Node::boot(&base).await?, pods: Vec::new() }, deb)))
}

/// Installs the packages one over the other, then the tarball's programs, and returns what the purge says.
async fn purge_behind_a_tarball(mut scenario: Scenario, debs: &[&Path]) -> TestResult<String> {
    for deb in debs {
        install(&scenario, deb).await?;
    }
    let pids = run_pods(&mut scenario).await?;
    dpkg(&scenario.node, &["--remove", "winddown"]).await?;
    scenario.node.install_programs(&programs().await?, "/srv/new")?;
    scenario.node.run(&["/srv/new/winddown", "install", "--start"]).await?;
    scenario.lock_is_back().await?;
    scenario.all_pods_are("Running").await?;

    let said = dpkg(&scenario.node, &["--purge", "winddown"]).await?;
    assert!(said.contains("/etc/systemd/system/winddown.service uses them"), "{said}");
    assert_eq!(scenario.node.read("/etc/winddown/config.yaml")?, CONFIG);
    scenario.node.run(&["systemctl", "restart", "winddown"]).await?;
    scenario.lock_is_back().await?;
    scenario.all_pods_are("Running").await?;
    assert_eq!(scenario.untouched_pids().await?, pids, "pods are adopted");
    Ok(said)
}

/// `install --companion` replaces the default that the package brings, and versions have different defaults.
#[tokio::test]
async fn an_upgrade_asks_nothing_of_a_configuration_that_it_finds_and_purge_removes_it()
-> TestResult {
    let test = "an_upgrade_asks_nothing_of_a_configuration_that_it_finds_and_purge_removes_it";
    let Some((scenario, deb)) = a_node_and_the_deb(test).await? else { return Ok(()) };
    let node = &scenario.node;
    let (config, shipped) = ("/etc/winddown/config.yaml", "/usr/share/winddown/config.yaml");
    install(&scenario, &deb).await?;
    assert_eq!(node.read(config)?, node.read(shipped)?, "a node without one gets the default");
    node.run(&["rm", config]).await?;
    install(&scenario, &deb).await?;
    assert!(!node.host_path(config).exists(), "nor does it come back once it was removed");
    dpkg(node, &["--purge", "winddown"]).await?;

    let made = tempfile::tempdir()?;
    install(&scenario, &with_conffile(&deb, made.path())?).await?;
    node.write(config, CONFIG, 0o644)?;
    for _ in 0..2 {
        install(&scenario, &deb).await?;
        assert_eq!(node.read(config)?, CONFIG);
        assert_eq!(node.run(&["ls", "/etc/winddown"]).await?, "config.yaml\npods\n");
        let state = node.run(&["dpkg-query", "-f", "${db:Status-Abbrev}", "-W", "winddown"]);
        assert_eq!(state.await?, "ii ");
    }
    dpkg(node, &["--purge", "winddown"]).await?;
    assert!(!node.host_path("/etc/winddown").exists(), "purge takes the configuration");
    Ok(())
}

/// Makes a package whose configuration is dpkg's, with another default than the present one.
fn with_conffile(deb: &Path, dir: &Path) -> TestResult<PathBuf> {
    let make = "dpkg-deb --raw-extract \"$1\" \"$2/old\" && cd \"$2/old\" && mkdir -p etc/winddown && \
        rm -f usr/share/winddown/config.yaml && echo '# Another default' >etc/winddown/config.yaml && \
        echo /etc/winddown/config.yaml >DEBIAN/conffiles && \
        dpkg-deb --root-owner-group -Znone --build . \"$2/old.deb\"";
    text_of(Command::new("sh").args(["-ec", make, "sh"]).arg(deb).arg(dir))?;
    Ok(dir.join("old.deb"))
}

/// Gives the agent its operator's configuration and pods, and says which processes they are.
pub(super) async fn run_pods(scenario: &mut Scenario) -> TestResult<Vec<u32>> {
    run_pods_with(scenario, CONFIG).await
}

async fn run_pods_with(scenario: &mut Scenario, config: &str) -> TestResult<Vec<u32>> {
    scenario.pods = seven_pods();
    scenario.node.write("/etc/winddown/config.yaml", config, 0o644)?;
    install_pods(&scenario.node, &scenario.pods)?;
    scenario.node.run(&["systemctl", "restart", "winddown"]).await?;
    scenario.wait_started(scenario.pods.len()).await?;
    scenario.lock_is_back().await?;
    scenario.untouched_pids().await
}

/// The next version comes: another agent, never a moment without a lock, and the same configuration.
pub(super) async fn upgrade(
    scenario: &Scenario,
    install: impl AsyncFnOnce() -> TestResult,
) -> TestResult {
    let agent = scenario.status().await?["node"]["pid"].clone();
    watch_lock(&scenario.node).await?;
    install().await?;
    scenario.another_agent_than(&agent).await?;
    assert_eq!(gaps_in_lock(&scenario.node).await?, "", "at these times logind had no lock");
    assert_eq!(scenario.node.read("/etc/winddown/config.yaml")?, CONFIG);
    Ok(())
}

/// Installs the package or its next version as an operator does.
async fn install(scenario: &Scenario, deb: &Path) -> TestResult {
    println!("{}", dpkg_file(&scenario.node, &["--install"], deb).await?);
    Ok(())
}

/// Watches over logind's list of locks from now on, a hundred times a second. The new agent's lock is
/// taken before the old one goes, so that a look in between may have to be taken twice.
async fn watch_lock(node: &Node) -> TestResult {
    let watch = "\
        held() { grep --devices=skip --quiet --no-messages '^WHO=winddown' /run/systemd/inhibit/*; }\n\
        held && echo watching\n\
        while sleep 0.01; do held || held || date +%T.%N; done";
    node.write(WATCH, watch, 0o755)?;
    let log = format!("--property=StandardOutput=file:{GAPS}");
    node.run(&["systemd-run", "--unit=lock-watch", &log, "sh", WATCH]).await?;
    let watching = async || node.read(GAPS).is_ok_and(|text| text == "watching\n");
    node.wait_until("the watch over the lock", SOON, watching).await?;
    Ok(())
}

/// When there was no lock since [`watch_lock`]; empty if there always was one.
async fn gaps_in_lock(node: &Node) -> TestResult<String> {
    node.run(&["systemctl", "stop", "lock-watch"]).await?;
    let seen = node.read(GAPS)?;
    node.run(&["rm", GAPS, WATCH]).await?;
    Ok(seen.replace("watching\n", ""))
}

/// Every file and directory on the node's disk.
pub(super) async fn files(node: &Node) -> TestResult<BTreeSet<String>> {
    Ok(node.run(&["find", "/", "-xdev"]).await?.lines().map(str::to_owned).collect())
}

/// What is there and was not on the bare node, apart from what the node keeps for itself: the
/// package manager's notes, the journal, and what the test's pods write.
pub(super) async fn left_behind(
    node: &Node,
    bare: &BTreeSet<String>,
) -> TestResult<BTreeSet<String>> {
    let of_node = [
        "/var/lib/dpkg/",
        "/var/lib/rpm",
        "/var/log/dpkg.log",
        "/var/log/journal/",
        "/var/log/pods-under-test",
        "/usr/local/bin/pod-under-test",
        "/var/cache/",
        "/var/lib/systemd/catalog/",
        // Backups that systemd-sysusers makes, like every tool that edits these.
        "/etc/group-",
        "/etc/gshadow-",
        "/tmp/",
        "/var/tmp/",
    ];
    let now = files(node).await?;
    let new = now.difference(bare).filter(|path| !of_node.iter().any(|own| path.starts_with(own)));
    Ok(new.cloned().collect())
}

pub(super) fn assert_only(left: &BTreeSet<String>, kept: &[&str], what: &str) {
    let is_kept =
        |path: &str| kept.iter().any(|kept| path == *kept || path.starts_with(&format!("{kept}/")));
    let more: Vec<&String> = left.iter().filter(|path| !is_kept(path)).collect();
    assert!(more.is_empty(), "{what} leaves {more:#?}");
}
