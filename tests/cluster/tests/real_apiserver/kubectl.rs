//! `kubectl logs` and `kubectl exec` on a program of the process runtime: from the API server to the node API of an agent,
//! and from there to the shim.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;
use winddown_config::Config;
use winddown_node_tests::programs;

use super::RealApi;
use super::pods::{LONG, phase_of, until};
use super::processes::{Running, free_port, start};
use super::server::HOUR;

/// Of the node and of the namespace.
const NAME: &str = "kubectl";
/// When it is asked to end, it waits until a file tells it that it may.
const PROGRAM: &str =
    "trap 'echo two; until [ -e may ]; do sleep 0.1; done; echo three; exit 0' TERM
echo one
sleep 600 & wait";
/// More than any buffer between here and the program holds.
const BYTES: usize = 8 * 1024 * 1024;

/// An agent with one pod, which runs.
struct Bed {
    api: &'static RealApi,
    kubectl: PathBuf,
    kubeconfig: PathBuf,
    programs: PathBuf,
    root: TempDir,
    agent: Running,
}

/// What a command came to.
#[derive(Debug)]
struct Done {
    code: Option<i32>,
    stdout: Vec<u8>,
    stderr: String,
}

/// `kubectl`. None, after saying so, if there is none.
pub(crate) async fn program(test: &str) -> Option<PathBuf> {
    let kubectl = PathBuf::from(std::env::var_os("WINDDOWN_KUBECTL").unwrap_or("kubectl".into()));
    if Command::new(&kubectl).args(["version", "--client"]).output().await.is_err() {
        println!("SKIPPED: {test}: there is no kubectl, of the package kubernetes-client");
        return None;
    }
    Some(kubectl)
}

impl Bed {
    /// None, after saying so, where a program is missing.
    async fn set(test: &str) -> Option<Self> {
        let api = RealApi::get().await?;
        let kubectl = program(test).await?;
        // Loopback is no address of a node.
        let Some(&address) = Config::default().cluster.node_addresses().first() else {
            println!(
                "SKIPPED: {test}: this machine has no route, and so no address that a node can have"
            );
            return None;
        };
        api.namespace(NAME).await;
        let programs = programs().await.unwrap();
        let root = tempfile::tempdir().unwrap();
        configure(api, root.path(), address);
        let arguments = [
            // Never the login manager of the machine that runs the tests.
            "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent/bus".to_owned(),
            programs.join("winddownd").display().to_string(),
            "--root".to_owned(),
            root.path().display().to_string(),
        ];
        let agent = start(&api.folder, "winddownd", Path::new("env"), &arguments);
        api.admin().await;
        let kubeconfig = api.folder.join("admin.kubeconfig");
        let bed = Self { api, kubectl, kubeconfig, programs, root, agent };
        bed.has_pod().await;
        Some(bed)
    }

    async fn has_pod(&self) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": NAME},
            "spec": {
                "nodeName": NAME, "restartPolicy": "Never", "hostNetwork": true,
                "automountServiceAccountToken": false,
                "containers": [{
                    "name": "main", "image": "host", "command": ["/bin/sh", "-c", PROGRAM],
                    "workingDir": self.root.path(),
                }],
            },
        });
        let pods: Api<Pod> = Api::namespaced(self.api.admin().await, NAME);
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let runs = async || {
            assert!(!self.agent.has_ended(), "{}", self.agent.tail());
            phase_of(&pods.get("web").await.unwrap()) == "Running"
        };
        until(&format!("the pod runs\n{}", self.agent.tail()), runs).await;
    }

    fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--namespace", NAME])
            .args(arguments);
        command.kill_on_drop(true).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command of the container's to its end.
    async fn exec(&self, command: &str) -> Done {
        done(self.kubectl(&["exec", "web", "--", "/bin/sh", "-c", command])).await
    }

    /// Ends all pods as a shutdown does, within this time.
    fn drain(&self, within: &str) -> std::process::Command {
        let mut drain = std::process::Command::new(self.programs.join("winddown"));
        drain.arg("--socket").arg(self.root.path().join("run/winddown/winddown.sock"));
        drain.args(["drain", "--timeout", within]).stdout(Stdio::null());
        drain
    }

    /// `kubectl` on a terminal of 30 lines and 100 columns.
    fn on_a_terminal(&self, arguments: &str) -> Command {
        let (kubectl, kubeconfig) = (self.kubectl.display(), self.kubeconfig.display());
        let command = format!(
            "stty rows 30 cols 100; exec {kubectl} --kubeconfig {kubeconfig} --namespace {NAME} {arguments}"
        );
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
        script.kill_on_drop(true).env("SHELL", "/bin/sh");
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        script
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Programs outlive their agent, which ends with this process.
        let _ = self.drain("1s").output();
    }
}

