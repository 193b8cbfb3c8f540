//! README's "Install", typed into a node of kubeadm that has the package: the way for such a node, and the way that is
//! not for it. Whoever ends the pods has as much time after each command as before it.
//!
//! What is called kubelet reads its grace periods when it starts and holds a shutdown lock for as long, as a kubelet
//! does; it runs no pods.

use std::time::Duration;

use serde_json::Value;
use winddown_apiserver::ApiServer;
use winddown_node_tests::packages::{Packages, are_here, programs_are_here, repository};
use winddown_node_tests::scenario::{TestResult, not_well};
use winddown_node_tests::typed::{COMMAND, HOME, Typed, enter, prepare};
use winddown_node_tests::{Flavour, Node, Recipe, base_or_skip};

use super::readme::{DISK, commands};
use super::rpm::rpm;
use super::walkthroughs::lay_out;
use crate::page::Page;

/// The kubelet's grace in the layout of kubeadm, in seconds.
const GRACE: f64 = 90.0;
/// How long it may take until the agent has looked at the kubelet again.
const LOOKED: Duration = Duration::from_secs(10);

const KUBELET: &str = "#!/bin/sh
if grep -q '^shutdownGracePeriod: 0s' /var/lib/kubelet/config.yaml; then
    sleep infinity & wait
fi
exec systemd-inhibit --who=kubelet --what=shutdown --mode=delay --why=pods /usr/bin/kubelet-waits
";

/// A kubelet without pods releases its lock as soon as it hears of the shutdown.
const WAITS: &str = "#!/bin/sh
busctl --match=\"type='signal',member='PrepareForShutdown'\" monitor |
    { grep -qm1 'BOOLEAN true'; kill $PPID; }
";

/// The file by which a kubelet raises logind's delay.
const DELAY: &str = "/etc/systemd/logind.conf.d/99-kubelet.conf";

#[tokio::test]
async fn a_node_with_a_kubelet_keeps_its_grace_at_each_step_of_readme() -> TestResult {
    let test = "a_node_with_a_kubelet_keeps_its_grace_at_each_step_of_readme";
    let Some(mut node) = node_with_kubelet(test, Manager::Dpkg).await? else { return Ok(()) };
    let typed: Vec<_> = typed("Install").into_iter().chain(typed("With a kubelet")).collect();
    assert!(typed.len() >= 6, "only {} commands", typed.len());
    for command in &typed {
        println!("{} $ {}", command.at, command.line);
        enter(&mut node, command).await.map_err(|error| format!("{}: {error}", command.at))?;
        keeps_grace(&node, &command.line).await?;
    }
    is_protected_by_companion(&node).await
}

#[tokio::test]
async fn who_takes_readmes_other_way_on_such_a_node_is_told_and_led_back() -> TestResult {
    let test = "who_takes_readmes_other_way_on_such_a_node_is_told_and_led_back";
    let Some(mut node) = node_with_kubelet(test, Manager::Dpkg).await? else { return Ok(()) };
    for command in typed("Install").into_iter().chain(typed("Without Kubernetes")) {
        println!("{} $ {}", command.at, command.line);
        // Here the doctor finds a problem, and the page shows a machine without.
        if !command.line.contains("doctor") {
            enter(&mut node, &command).await.map_err(|error| format!("{}: {error}", command.at))?;
        }
        keeps_grace(&node, &command.line).await?;
    }
    let said = status(&node).await?;
    let verdict = &said["protection"];
    assert_eq!(verdict["reason"], "notACompanion", "{verdict:#}");
    let aloud = node.run(&["winddown", "status"]).await?;
    assert!(aloud.contains("protected  NO: a kubelet runs pods here"), "{aloud}");

    let found = problem(&node).await?;
    assert_eq!(found["fixId"], "notACompanion", "{found:#}");
    for id in ["notACompanion", "kubeletTerminatesPods"] {
        let found = problem(&node).await?;
        assert_eq!(found["fixId"], id, "{found:#}");
        for command in found["fix"].as_array().into_iter().flatten() {
            let command = command.as_str().ok_or("a fix is not a text")?;
            println!("# {command}");
            node.run(&["sh", "-c", command]).await?;
            keeps_grace(&node, command).await?;
        }
    }
    is_protected_by_companion(&node).await
}

