//! Types what `winddown install` and `winddown uninstall` say to do next, as it is. Each kind of step is printed and typed.

use winddown_install::NextStepKind;
use winddown_node_tests::packages::repository;
use winddown_node_tests::scenario::{SOON, TestResult};
use winddown_node_tests::{Flavour, Node, base_or_skip, programs};

use super::LIMIT;

const KUBELETS_CONFIG: &str = "/var/lib/kubelet/config.yaml";

/// How the lines of a kind begin. A kind without a row does not compile, and one that no test prints fails.
const fn beginning(kind: NextStepKind) -> &'static str {
    match kind {
        NextStepKind::Enable => "systemctl enable winddown",
        NextStepKind::EnableInImage => "systemctl --root=/image enable winddown",
        NextStepKind::BeginCompanion => {
            "systemctl enable winddown && systemctl restart winddown && winddown wait --for=lock"
        }
        NextStepKind::Start => "systemctl start winddown",
        NextStepKind::Restart => "systemctl restart winddown ",
        NextStepKind::Drain => "winddown drain",
        NextStepKind::Undrain => "winddown undrain",
        NextStepKind::ChangeKubelet => "set these fields in /",
        NextStepKind::RaiseDelay => "mkdir -p /etc/systemd/logind.conf.d",
        NextStepKind::RestartKubelet => "systemctl restart kubelet",
        NextStepKind::Uninstall => "winddown uninstall",
        NextStepKind::ShowStatus => "winddown status",
        NextStepKind::AskDoctor => "winddown doctor",
    }
}

const OF_PLAIN_NODE: [NextStepKind; 6] = [
    NextStepKind::Enable,
    NextStepKind::Start,
    NextStepKind::Restart,
    NextStepKind::Drain,
    NextStepKind::Undrain,
    NextStepKind::ShowStatus,
];

/// The runtime is changed while a pod of the one before runs, and only the second installation is read.
const CHANGED_TWICE: &str = r#"
    echo '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"hostNetwork": true,
        "containers": [{"name": "a", "image": "host", "command": ["/bin/sleep", "1d"]}]}}' >/etc/winddown/pods/web.yaml
    until winddown status | grep -q Running; do sleep 0.1; done
    sed -i '/^runtime/d; 1a runtime: systemd' /etc/winddown/config.yaml
    winddown install --runtime systemd >&2; winddown install --runtime systemd"#;

#[tokio::test]
async fn what_an_installation_says_to_do_next_is_typed_as_it_is() -> TestResult {
    let test = "what_an_installation_says_to_do_next_is_typed_as_it_is";
    let Some(base) = base_or_skip(test, Flavour::Plain).await? else { return Ok(()) };
    let node = Node::boot(&base).await?;
    node.install_programs(&programs().await?, "/srv/new")?;
    let mut seen = Vec::new();
    for (install, last) in [
        ("/srv/new/winddown install --no-enable", "winddown status"),
        ("/srv/new/winddown install", "winddown status"),
        ("winddown install", "winddown status"),
        (CHANGED_TWICE, "winddown status"),
        ("winddown uninstall", ""),
    ] {
        let next = type_next(&node, install, "Next:\n", &mut seen).await?;
        assert_eq!(next.last().map_or("", String::as_str), last, "{install}");
    }
    assert_all(&seen, |kind| OF_PLAIN_NODE.contains(&kind));
    Ok(())
}

/// Where the page has the programs of such a machine.
const ELSEWHERE: &str = "/opt/winddown/bin/";

#[tokio::test]
async fn on_a_read_only_usr_the_command_of_the_page_and_what_it_says_next_are_typed() -> TestResult
{
    let test = "on_a_read_only_usr_the_command_of_the_page_and_what_it_says_next_are_typed";
    let Some(base) = base_or_skip(test, Flavour::Plain).await? else { return Ok(()) };
    let page = std::fs::read_to_string(repository().join("docs/how-to/install.md"))?;
    let row = page.lines().find(|line| line.starts_with("| a read-only `/usr`"));
    let command = row.and_then(|row| row.rsplit('`').nth(1)).ok_or("the page has no command")?;
    let node = Node::boot(&base).await?;
    node.install_programs(&programs().await?, "/srv/new")?;
    let protect = "mount --bind /usr /usr; mount -o remount,bind,ro /usr; ! touch /usr/x";
    node.run(&["sh", "-ec", protect]).await?;
    let refused = node.exec(&["/srv/new/winddown", "install"], LIMIT).await?;
    let way_out = command.rsplit_once(" --start").map_or("", |(command, _)| command);
    let option = way_out.split_once("install ").map_or("nothing", |(_, option)| option);
    assert!(refused.stderr.trim_end().ends_with(option), "{}", refused.stderr);
    assert!(!node.host_path("/var/lib/winddown").exists(), "it began");

    let in_folder = format!("cd /srv/new && {command}");
    let next = type_next(&node, &in_folder, "Next:\n", &mut Vec::new()).await?;
    assert_eq!(next, [format!("{ELSEWHERE}winddown status")]);
    node.run(&["systemctl", "is-active", "winddown"]).await?;
    Ok(())
}

