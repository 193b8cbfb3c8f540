//! The tutorials, typed into nodes: a single server with the tarball, units and a Quadlet file that become pods, and
//! nodes that are laid out as kubeadm, k3s and EKS do it.
//!
//! What is called kubelet, k3s and podman there does nothing but run; the API server of the first two is out of reach.

use std::path::Path;

use winddown_apiserver::ApiServer;
use winddown_node_tests::packages::repository;
use winddown_node_tests::scenario::{TestResult, not_well};
use winddown_node_tests::typed::{COMMAND, HOME, Typed, enter, enter_all, prepare};
use winddown_node_tests::{Flavour, Node, base_or_skip, programs};

use super::readme::{DISK, commands, save_files};
use crate::page::Page;
use crate::typed_pages::marked;

const PAGE: &str = "docs/tutorials/beside-a-kubelet.md";
/// Runs no pods, but holds a shutdown lock, as a kubelet does, unless its own graceful shutdown is off.
const STAND_IN: &str = "#!/bin/sh
if grep -qsE '^ *\"?shutdownGracePeriod\"?: \"?0s' /var/lib/kubelet/config.yaml /etc/kubernetes/kubelet/config.json \
    /var/lib/rancher/k3s/agent/etc/kubelet.conf.d/99-winddown.conf; then
    sleep infinity & wait
fi
printf '[Login]\\nInhibitDelayMaxSec=150\\n' >/etc/systemd/logind.conf.d/99-kubelet.conf
systemctl kill -s HUP systemd-logind
# Some kubelets' units leave children alone when they stop: the lock is the kubelet's own.
trap 'kill $!' TERM
systemd-inhibit --who=kubelet --what=shutdown --mode=delay --why=pods sleep infinity & wait
";

#[tokio::test]
async fn a_node_of_kubeadm_does_what_its_walkthrough_says() -> TestResult {
    let test = "a_node_of_kubeadm_does_what_its_walkthrough_says";
    walk(test, "kubeadm", "/etc/kubernetes/kubelet.conf").await
}

#[tokio::test]
async fn a_node_of_k3s_does_what_its_walkthrough_says() -> TestResult {
    let test = "a_node_of_k3s_does_what_its_walkthrough_says";
    walk(test, "k3s", "/var/lib/rancher/k3s/agent/kubelet.kubeconfig").await
}

#[tokio::test]
async fn a_node_of_eks_does_what_its_walkthrough_says() -> TestResult {
    let test = "a_node_of_eks_does_what_its_walkthrough_says";
    walk(test, "EKS", "/var/lib/kubelet/kubeconfig").await
}

/// What programs/packaging/build.sh writes into the tarball beside files of the repository and programs.
const UNPACKED: &str =
    "cd /root; ./winddown man --dir man; mkdir completions kubernetes monitoring rbac
./winddown completions bash >completions/winddown.bash
./winddown completions fish >completions/winddown.fish
./winddown completions zsh >completions/_winddown";

/// Types what the page of installations says of a tarball that was unpacked, whose manual has this `ending`.
pub(super) async fn manual_and_completions_are_put_in_place(
    node: &mut Node,
    ending: &str,
) -> TestResult {
    let typed = marked("docs/how-to/install.md", "server");
    assert!(typed.len() >= 4, "only {} commands", typed.len());
    enter_all(node, &typed).await?;
    let complete = ". /usr/share/bash-completion/completions/winddown; complete -p winddown";
    node.run(&["bash", "-ec", complete]).await?;
    for page in ["man1/winddown.1", "man5/winddown.yaml.5", "man8/winddownd.8"] {
        let path = node.host_path("/usr/local/share/man").join(format!("{page}{ending}"));
        assert!(path.is_file(), "man does not find {page}");
    }
    Ok(())
}