/// What the package is of, and who removes it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manager {
    Dpkg,
    Rpm,
}

impl Manager {
    fn flavour(self) -> Flavour {
        match self {
            Self::Dpkg => Flavour::Plain,
            Self::Rpm => Flavour::Rpm,
        }
    }

    /// Puts the package where README has it, or on a node of rpm into place.
    async fn give_package(self, node: &Node) -> TestResult {
        if self == Self::Rpm {
            let packages = Packages::make("1", &["rpm"]).await?;
            return rpm(node, &["--install"], Some(&packages.rpm()?)).await.map(drop);
        }
        let deb = Packages::the_deb().await?;
        for command in self.installs() {
            let name = command.line.split_whitespace().find(|word| word.ends_with(".deb"));
            node.install(&deb, &format!("{HOME}/{}", name.ok_or("no package")?))?;
        }
        Ok(())
    }

    /// What README says to type before it asks for a kubelet.
    fn installs(self) -> Vec<Typed> {
        match self {
            Self::Dpkg => typed("Install"),
            Self::Rpm => Vec::new(),
        }
    }

    /// Removes the package, and returns what was said.
    async fn remove(self, node: &Node) -> TestResult<String> {
        let said = match self {
            Self::Dpkg => node.run(&["sh", "-c", "dpkg --remove winddown 2>&1"]).await?,
            Self::Rpm => rpm(node, &["--erase"], None).await?,
        };
        println!("{said}");
        Ok(said)
    }
}

#[tokio::test]
async fn a_companion_leaves_only_once_its_kubelet_ends_its_pods_itself() -> TestResult {
    let test = "a_companion_leaves_only_once_its_kubelet_ends_its_pods_itself";
    leaves_in_order(test, Manager::Dpkg).await
}

#[tokio::test]
async fn a_companion_of_an_rpm_leaves_only_once_its_kubelet_ends_its_pods_itself() -> TestResult {
    let test = "a_companion_of_an_rpm_leaves_only_once_its_kubelet_ends_its_pods_itself";
    leaves_in_order(test, Manager::Rpm).await
}

/// The way back, in the order in which `uninstall` says it, to the removal of the package.
async fn leaves_in_order(test: &str, manager: Manager) -> TestResult {
    let Some(node) = node_with_companion(test, manager).await? else { return Ok(()) };
    let refused =
        node.run(&["sh", "-c", "winddown uninstall 2>&1 && echo UNINSTALLED; true"]).await?;
    assert!(!refused.contains("UNINSTALLED"), "{refused}");
    keeps_grace(&node, "winddown uninstall").await?;
    let said = refused.split_once("First:").map_or("", |(_, steps)| steps);
    let steps = way_back(said)?;
    for command in steps.iter().map(String::as_str).chain(["winddown uninstall"]) {
        println!("# {command}");
        node.run(&["sh", "-c", command]).await?;
        if command.contains("restart") {
            kubelet_holds_lock(&node).await?;
        }
        keeps_grace(&node, command).await?;
    }
    // Both would terminate the pods, now or after the next boot.
    for (question, answer) in [("is-active", "inactive"), ("is-enabled", "disabled")] {
        let said = node.exec(&["systemctl", question, "winddown"], COMMAND).await?.stdout;
        assert_eq!(said.trim(), answer, "{question}");
    }
    assert!(!node.host_path("/var/lib/winddown/last-config.yaml").exists());
    let removed = manager.remove(&node).await?;
    assert!(!removed.contains("WARNING"), "{removed}");
    keeps_grace(&node, "the removal of the package").await
}

#[tokio::test]
async fn who_removes_the_package_of_a_companion_is_told_that_nothing_ends_the_pods() -> TestResult {
    let test = "who_removes_the_package_of_a_companion_is_told_that_nothing_ends_the_pods";
    is_told_at_removal(test, Manager::Dpkg).await
}

#[tokio::test]
async fn who_erases_the_rpm_of_a_companion_is_told_that_nothing_ends_the_pods() -> TestResult {
    let test = "who_erases_the_rpm_of_a_companion_is_told_that_nothing_ends_the_pods";
    is_told_at_removal(test, Manager::Rpm).await
}

