//! The same life with rpm: a node gets the package, a newer one, and loses it.
//!
//! The node is Debian with rpm beside its own package manager, and with the policy of Fedora and its
//! kin: nothing is enabled by its installation. Debian's packages are unknown to rpm, so that it is told
//! not to ask for dependencies.

use std::path::Path;

use winddown_node_tests::packages::{DPKG, Packages, are_here};
use winddown_node_tests::scenario::{Scenario, TestResult};
use winddown_node_tests::{Flavour, Node, base_or_skip};

use crate::packages::life::{ENABLED, assert_only, files, left_behind, run_pods, upgrade};

/// Directories that other packages of an rpm distribution have, and that this Debian lacks.
const OF_OTHERS: [&str; 4] = [
    "/usr/share/fish",
    "/usr/share/fish/vendor_completions.d",
    "/usr/share/licenses",
    "/usr/share/zsh/site-functions",
];

#[tokio::test]
async fn an_rpm_is_installed_upgraded_and_erased_without_harm_to_a_pod() -> TestResult {
    let test = "an_rpm_is_installed_upgraded_and_erased_without_harm_to_a_pod";
    if !are_here(test, &[("strip", "binutils")])? {
        return Ok(());
    }
    let Some(base) = base_or_skip(test, Flavour::Rpm).await? else { return Ok(()) };
    let packages = (Packages::make("1", &["rpm"]).await?, Packages::make("2", &["rpm"]).await?);
    let mut scenario = Scenario { node: Node::boot(&base).await?, pods: Vec::new() };
    scenario.node.write("/etc/systemd/system-preset/99-default.preset", "disable *\n", 0o644)?;
    let bare = files(&scenario.node).await?;

    rpm(&scenario.node, &["--install"], Some(&packages.0.rpm()?)).await?;
    assert!(!scenario.node.host_path(ENABLED).exists(), "the installation enables nothing");
    scenario.node.run(&["systemctl", "enable", "--now", "winddown"]).await?;
    scenario.lock_is_back().await?;
    println!("{}", scenario.text(&["version"]).await?);

    let pids = run_pods(&mut scenario).await?;
    let newer = packages.1.rpm()?;
    upgrade(&scenario, async || rpm(&scenario.node, &["--upgrade"], Some(&newer)).await.map(drop))
        .await?;
    assert_eq!(scenario.untouched_pids().await?, pids, "an upgrade is nothing to a pod");
    let changed = rpm(&scenario.node, &["--verify", "--nodeps", "--noscripts"], None).await;
    let changed = changed.err().map(|error| error.to_string()).unwrap_or_default();
    let changed: Vec<&str> = changed.lines().filter(|line| line.contains(" /")).collect();
    assert!(
        changed.iter().all(|line| line.contains(" c /etc/winddown/config.yaml")),
        "only the configuration is not as the package has it: {changed:#?}"
    );

    // As a part of a volume is, which the agent unmounts when its pod terminates.
    let volume = "/var/lib/winddown/volume";
    let mount = "mkdir $0; mount -t tmpfs none $0";
    scenario.node.run(&["sh", "-ec", mount, volume]).await?;
    let said = rpm(&scenario.node, &["--erase"], None).await?;
    println!("{said}");
    assert!(said.contains(&format!("umount {volume}")), "{said}");
    scenario.node.run(&["umount", volume]).await?;
    for pod in &scenario.pods {
        assert!(said.contains(&format!("default/{}", pod.name)), "{} is not named", pod.name);
    }
    assert_eq!(scenario.untouched_pids().await?, pids, "a removal terminates no pod");
    assert!(!scenario.lock_is_listed().await, "nobody is left who would release the lock");
    let left = left_behind(&scenario.node, &bare).await?;
    let others = OF_OTHERS.map(str::to_owned).into();
    let left = left.difference(&others).cloned().collect();
    let kept = ["/etc/winddown", "/var/lib/winddown", "/var/log/winddown", "/root/.rpmdb"];
    assert_only(&left, &kept, "the erasure");
    assert!(left.contains("/etc/winddown/config.yaml.rpmsave"), "the operator's words are kept");
    Ok(())
}

/// Does something with the package in this file, or with the one that is installed.
pub(super) async fn rpm(node: &Node, what: &[&str], file: Option<&Path>) -> TestResult<String> {
    let path = "/var/tmp/winddown.rpm";
    let mut args = [&["rpm"], what].concat();
    if let Some(file) = file {
        node.install(file, path)?;
        args.extend(["--nodeps", path]);
    } else {
        args.push("winddown");
    }
    let output = node.exec(&args, DPKG).await?;
    node.run(&["rm", "-f", path]).await?;
    let said = output.stdout + &output.stderr;
    match output.status.success() {
        true => Ok(said),
        false => Err(format!("{}: {}\n{said}", args.join(" "), output.status).into()),
    }
}