#[tokio::test]
async fn a_single_server_does_what_its_walkthrough_says() -> TestResult {
    let test = "a_single_server_does_what_its_walkthrough_says";
    let Some(base) = base_or_skip(test, Flavour::Plain).await? else { return Ok(()) };
    let mut node = Node::create(&base).await?;
    node.add_disk(DISK).await?;
    node.install_programs(&programs().await?, HOME)?;
    node.install(
        &repository().join("programs/packaging/catalog/winddown.catalog"),
        "/root/winddown.catalog",
    )?;
    lay_out(
        &node,
        &repository().join("docs/examples/node"),
        &Path::new(HOME).join("docs/examples/node"),
    )?;
    node.start().await?;
    prepare(&node)?;
    node.run(&["sh", "-ec", UNPACKED]).await?;
    manual_and_completions_are_put_in_place(&mut node, "").await?;

    let mut typed = marked("docs/tutorials/quick-start.md", "server");
    assert!(typed.len() >= 10, "only {} commands", typed.len());
    let is_end = |command: &Typed| command.line == "sudo winddown drain";
    let end = typed.iter().position(is_end).ok_or("nothing is rolled back")?;
    let roll_back = typed.split_off(end);
    enter_all(&mut node, &typed).await?;
    enter_all(&mut node, &marked("docs/reference/logs.md", "server")).await?;
    enter_all(&mut node, &roll_back).await?;
    let there = |path: &str| node.host_path(path).exists();
    assert!(!there("/etc/systemd/system/winddown.service"), "the unit is left");
    assert!(there("/etc/winddown/config.yaml"), "what stays is gone");
    Ok(())
}

/// The service that moves.
const ORDERS: &str = "#!/bin/sh\nsleep infinity & trap 'kill $!; exit 0' TERM; wait\n";
const ORDERS_UNIT: &str = "[Service]\nExecStart=/usr/local/bin/orders --listen 8080\nEnvironment=LOG=info\n\
    User=998\nGroup=998\nMemoryMax=512M\nCPUQuota=100%\nTimeoutStopSec=45\n\
    [Install]\nWantedBy=multi-user.target\n";

#[tokio::test]
async fn a_unit_becomes_a_pod_and_a_unit_again() -> TestResult {
    let test = "a_unit_becomes_a_pod_and_a_unit_again";
    let Some(base) = base_or_skip(test, Flavour::Plain).await? else { return Ok(()) };
    let mut node = Node::create(&base).await?;
    node.add_disk(DISK).await?;
    node.write("/usr/local/bin/orders", ORDERS, 0o755)?;
    node.write("/etc/systemd/system/orders.service", ORDERS_UNIT, 0o644)?;
    node.install_programs(&programs().await?, HOME)?;
    save_files(&node)?;
    node.start().await?;
    prepare(&node)?;
    // As who wrote it there is not root, and root runs what a manifest says.
    node.run(&["sh", "-c", "chown 1000 /root/orders.yaml"]).await?;
    node.run(&["systemctl", "enable", "--now", "orders"]).await?;
    node.run(&["/root/winddown", "install", "--start"]).await?;
    let typed = marked("docs/how-to/migrate.md", "server");
    assert!(typed.len() >= 7, "only {} commands", typed.len());
    for command in &typed {
        enter(&mut node, command).await.map_err(|error| format!("{}: {error}", command.at))?;
        if command.line.ends_with(" orders.yaml /etc/winddown/pods/") {
            let owner = node.run(&["stat", "-c", "%u", "/etc/winddown/pods/orders.yaml"]).await?;
            assert_eq!(owner.trim(), "0", "{}", command.line);
        }
    }
    node.run(&["systemctl", "is-active", "orders"]).await?;
    node.run(&["systemctl", "is-enabled", "orders"]).await?;
    Ok(())
}

/// What `quadlet` of podman 5.4.2 (Debian 13) makes of `web.container`.
const WEB_UNIT: &str = include_str!("walkthroughs/web.service");
const WEB_FILE: &str = include_str!("walkthroughs/web.container");
/// In place of podman's generator.
const GENERATOR: &str =
    "#!/bin/sh\n[ ! -e /etc/containers/systemd/web.container ] || cp /root/web.service \"$1/\"\n";
const PODMAN: &str =
    "#!/bin/sh\n[ \"$1\" = run ] || exit 0\nsystemd-notify --ready\nsleep infinity & wait\n";
/// A container that does nothing, under the name that the page has.
const TAG: [&str; 6] = [
    "ctr",
    "--namespace=k8s.io",
    "images",
    "tag",
    "registry.k8s.io/pause:3.6",
    "docker.io/library/httpd:2.4",
];

