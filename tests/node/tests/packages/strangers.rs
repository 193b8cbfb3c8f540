//! A user of the node who starts a process by the name of a kubelet, with arguments of their own.

use std::path::Path;
use std::time::Duration;

use winddown_node_tests::packages::repository;
use winddown_node_tests::scenario::TestResult;
use winddown_node_tests::typed::{COMMAND, HOME};
use winddown_node_tests::{Flavour, Node, base_or_skip, programs};

use super::walkthroughs::lay_out;

/// Where every user may write, and the agent's sandbox can read.
const OPEN: &str = "/run/lock";
/// A link to a setuid program, which waits for a password: from its first instruction on it belongs to root, and its name
/// and arguments are those of whoever started it. What its arguments name is the user's: credentials with a program to
/// run, and a configuration whose path would be lines of text.
const SCRIPT: &str = r#"
d=$(mktemp -d /run/lock/guest.XXXXXX); chmod 755 "$d"
cat >"$d/kubeconfig" <<KUBECONFIG
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users:
- name: u
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: /bin/touch, args: [/run/proof]}
KUBECONFIG
n=$(printf '%s/a\ncontrolSocketGroup: guest\n# b' "$d"); mkdir -p "$(dirname "$n")"
printf 'apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nshutdownGracePeriod: 30s\n' >"$n"
mkfifo "$d/never" "$d/pipe"; ln -s "$(command -v su)" "$d/kubelet"
exec 0<>"$d/never"
exec "$d/kubelet" root -- "--kubeconfig=$d/kubeconfig" "--config=$1" "--container-runtime-endpoint=unix://$d/s"
"#;

/// Starts it as a user: in a service of the system, as a job of cron is, and as a process of a session is.
async fn start(node: &Node, config: &str) -> TestResult {
    let script = SCRIPT.replace("--config=$1", &format!("--config={config}"));
    node.write("/guest.sh", script, 0o755)?;
    for how in ["--unit=guest-job", "--unit=guest-login --scope --slice=user.slice"] {
        let run = format!(
            "systemd-run --quiet --collect --uid=65534 --gid=65534 {how} sh -e /guest.sh >/dev/null 2>&1 &"
        );
        node.run(&["sh", "-ec", &run]).await?;
    }
    node.wait_until("two processes are called kubelet", Duration::from_secs(20), async || {
        let count = ["sh", "-c", "grep -lx kubelet /proc/[0-9]*/comm | wc -l"];
        node.run(&count).await.is_ok_and(|count| count.trim() == "2")
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_users_process_by_the_name_of_a_kubelet_decides_nothing() -> TestResult {
    let test = "a_users_process_by_the_name_of_a_kubelet_decides_nothing";
    let Some(base) = base_or_skip(test, Flavour::Plain).await? else { return Ok(()) };
    let mut node = Node::create(&base).await?;
    node.install_programs(&programs().await?, HOME)?;
    node.start().await?;
    let install = ["/root/winddown", "install", "--companion"];
    // The path of its configuration has line ends; then it is a pipe, which nobody writes to.
    for config in ["$n", "$d/pipe"] {
        start(&node, config).await?;
        let said = node.exec(&install, COMMAND).await?;
        assert!(!said.status.success(), "{}", said.stdout);
        assert!(said.stderr.contains("no kubelet found"), "{}", said.stderr);
        assert!(said.stderr.contains("has the name kubelet and is not taken"), "{}", said.stderr);
        assert!(!said.stderr.contains(OPEN), "{}", said.stderr);
        assert!(!node.host_path("/etc/winddown/config.yaml").exists());
        let doctor = node.exec(&["/root/winddown", "doctor"], COMMAND).await?;
        assert!(!doctor.stdout.contains(OPEN), "{}", doctor.stdout);
        node.run(&["sh", "-c", "systemctl stop guest-job.service guest-login.scope"]).await?;
    }

    // Beside the real one it changes nothing.
    let files = repository().join("programs/tests/data/kubelets/kubeadm");
    lay_out(&node, &files, Path::new("/"))?;
    start(&node, "$n").await?;
    let said = node.exec(&install, COMMAND).await?;
    assert!(said.status.success(), "{}", said.stderr);
    let config = node.read("/etc/winddown/config.yaml")?;
    for text in [&config, &said.stdout] {
        assert!(!text.contains(OPEN) && !text.contains("controlSocketGroup"), "{text}");
    }
    assert!(config.contains("kubeconfig: /etc/kubernetes/kubelet.conf"), "{config}");
    // Nor does it do so where it is named.
    let pid = node.run(&["sh", "-c", "pgrep -x kubelet | head -1"]).await?;
    let named = ["/root/winddown", "install", "--companion", "--kubelet", pid.trim()];
    let said = node.exec(&named, COMMAND).await?;
    assert!(
        !said.status.success() && said.stderr.contains("there is no kubelet"),
        "{}",
        said.stderr
    );
    assert!(!node.host_path("/run/proof").exists(), "a program of the user's ran as root");
    Ok(())
}