#[tokio::test]
async fn what_a_companions_installation_says_to_do_next_is_typed_as_it_is() -> TestResult {
    let test = "what_a_companions_installation_says_to_do_next_is_typed_as_it_is";
    let Some((scenario, _api)) = super::kubelet(test).await? else { return Ok(()) };
    let (node, mut seen) = (&scenario.node, Vec::new());
    // With the kubelet's settings as they are before the steps change them.
    node.run(&["make-image"]).await?;
    type_next(node, "winddown install --companion", "Next:\n", &mut seen).await?;
    let in_image = "winddown install --companion --root /image";
    type_next(node, in_image, "Next:\n", &mut seen).await?;
    // Here the kubelet never had to raise logind's delay.
    let leave = "rm /etc/systemd/logind.conf.d/99-kubelet.conf; winddown uninstall 2>&1; true";
    let steps = type_next(node, leave, "First:\n", &mut seen).await?;
    assert_eq!(steps.iter().rev().nth(1).map(String::as_str), Some("winddown uninstall"));
    assert_all(&seen, |kind| !OF_PLAIN_NODE.contains(&kind));
    Ok(())
}

fn assert_all(seen: &[NextStepKind], of_node: impl Fn(NextStepKind) -> bool) {
    let missing = NextStepKind::ALL.iter().filter(|kind| of_node(**kind) && !seen.contains(kind));
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "printed and typed nowhere: {missing:?}");
}

/// Runs the command, types what it says behind `heading`, and returns that.
async fn type_next(
    node: &Node,
    command: &str,
    heading: &str,
    seen: &mut Vec<NextStepKind>,
) -> TestResult<Vec<String>> {
    let said = node.run(&["sh", "-c", command]).await?;
    println!("$ {command}\n{said}");
    let next = said.split_once(heading).map_or("", |(_, next)| next);
    // Below the steps an error says once more what to do with them.
    let next: Vec<&str> = next.lines().filter(|line| !line.starts_with("  next: ")).collect();
    for line in &next {
        let is_field = line.starts_with("      ");
        let line = line.trim();
        let name = line.trim_start_matches(ELSEWHERE);
        let kind = NextStepKind::ALL.iter().find(|kind| name.starts_with(beginning(**kind)));
        seen.extend(kind);
        let typed = match kind {
            _ if is_field => set(line),
            Some(NextStepKind::ChangeKubelet) => continue,
            Some(NextStepKind::Uninstall) => {
                let holds = async || {
                    let locks = node.run(&["systemd-inhibit", "--list", "--no-pager"]).await;
                    locks.is_ok_and(|locks| locks.lines().any(|line| line.starts_with("kubelet")))
                };
                node.wait_until("the kubelet's lock", SOON, holds).await?;
                line.to_owned()
            }
            Some(_) => line.to_owned(),
            None if line.starts_with("--force ") => continue,
            None => return Err(format!("{line}: no kind of step is printed so").into()),
        };
        let ran = node.exec(&["sh", "-c", &typed], LIMIT).await?;
        // The doctor has an exit code for what it finds.
        if !ran.status.success() && kind != Some(&NextStepKind::AskDoctor) {
            return Err(format!("{typed}: {} {}", ran.stdout, ran.stderr).into());
        }
    }
    Ok(next.into_iter().map(|line| line.trim().to_owned()).collect())
}

/// Sets a field of the kubelet's configuration, as an editor does.
fn set(field: &str) -> String {
    let name = field.split(':').next().unwrap_or_default();
    format!("sed -i '/^{name}:/d' {KUBELETS_CONFIG}; echo '{field}' >>{KUBELETS_CONFIG}")
}