#[tokio::test]
async fn a_node_with_containerd_does_what_the_pages_say_and_takes_a_quadlet_unit() -> TestResult {
    let test = "a_node_with_containerd_does_what_the_pages_say_and_takes_a_quadlet_unit";
    let Some(base) = base_or_skip(test, Flavour::Containerd).await? else { return Ok(()) };
    let mut node = Node::create(&base).await?;
    node.configure_containerd()?;
    node.install_programs(&programs().await?, HOME)?;
    save_files(&node)?;
    for (path, text, mode) in [
        ("/etc/containers/systemd/web.container", WEB_FILE, 0o644),
        ("/root/web.service", WEB_UNIT, 0o644),
        ("/etc/systemd/system-generators/podman-system-generator", GENERATOR, 0o755),
        ("/usr/bin/podman", PODMAN, 0o755),
        ("/srv/web/index.html", "", 0o644),
    ] {
        node.write(path, text, mode)?;
    }
    node.start().await?;
    prepare(&node)?;
    node.import_images().await?;
    node.run(&TAG).await?;
    node.run(&["systemctl", "start", "web"]).await?;
    // What a package does, whose runtime is the default.
    node.run(&["/root/winddown", "install", "--runtime", "process", "--start"]).await?;
    // Images lie on the host's disk, which may be as full as it likes.
    let any = "/fs\\.[a-zA-Z]*: [0-9]*%$/d";
    node.run(&["sed", "-i", any, "/etc/winddown/config.yaml"]).await?;
    for page in ["docs/how-to/install.md", "docs/how-to/cri-o.md", "docs/how-to/migrate.md"] {
        let typed = marked(page, "runtime");
        assert!(typed.len() >= 2, "{page}: only {} commands", typed.len());
        enter_all(&mut node, &typed).await?;
    }
    node.run(&["systemctl", "is-active", "web"]).await?;
    Ok(())
}

/// Types the blocks below that heading, into a node that has what belongs to it.
async fn walk(test: &str, heading: &str, kubeconfig: &str) -> TestResult {
    let Some(base) = base_or_skip(test, Flavour::Plain).await? else { return Ok(()) };
    let mut node = Node::create(&base).await?;
    let laid_out = repository().join("programs/tests/data/kubelets").join(heading.to_lowercase());
    lay_out(&node, &laid_out, Path::new("/"))?;
    let server = ApiServer::start().await?;
    node.write(kubeconfig, server.kubeconfig(), 0o600)?;
    for program in ["/usr/bin/kubelet", "/usr/local/bin/k3s", "/usr/sbin/iptables"] {
        let text = if program.ends_with("iptables") { "#!/bin/sh\n" } else { STAND_IN };
        node.write(program, text, 0o755)?;
    }
    // The file makes the folder; a folder alone would be made in the root that all nodes share.
    node.write("/etc/systemd/logind.conf.d/00-empty.conf", "", 0o644)?;
    // The stand-in does not say when it is ready.
    let drop_in = "/etc/systemd/system/k3s.service.d/stand-in.conf";
    node.write(drop_in, "[Service]\nType=simple\n", 0o644)?;
    node.install_programs(&programs().await?, "/usr/local/bin")?;
    node.start().await?;
    prepare(&node)?;
    let unit = if heading == "k3s" { "k3s" } else { "kubelet" };
    node.run(&["systemctl", "start", unit]).await?;

    let page = Page::read(&repository().join(PAGE));
    let typed: Vec<_> = page
        .blocks
        .iter()
        .filter(|block| block.heading == heading)
        .flat_map(|b| commands(PAGE, b))
        .collect();
    assert!(typed.len() >= 6, "only {} commands", typed.len());
    for command in &typed {
        println!("{} $ {}", command.at, command.line);
        if let Err(error) = enter(&mut node, command).await {
            let journal = node.journal(&["--unit=winddown", "--lines=20"]).await?;
            return Err(format!("{}: {error}\n{journal}", command.at).into());
        }
        if command.line.contains("systemctl restart winddown") {
            let locks = node.run(&["systemd-inhibit", "--list"]).await?;
            assert!(locks.contains("winddown"), "{locks}");
        }
        if command.line.starts_with("winddown doctor") {
            let said = node.exec(&["winddown", "doctor", "-o", "json"], COMMAND).await?.stdout;
            let said = serde_json::from_str(&said)?;
            let of_the_installation =
                ["unit", "boot", "order", "stop-time", "scopes", "kubelet", "config"];
            for finding in not_well(&said) {
                let id = finding["id"].as_str().unwrap_or_default();
                assert!(!of_the_installation.contains(&id), "{finding:#}");
            }
        }
    }
    for gone in ["/etc/winddown", "/etc/systemd/system/winddown.service", "/usr/bin/winddownd"] {
        assert!(!node.host_path(gone).exists(), "{gone} is left");
    }
    node.run(&["systemctl", "is-active", unit]).await?;
    Ok(())
}

pub(super) fn lay_out(node: &Node, from: &Path, to: &Path) -> TestResult {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type()?.is_dir() {
            true => lay_out(node, &from, &to)?,
            false => node.write(&to.display().to_string(), std::fs::read(from)?, 0o644)?,
        }
    }
    Ok(())
}
