//! Types the commands that the texts of the program have: hints, errors, advice, the manuals.

use winddown_node_tests::TestPod;
use winddown_node_tests::packages::repository;
use winddown_node_tests::scenario::{Scenario, Setup, TestResult};
use winddown_node_tests::typed::{Typed, prepare};

use super::LIMIT;
use crate::printed::{self, Printed};

/// How a command is typed.
enum How {
    /// As it is.
    AsItIs,
    /// With what the program or the reader puts in.
    Filled(&'static str),
    /// The same, on a node with a kubelet.
    BesideKubelet(&'static str),
    /// By the test in this file, which has these words of it.
    Elsewhere(&'static str, &'static str),
}

#[allow(clippy::too_many_lines, reason = "one table")]
fn how(line: &str) -> How {
    use How::{AsItIs, BesideKubelet, Elsewhere, Filled};
    match line {
        "base64 -w0" => Filled("base64 -w0 /etc/hostname"),
        "df -h {words}; df -i {words}" => {
            Filled("df -h /var/lib/winddown; df -i /var/lib/winddown")
        }
        "du {count}-xd2 {mount}" => Filled("du -xd2 /run"),
        "groupdel winddown" => Filled("systemd-sysusers; groupdel winddown"),
        "hostnamectl set-hostname NAME" => Filled("hostnamectl set-hostname $(hostname)"),
        "mv {file} {file}.standalone" => {
            Filled("cp /root/kept.yaml a.yaml; mv a.yaml a.yaml.standalone")
        }
        "journalctl -u {unit} -e" => BesideKubelet("journalctl -u kubelet -e"),
        "namei -l" => Filled("namei -l /etc/winddown"),
        "mount -o remount,{size}=… {mount}" => Filled("mount -o remount,size=60% /run"),
        "sudo usermod -aG {group} $USER" => {
            Filled("systemd-sysusers; USER=root; sudo usermod -aG winddown $USER")
        }
        "systemctl edit winddown" => {
            Filled("SYSTEMD_EDITOR=/root/editor script -qec 'systemctl edit winddown' /dev/null")
        }
        "systemctl edit winddown-order.target" => Filled(
            "SYSTEMD_EDITOR=/root/editor script -qec 'systemctl edit winddown-order.target' /dev/null",
        ),
        "systemctl restart {unit}" => BesideKubelet("systemctl restart containerd.service"),
        "systemctl start kubelet" | "systemctl start {unit}" => {
            BesideKubelet("systemctl start kubelet")
        }
        "systemctl start poweroff.target" => {
            Elsewhere("tests/node/tests/ways/down.rs", "systemctl start --no-block poweroff.target")
        }
        "systemctl status '{unit}'" => Filled("systemctl status 'winddown.service'"),
        // A plain node has no manuals, which the unit names.
        "systemd-analyze verify winddown.service" => {
            Filled("systemd-analyze verify winddown.service # exit code 1")
        }
        "umount {}" => Filled("mount -t tmpfs none /mnt; umount /mnt"),
        "winddown --config {} doctor" => {
            Filled("winddown --config /etc/winddown/config.yaml doctor")
        }
        "winddown --socket SOCKET doctor" => {
            Filled("winddown --socket /run/winddown/winddown.sock doctor")
        }
        "winddown config check {word}" | "winddown config check {}" | "winddown config check FILE" => Filled("winddown config check /etc/winddown/config.yaml"),
        "cp {from} {to}" => {
            Filled("cp /var/lib/winddown/last-config.yaml /etc/winddown/config.yaml")
        }
        "winddown config default > {word}" | "winddown config default > {}" => {
            Filled("winddown config default > /etc/winddown/config.yaml")
        }
        "winddown drain --deadline" => Filled("winddown drain --deadline 90s"),
        "winddown install --runtime systemd" => {
            Filled(
                "sed -i '/^runtime/d; 1a runtime: systemd' /etc/winddown/config.yaml
                 winddown install --runtime systemd && winddown drain && systemctl restart winddown && winddown undrain &&
                 winddown config show --running | grep -x 'runtime: systemd' && cp /root/kept.yaml /etc/winddown/config.yaml &&
                 winddown install --runtime process && winddown drain && systemctl restart winddown && winddown undrain",
            )
        }
        "winddown drill" => Filled("winddown drill # exit code 5"),
        "winddown drill DIR" | "winddown drill --twice {}" => {
            Filled("winddown drill --twice /etc/winddown/pods")
        }
        "winddown install --companion" => BesideKubelet("winddown install --companion"),
        "winddown install --companion {flag} {first}" => {
            BesideKubelet("winddown install --companion --kubelet kubelet")
        }
        "winddown install --companion --kubeconfig FILE" => {
            BesideKubelet("winddown install --companion --kubeconfig /etc/kubernetes/kubelet.conf")
        }
        "winddown install --from FILE" => Filled(
            "cp /etc/winddown/config.yaml new.yaml; winddown install --from new.yaml --force",
        ),
        "winddown install --runtime {runtime}" => Filled("winddown install --runtime process"),
        "winddown describe POD" | "winddown describe {pod}" => Filled("winddown describe web-winddown-node"),
        "winddown logs POD" => Filled("winddown logs web-winddown-node"),
        "winddown logs {pod} -c {}" => {
            Filled("winddown logs web-winddown-node -c main")
        }
        "winddown kill POD" => Filled("winddown kill web-winddown-node"),
        "winddown kill POD --grace 1s" => Filled("winddown kill web-winddown-node --grace 1s"),
        "winddown plan eviction -f FILE -o json"
        | "winddown plan preemption -f FILE -o json"
        | "winddown plan shutdown -f FILE -o json" => {
            Elsewhere("programs/tests/schemas.rs", r#""-f", &file, "-o", "json""#)
        }
        "winddown plan shutdown -f {}" => Filled("winddown plan shutdown -f /etc/winddown/pods"),
        "winddown release {first}" => Elsewhere(
            "docs/reference/optional-features.md",
            "sudo winddown release batch/backup-edge-1",
        ),
        "winddown report --id ID" | "winddown report --id {}" => {
            Filled("winddown report --id latest")
        }
        "winddown report -o html > FILE" => Filled("winddown report -o html > report.html"),
        "winddown report -o json > FILE" => Filled("winddown report -o json > report.json"),
        "winddown status --watch" => Filled("timeout 3 winddown status --watch # exit code 124"),
        _ if line.starts_with("kubectl ") => {
            Elsewhere("tests/cluster/tests/real_apiserver/texts.rs", "strip_prefix(\"kubectl \")")
        }
        _ => AsItIs,
    }
}

/// The commands that are typed on a node; each once. A reader of a help text has the files of its examples.
fn steps() -> Vec<Printed> {
    let mut steps = printed::commands(repository());
    steps.retain(|step| !step.is_example);
    steps.sort_by(|a, b| a.line.cmp(&b.line));
    steps.dedup_by(|a, b| a.line == b.line);
    steps
}

#[test]
fn each_command_of_a_text_is_one_that_a_test_can_type() {
    let mut wrong = Vec::new();
    for Printed { at, line, .. } in steps() {
        match how(&line) {
            How::AsItIs => {
                let has_place = |c: char| "{}…".contains(c) || c.is_ascii_uppercase();
                let open =
                    line.split(' ').find(|word| word.len() > 2 && word.chars().all(has_place));
                if line.contains(['{', '…']) || open.is_some() {
                    wrong.push(format!("{at}: `{line}`: what is put in is not said"));
                }
            }
            How::Filled(_) | How::BesideKubelet(_) => {}
            How::Elsewhere(file, words) => {
                let text = std::fs::read_to_string(repository().join(file)).unwrap_or_default();
                if !text.contains(words) {
                    wrong.push(format!("{at}: `{line}`: {file} does not type {words:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn what_a_text_tells_to_type_is_typed_as_it_is() -> TestResult {
    let test = "what_a_text_tells_to_type_is_typed_as_it_is";
    let pods = vec![TestPod::new("web", 0, 100)];
    // So that there is a report of a start.
    let setup = Setup { more: "startGroupTimeout: 30s\n".to_owned(), ..Setup::default() };
    let Some(mut scenario) = Scenario::installed_as(test, pods, &setup).await? else {
        return Ok(());
    };
    prepare(&scenario.node)?;
    let editor = "#!/bin/sh\nprintf '[Unit]\\nAfter=containerd.service\\n' >$1\n";
    scenario.node.write("/root/editor", editor, 0o755)?;
    scenario.start().await?;
    scenario.node.run(&["cp", "/etc/winddown/config.yaml", "/root/kept.yaml"]).await?;
    // So that there is a report.
    scenario.node.shut_down(&["systemctl", "reboot"]).await?;
    scenario.node.wait_off(LIMIT).await?;
    scenario.node.start().await?;
    let mut wrong = Vec::new();
    for Printed { at, line, .. } in steps() {
        let line = match how(&line) {
            How::AsItIs if line == "systemctl reboot" => continue,
            How::AsItIs => line,
            How::Filled(line) => line.to_owned(),
            How::BesideKubelet(_) | How::Elsewhere(..) => continue,
        };
        scenario.node.run(&["sh", "-c", WELL]).await?;
        scenario.lock_is_back().await?;
        wrong.extend(type_one(&scenario, &at, line).await.err());
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n").into()),
    }
}

#[tokio::test]
async fn what_a_text_tells_to_type_beside_a_kubelet_is_typed_as_it_is() -> TestResult {
    let test = "what_a_text_tells_to_type_beside_a_kubelet_is_typed_as_it_is";
    let Some((scenario, _api)) = super::kubelet(test).await? else { return Ok(()) };
    for Printed { at, line, .. } in steps() {
        if let How::BesideKubelet(line) = how(&line) {
            type_one(&scenario, &at, line.to_owned()).await?;
        }
    }
    Ok(())
}

/// Leads a node back to where it is well.
const WELL: &str = "cp /root/kept.yaml /etc/winddown/config.yaml; systemd-sysusers
    winddown install --runtime process --force >/dev/null; systemctl daemon-reload
    systemctl enable --now winddown 2>/dev/null; systemctl reload winddown; winddown undrain 2>/dev/null; true";

/// Types a command, which succeeds or has the exit code that its comment names.
async fn type_one(scenario: &Scenario, at: &str, line: String) -> TestResult {
    println!("{at} $ {line}");
    let ran = scenario.node.exec(&["sh", "-c", &format!("cd /root; {line}")], LIMIT).await?;
    // The doctor has an exit code for what it finds.
    if line.ends_with("doctor") && ran.status.code().is_some_and(|code| code != 2) {
        return Ok(());
    }
    let typed = Typed { at: at.to_owned(), line, shown: Vec::new() };
    let said = ran.stdout + &ran.stderr;
    typed.judge(ran.status.code(), &said).map_err(|wrong| format!("{at}: {wrong}").into())
}
