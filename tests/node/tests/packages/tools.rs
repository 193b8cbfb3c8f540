//! A node that also has what Debian gives of the other programs on the pages: `curl`, `jq`, `man` and `skopeo`.
//!
//! What is called kubectl there is a stand-in: no network leads from an API server to the kubelet of a disposable node.

use std::path::Path;
use std::process::Command;

use winddown_node_tests::packages::repository;
use winddown_node_tests::scenario::TestResult;
use winddown_node_tests::typed::{COMMAND, HOME, Typed, enter, prepare};
use winddown_node_tests::{Flavour, Node, Suite, base_or_skip, programs};

use super::image::{IMAGE, made};
use super::readme::{DISK, typed};
use super::walkthroughs::lay_out;

/// A registry of images under the name that the page has, without a certificate.
const REGISTRY: &str = "echo 127.0.0.1 registry.example.com >>/etc/hosts
printf '[[registry]]\nlocation = \"registry.example.com\"\ninsecure = true\n' >/etc/containers/registries.conf.d/here.conf
cat >/root/registry.yaml <<'END'
version: 0.1
storage: {filesystem: {rootdirectory: /var/lib/images}}
http: {addr: '127.0.0.1:80'}
END
systemd-run --quiet docker-registry serve /root/registry.yaml
until curl --silent --fail http://registry.example.com/v2/; do sleep 0.1; done";

/// Runs on the node what the real one runs in the DaemonSet's pod. What it applies has to be there.
const KUBECTL: &str = r#"#!/bin/sh
case "$*" in
"-n kube-system exec ds/winddown -- "*) shift 5; exec "$@" ;;
"apply -k "*)
    [ $# = 3 ] || exit 1
    for name in $(sed -n 's/^- //p' "$3/kustomization.yaml"); do
        grep --recursive --quiet '^kind: ' "$3/$name" || exit 1
        echo "$3/$name configured"
    done ;;
*) exit 1 ;;
esac
"#;

/// What is to be seen after a command with these words, and by what.
const EFFECTS: [(&str, &str, &str); 6] = [
    ("kubectl apply", "", "programs/packaging/kubernetes/companion.yaml configured"),
    ("ds/winddown", "", "held"),
    ("skopeo", "curl --silent http://registry.example.com/v2/winddown/tags/list", "0.1.0"),
    ("/metrics", "", "\nkubelet_desired_pods{static=\"true\"} 0\n"),
    ("-X POST", "winddown status", "battery"),
    ("-X DELETE", "winddown status | grep battery || echo gone", "gone"),
];

#[tokio::test]
async fn a_node_with_curl_jq_man_and_skopeo_does_what_the_pages_say() -> TestResult {
    let test = "a_node_with_curl_jq_man_and_skopeo_does_what_the_pages_say";
    let recipe = Suite::Trixie.with(Flavour::Tools);
    let Some(base) = base_or_skip(test, recipe).await? else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    let mut script = Command::new(repository().join("programs/packaging/image.sh"));
    script.arg("--shared").arg("--programs").arg(programs().await?).arg("--out").arg(dir.path());
    let made = made(script).await?;
    let [image] = &made[..] else { return Err(format!("{made:?}").into()) };

    let mut node = Node::create(&base).await?;
    node.add_disk(DISK).await?;
    node.install_programs(&programs().await?, HOME)?;
    node.install(image, &format!("{HOME}/{IMAGE}"))?;
    node.write("/usr/local/bin/kubectl", KUBECTL, 0o755)?;
    for folder in ["cluster/rbac", "programs/packaging/kubernetes"] {
        lay_out(&node, &repository().join(folder), &Path::new(HOME).join(folder))?;
    }
    node.start().await?;
    prepare(&node)?;
    node.run(&["sh", "-ec", REGISTRY]).await?;
    node.run(&["/root/winddown", "install", "--runtime", "process", "--start"]).await?;

    let typed = typed("tools")?;
    let mut seen = 0;
    for command in &typed {
        println!("{} $ {}", command.at, command.line);
        enter(&mut node, command).await.map_err(|error| format!("{}: {error}", command.at))?;
        for (_, by, what) in EFFECTS.iter().filter(|(words, ..)| command.line.contains(words)) {
            let by = if by.is_empty() { command.line.as_str() } else { by };
            let by = format!("cd {HOME} && {by}");
            let said = node.exec(&["sh", "-c", &by], COMMAND).await?.stdout;
            assert!(said.contains(what), "{}: {by}: no {what:?} in\n{said}", command.at);
            seen += 1;
        }
    }
    assert_eq!(seen, EFFECTS.len(), "of {typed:#?}");
    manual_is_shown(&node).await?;
    unit_shows_its_manual(&node).await?;
    problems_are_found(&node, &typed).await
}

/// On a terminal, where man(1) shows it; col(1) takes away what makes letters bold.
async fn manual_is_shown(node: &Node) -> TestResult {
    for (page, title) in [("", "winddown(1)"), ("winddown.yaml", "winddown.yaml(5)")] {
        let command = format!(
            "GROFF_NO_SGR=1 MANPAGER='col -bx' script -qec 'winddown man {page}' /dev/null"
        );
        let said = node.run(&["sh", "-ec", &command]).await?;
        assert!(said.contains(title) && !said.contains("\n.SH"), "{page}: {said}");
    }
    Ok(())
}

/// The unit names its pages, which man(1) finds where the page of installations puts them.
async fn unit_shows_its_manual(node: &Node) -> TestResult {
    node.run(&["/root/winddown", "man", "--dir", "/usr/local/share/man"]).await?;
    for unit in ["winddown.service", "winddown.slice"] {
        let command = format!("GROFF_NO_SGR=1 MANPAGER='col -bx' systemctl help --no-pager {unit}");
        let said = node.run(&["sh", "-ec", &command]).await?;
        assert!(said.contains("winddown.service(8)"), "{unit}: {said}");
    }
    Ok(())
}

/// A healthy node has no problem that the line of the page prints. One without an agent has.
async fn problems_are_found(node: &Node, typed: &[Typed]) -> TestResult {
    let line = typed.iter().find(|command| command.line.contains("jq")).ok_or("no page uses jq")?;
    node.run(&["systemctl", "stop", "winddown"]).await?;
    let said = node.run(&["sh", "-ec", &line.line]).await?;
    println!("{}:\n{said}", line.at);
    assert!(said.lines().any(|line| line == "agent"), "{said}");
    assert!(said.contains("systemctl start winddown"), "{said}");
    Ok(())
}
