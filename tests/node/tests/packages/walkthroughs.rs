//! The tutorials, typed into nodes: a single server, and nodes that are laid out as kubeadm, k3s and EKS do it.
//!
//! What is called kubelet and k3s there does nothing but run; their API server is out of reach.

use std::path::Path;

use winddown_apiserver::ApiServer;
use winddown_node_tests::packages::repository;
use winddown_node_tests::scenario::{TestResult, not_well};
use winddown_node_tests::{Flavour, Node, base_or_skip, programs};

use super::readme::{COMMAND, DISK, HOME, SUDO, commands, enter};
use crate::packages::page::{Block, Page};

const PAGE: &str = "docs/tutorials/beside-a-kubelet.md";
const STAND_IN: &str = "#!/bin/sh\nsleep infinity & wait\n";

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

#[tokio::test]
async fn a_single_server_does_what_its_walkthrough_says() -> TestResult {
    const PAGE: &str = "docs/tutorials/single-server.md";
    let test = "a_single_server_does_what_its_walkthrough_says";
    let Some(base) = base_or_skip(test, Flavour::Plain).await? else { return Ok(()) };
    let mut node = Node::create(&base).await?;
    node.add_disk(DISK).await?;
    node.write("/usr/local/bin/sudo", SUDO, 0o755)?;
    node.install_programs(&programs().await?, HOME)?;
    lay_out(&node, &repository().join("examples/node"), &Path::new(HOME).join("examples/node"))?;
    node.start().await?;
    let page = Page::read(&repository().join(PAGE));
    let server = |block: &&Block| block.words() == ["console", "ignore", "server"];
    let typed = page.blocks.iter().filter(server).flat_map(|block| commands(PAGE, block));
    let mut count = 0;
    for command in typed {
        println!("{} $ {}", command.at, command.line);
        enter(&mut node, &command).await.map_err(|error| format!("{}: {error}", command.at))?;
        count += 1;
    }
    assert!(count >= 10, "only {count} commands");
    let there = |path: &str| node.host_path(path).exists();
    assert!(!there("/etc/systemd/system/winddown.service"), "the unit is left");
    assert!(there("/etc/winddown/config.yaml"), "what stays is gone");
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
    // The stand-in does not say when it is ready.
    let drop_in = "/etc/systemd/system/k3s.service.d/stand-in.conf";
    node.write(drop_in, "[Service]\nType=simple\n", 0o644)?;
    node.write("/usr/local/bin/sudo", SUDO, 0o755)?;
    node.install_programs(&programs().await?, "/usr/local/bin")?;
    node.start().await?;
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
        if command.line.contains("enable --now winddown") {
            let locks = node.run(&["systemd-inhibit", "--list"]).await?;
            assert!(locks.contains("winddown"), "{locks}");
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

fn lay_out(node: &Node, from: &Path, to: &Path) -> TestResult {
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