/// A package manager is not refused, so that it is told what `uninstall` would have said.
async fn is_told_at_removal(test: &str, manager: Manager) -> TestResult {
    let Some(node) = node_with_companion(test, manager).await? else { return Ok(()) };
    let removed = manager.remove(&node).await?;
    let (_, steps) = removed.split_once("NOTHING ENDS THE KUBELET'S PODS").ok_or("not a word")?;
    for command in way_back(steps)? {
        node.run(&["sh", "-c", &command]).await?;
    }
    // A kubelet does this as it starts.
    node.run(&["systemctl", "kill", "-s", "HUP", "systemd-logind"]).await?;
    kubelet_holds_lock(&node).await
}

/// The commands of a way back; the fields to set are set with an editor that is typed as well.
fn way_back(said: &str) -> TestResult<Vec<String>> {
    let mut edits = String::new();
    let mut commands = Vec::new();
    for line in said.lines().map(str::trim) {
        if let Some((name, value)) = line.split_once(": ").filter(|_| line.starts_with("shutdown"))
        {
            edits.push_str(&format!(" -e 's/^{name}:.*/{name}: {value}/'"));
        } else if line.starts_with("mkdir ") || line.starts_with("systemctl ") {
            commands.push(line.to_owned());
        }
    }
    // The kubelet never had to raise logind's delay on this node.
    let wanted = ["mkdir -p /etc/systemd/logind.conf.d", "systemctl restart kubelet"];
    let is_wanted = |(command, wanted): (&String, &str)| command.starts_with(wanted);
    if edits.matches(" -e ").count() != 3 || !commands.iter().zip(wanted).all(is_wanted) {
        return Err(format!("no way back: {said}").into());
    }
    commands.insert(0, format!("sed -i{edits} /var/lib/kubelet/config.yaml"));
    Ok(commands)
}

/// A node on which README's way for such nodes was taken, and logind's delay is winddown's.
async fn node_with_companion(test: &str, manager: Manager) -> TestResult<Option<Node>> {
    let Some(mut node) = node_with_kubelet(test, manager).await? else { return Ok(None) };
    for command in manager.installs().into_iter().chain(typed("With a kubelet")) {
        enter(&mut node, &command).await.map_err(|error| format!("{}: {error}", command.at))?;
    }
    is_protected_by_companion(&node).await?;
    node.run(&["rm", DELAY]).await?;
    node.run(&["systemctl", "kill", "-s", "HUP", "systemd-logind"]).await?;
    keeps_grace(&node, "rm of the kubelet's file for logind").await?;
    Ok(Some(node))
}

async fn kubelet_holds_lock(node: &Node) -> TestResult {
    let holds = async || grace(node).await.is_ok_and(|grace| grace >= GRACE);
    node.wait_until("the kubelet's lock", Duration::from_secs(10), holds).await?;
    Ok(())
}

/// A node of kubeadm whose kubelet runs, with the package.
async fn node_with_kubelet(test: &str, manager: Manager) -> TestResult<Option<Node>> {
    let tools = [("dpkg-deb", "dpkg"), ("strip", "binutils")];
    let are_made = match manager {
        Manager::Dpkg => programs_are_here(test, &tools)?,
        Manager::Rpm => are_here(test, &tools)?,
    };
    if !are_made {
        return Ok(None);
    }
    let Some(node) = node_of_kubeadm(test, manager.flavour()).await? else { return Ok(None) };
    manager.give_package(&node).await?;
    start_kubelet(&node).await?;
    Ok(Some(node))
}

/// A node of kubeadm, before its kubelet has been started.
pub(super) async fn node_of_kubeadm(
    test: &str,
    flavour: impl Into<Recipe>,
) -> TestResult<Option<Node>> {
    let Some(base) = base_or_skip(test, flavour).await? else { return Ok(None) };
    let mut node = Node::create(&base).await?;
    node.add_disk(DISK).await?;
    let kubeadm = repository().join("programs/tests/data/kubelets/kubeadm");
    lay_out(&node, &kubeadm, std::path::Path::new("/"))?;
    node.write("/etc/kubernetes/kubelet.conf", ApiServer::start().await?.kubeconfig(), 0o600)?;
    node.write("/usr/bin/kubelet", KUBELET, 0o755)?;
    node.write("/usr/bin/kubelet-waits", WAITS, 0o755)?;
    node.write(DELAY, format!("[Login]\nInhibitDelayMaxSec={GRACE}\n"), 0o644)?;
    node.start().await?;
    prepare(&node)?;
    Ok(Some(node))
}