/// Writes what the agent needs below its root.
fn configure(api: &RealApi, root: &Path, address: IpAddr) {
    let etc = root.join("etc/winddown");
    std::fs::create_dir_all(etc.join("pods")).unwrap();
    std::fs::create_dir_all(root.join("run/winddown")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(etc.join(name), text).unwrap();
    let node = api.authority.client(&format!("system:node:{NAME}"), &["system:nodes"], HOUR);
    let user = json!({
        "client-certificate": api.write("kubectl-node.crt", &node.certificate),
        "client-key": api.write("kubectl-node.key", &node.key),
    });
    api.config("kubectl-node", &user);
    std::fs::copy(api.folder.join("kubectl-node.kubeconfig"), etc.join("kubeconfig")).unwrap();
    let served = api.authority.server(&[&address.to_string()]);
    write("serving.crt", &served.certificate);
    write("serving.key", &served.key);
    write("ca.crt", &api.authority.pem());
    let listens = SocketAddr::new(address, free_port());
    write(
        "config.yaml",
        &format!(
            "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nmode: cluster\nruntime: process\n\
             nodeName: {NAME}\nnodeIP: {address}\nkubeconfig: /etc/winddown/kubeconfig\n\
             nodeApiAddress: {listens}\nclientCAFile: /etc/winddown/ca.crt\n\
             tlsCertFile: /etc/winddown/serving.crt\ntlsPrivateKeyFile: /etc/winddown/serving.key\n"
        ),
    );
}

async fn done(mut command: Command) -> Done {
    let output = timeout(LONG, command.output()).await.unwrap().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Done { code: output.status.code(), stdout: output.stdout, stderr }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_reads_the_log_of_a_program_and_runs_commands_beside_it_until_the_node_has_ended_it()
 {
    let test = "kubectl_reads_the_log_of_a_program_and_runs_commands_beside_it_until_the_node_has_ended_it";
    let Some(bed) = Bed::set(test).await else { return };
    let mut follow = bed.kubectl(&["logs", "--follow", "web"]).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut line = async || timeout(LONG, lines.next_line()).await.unwrap().unwrap();
    assert_eq!(line().await.as_deref(), Some("one"));

    codes_and_outputs_are_the_commands(&bed).await;
    megabytes_go_in_and_come_back_until_the_input_ends(&bed).await;
    a_terminal_is_one_with_its_size(&bed).await;
    what_top_is_made_of_is_there(&bed).await;

    let mut drain = Command::from(bed.drain("60s")).spawn().unwrap();
    assert_eq!(line().await.as_deref(), Some("two"));
    let last = bed.exec("touch may").await;
    assert_eq!(last.code, Some(0), "{last:?}");
    assert_eq!(line().await.as_deref(), Some("three"));
    assert_eq!(line().await, None, "the log ends with the pod");
    assert_eq!(timeout(LONG, follow.wait()).await.unwrap().unwrap().code(), Some(0));
    assert!(timeout(LONG, drain.wait()).await.unwrap().unwrap().success());
    let late = bed.exec("true").await;
    assert!(late.code == Some(1) && late.stderr.contains("completed pod"), "{late:?}");
    bed.api.remove(NAME, NAME).await;
}

async fn codes_and_outputs_are_the_commands(bed: &Bed) {
    for code in [0, 7] {
        let ran = bed.exec(&format!("echo out; echo err >&2; exit {code}")).await;
        assert_eq!((ran.code, &*ran.stdout), (Some(code), b"out\n".as_slice()), "{ran:?}");
        assert!(ran.stderr.starts_with("err\n"), "{ran:?}");
    }
}

async fn megabytes_go_in_and_come_back_until_the_input_ends(bed: &Bed) {
    let path = bed.root.path().join("words");
    let words: Vec<u8> = (0..BYTES / 8).flat_map(|n| n.to_be_bytes()).collect();
    std::fs::write(&path, &words).unwrap();
    let mut cat = bed.kubectl(&["exec", "--stdin", "web", "--", "/bin/cat"]);
    cat.stdin(File::open(&path).unwrap());
    let ran = done(cat).await;
    assert_eq!((ran.code, ran.stdout.len()), (Some(0), BYTES), "{}", ran.stderr);
    assert!(ran.stdout == words, "other bytes came back");
}

async fn a_terminal_is_one_with_its_size(bed: &Bed) {
    let command = r#"until [ "$(stty size)" = "30 100" ]; do sleep 0.1; done; read x; echo "<$x $TERM>"; exit 7"#;
    let mut child = bed
        .on_a_terminal(&format!("exec --stdin --tty web -- /bin/sh -c '{command}'"))
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"typed\r").await.unwrap();
    // The terminal stays until the command has ended.
    let output = timeout(LONG, child.wait_with_output()).await.unwrap().unwrap();
    drop(stdin);
    let heard = String::from_utf8_lossy(&output.stdout);
    assert!(heard.contains("<typed xterm>\r\n"), "{heard}");
    assert_eq!(output.status.code(), Some(7), "{heard}");
}

async fn what_top_is_made_of_is_there(bed: &Bed) {
    let path = format!("/api/v1/nodes/{NAME}/proxy/metrics/resource");
    let read = done(bed.kubectl(&["get", "--raw", &path])).await;
    let text = String::from_utf8_lossy(&read.stdout);
    let of = format!("{{container=\"main\",namespace=\"{NAME}\",pod=\"web\"}}");
    for name in ["container_cpu_usage_seconds_total", "container_memory_working_set_bytes"] {
        assert!(text.contains(&format!("{name}{of} ")), "{name}: {text}{}", read.stderr);
    }
}