pub(super) async fn start_kubelet(node: &Node) -> TestResult {
    node.run(&["systemctl", "enable", "--now", "kubelet"]).await?;
    kubelet_holds_lock(node).await
}

/// What README says to type below this heading.
fn typed(heading: &str) -> Vec<Typed> {
    let page = Page::read(&repository().join("README.md"));
    let blocks = page.blocks.iter().filter(|block| block.heading == heading);
    let typed: Vec<_> = blocks.flat_map(|block| commands("README.md", block)).collect();
    assert!(!typed.is_empty(), "README has nothing to type below {heading}");
    typed
}

pub(super) async fn keeps_grace(node: &Node, command: &str) -> TestResult {
    let grace = grace(node).await?;
    if grace < GRACE {
        return Err(format!("after `{command}` a shutdown gives the pods {grace} s").into());
    }
    Ok(())
}

/// How long a shutdown now would wait for whoever ends the kubelet's pods, in seconds.
async fn grace(node: &Node) -> TestResult<f64> {
    let delay = [
        "busctl",
        "get-property",
        "org.freedesktop.login1",
        "/org/freedesktop/login1",
        "org.freedesktop.login1.Manager",
        "InhibitDelayMaxUSec",
    ];
    let delay = node.run(&delay).await?;
    let delay: f64 = delay.trim().trim_start_matches("t ").parse()?;
    let locks = node.run(&["systemd-inhibit", "--list", "--no-pager"]).await?;
    let is_listed = |who: &str| locks.lines().any(|line| line.starts_with(who));
    let by_kubelet = if is_listed("kubelet") { GRACE.min(delay / 1e6) } else { 0.0 };
    let mut by_winddown = 0.0;
    if is_listed("winddown") {
        // While the agent restarts, systemd keeps its lock, and the next agent terminates the pods.
        let mut answer = Value::Null;
        let answers = async || {
            answer = status(node).await.unwrap_or_default();
            !answer.is_null()
        };
        node.wait_until("the agent to answer", LOOKED, answers).await?;
        let status = answer;
        if status["protection"]["terminatedBy"] == "companion" {
            by_winddown = status["shutdownPlan"]["availableSeconds"].as_f64().unwrap_or(0.0);
        }
    }
    Ok(by_kubelet.max(by_winddown))
}

pub(super) async fn is_protected_by_companion(node: &Node) -> TestResult {
    let mut verdict = Value::Null;
    // The agent looks at the kubelet at most once in five seconds.
    let is_seen = async || {
        verdict = status(node).await.unwrap_or_default()["protection"].clone();
        verdict["state"] == "protected" && verdict["terminatedBy"] == "companion"
    };
    let seen = node.wait_until("the agent to protect the kubelet's pods", LOOKED, is_seen).await;
    seen.map_err(|error| format!("{error}\n{verdict:#}"))?;
    Ok(())
}

async fn status(node: &Node) -> TestResult<Value> {
    Ok(serde_json::from_str(&node.run(&["winddown", "status", "-o", "json"]).await?)?)
}

/// The doctor's finding on the kubelet, which is a problem.
async fn problem(node: &Node) -> TestResult<Value> {
    let said = node.exec(&["winddown", "doctor", "-o", "json"], COMMAND).await?.stdout;
    let said: Value = serde_json::from_str(&said)?;
    assert_eq!(said["protection"]["state"], "unprotected", "{said:#}");
    let found = not_well(&said).find(|finding| finding["id"] == "kubelet").cloned();
    let found = found.ok_or_else(|| format!("nothing is said of the kubelet: {said:#}"))?;
    assert_eq!(found["severity"], "problem", "{found:#}");
    Ok(found)
}
