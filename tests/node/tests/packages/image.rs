//! Static programs: those for another processor, in an emulator, and the image that a DaemonSet runs, on a node with
//! containerd.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use winddown_node_tests::packages::{is_here, repository, text_of};
use winddown_node_tests::scenario::TestResult;
use winddown_node_tests::typed::{HOME, enter_all, prepare};
use winddown_node_tests::{Flavour, Node, base_or_skip, in_long_form, programs};

use super::walkthroughs::manual_and_completions_are_put_in_place;
use crate::typed_pages::marked;

/// The name that the pages give the image.
pub(super) const IMAGE: &str = "winddown-0.1.0-x86_64-image.tar";

const LONGER: &str = "[Login]\nInhibitDelayMaxSec=600\n";
/// A DaemonSet is looked at for this long; its agent takes the lock within a second.
const SOON: Duration = Duration::from_secs(60);
/// What containerd gives to a container that says nothing.
const CAPABILITIES: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

/// Runs a script that prints what it makes.
pub(super) async fn made(mut script: Command) -> TestResult<Vec<PathBuf>> {
    let said = tokio::task::spawn_blocking(move || text_of(&mut script).map_err(|e| e.to_string()));
    let said = said.await??;
    Ok(said.lines().filter(|line| line.starts_with('/')).map(PathBuf::from).collect())
}

#[tokio::test]
async fn the_tarball_for_arm64_runs_in_an_emulator() -> TestResult {
    let test = "the_tarball_for_arm64_runs_in_an_emulator";
    if !in_long_form(test, "builds all programs once more") {
        return Ok(());
    }
    let sysroot = text_of(Command::new("rustc").args(["--print", "sysroot"]))?;
    let libraries = format!("{}/lib/rustlib/aarch64-unknown-linux-musl", sysroot.trim());
    let target = "rustup target add aarch64-unknown-linux-musl";
    let lacks = match () {
        () if !Path::new(&libraries).is_dir() => Some(target),
        () if !is_here("aarch64-linux-gnu-gcc") => Some("apt-get install gcc-aarch64-linux-gnu"),
        () if !is_here("qemu-aarch64") => Some("apt-get install qemu-user"),
        () => None,
    };
    if let Some(lacks) = lacks {
        // Not failed where nothing may be skipped: Rust's target is in no registry of packages.
        println!("SKIPPED: {test}: {lacks}");
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let mut script = Command::new(repository().join("programs/packaging/static.sh"));
    script.args(["--machine", "aarch64", "--profile", "dev", "--own"]).arg(programs().await?);
    script.arg("--out").arg(dir.path());
    let made = made(script).await?;
    let [tarball, image] = &made[..] else { return Err(format!("{made:?}").into()) };
    assert!(tarball.to_string_lossy().ends_with("-aarch64-linux-musl.tar.gz"), "{made:?}");
    assert!(image.to_string_lossy().ends_with("-aarch64-image.tar"), "{made:?}");
    text_of(Command::new("tar").arg("-xzf").arg(tarball).arg("-C").arg(dir.path()))?;
    let folder = tarball.with_extension("").with_extension("");
    let emulated = |program: &str, arguments: &[&str]| {
        let program = folder.join(program);
        text_of(Command::new("qemu-aarch64").arg(program).args(arguments).current_dir(repository()))
    };
    let version = format!("winddown {}", env!("CARGO_PKG_VERSION"));
    assert!(emulated("winddown", &["--version"])?.starts_with(&version));
    assert!(emulated("winddownd", &["--version"])?.contains(env!("CARGO_PKG_VERSION")));
    let plan = ["plan", "shutdown", "-f", "docs/examples/node"];
    let own = text_of(
        Command::new(programs().await?.join("winddown")).args(plan).current_dir(repository()),
    )?;
    assert_eq!(emulated("winddown", &plan)?, own, "it plans as on this processor");
    Ok(())
}

#[tokio::test]
async fn the_static_tarball_and_image_run_on_a_node() -> TestResult {
    let test = "the_static_tarball_and_image_run_on_a_node";
    if !in_long_form(test, "builds all programs once more") {
        return Ok(());
    }
    let Some(base) = base_or_skip(test, Flavour::Containerd).await? else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    let mut script = Command::new(repository().join("programs/packaging/static.sh"));
    script.args(["--profile", "dev", "--own"]).arg(programs().await?).arg("--out").arg(dir.path());
    let made = made(script).await?;
    let [tarball, image] = &made[..] else { return Err(format!("{made:?}").into()) };
    let node = Node::create(&base).await?;
    takes_the_lock(DaemonSet { shared: false, ..DaemonSet::read()? }, node, image).await?;

    let mut node = Node::create(&base).await?;
    node.install(tarball, "/root/winddown.tar.gz")?;
    node.start().await?;
    prepare(&node)?;
    node.run(&["sh", "-ec", "cd /root && tar -xzf winddown.tar.gz --strip-components=1"]).await?;
    manual_and_completions_are_put_in_place(&mut node, ".gz").await?;
    let install = "cd /root && ./winddown install --runtime process --start && \
                   cp docs/examples/node/web-1.yaml docs/examples/node/dns.yaml /etc/winddown/pods";
    node.run(&["sh", "-ec", install]).await?;
    let runs = async || {
        let said = node.exec(&["winddown", "status", "-o", "json"], SOON).await;
        let said = said.ok().and_then(|said| serde_json::from_str::<Value>(&said.stdout).ok());
        said.is_some_and(|status| {
            list(&status["pods"]).filter(|pod| pod["ready"] == true).count() == 2
        })
    };
    node.wait_until("two pods to run", SOON, runs).await?;
    node.shut_down(&["systemctl", "reboot"]).await?;
    assert_eq!(node.wait_off(SOON).await?.code(), Some(Node::REBOOTED), "{}", node.console());
    node.start().await?;
    let said = node.run(&["winddown", "report"]).await?;
    assert!(said.starts_with("Clean shutdown: 2 pods exited by themselves"), "{said}");
    Ok(())
}

#[tokio::test]
async fn the_daemon_set_takes_logind_s_lock_and_raises_its_delay() -> TestResult {
    let test = "the_daemon_set_takes_logind_s_lock_and_raises_its_delay";
    let Some(base) = base_or_skip(test, Flavour::Containerd).await? else {
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    let mut script = Command::new(repository().join("programs/packaging/image.sh"));
    script.arg("--shared").arg("--programs").arg(programs().await?);
    script.arg("--out").arg(dir.path());
    let made = made(script).await?;
    let [image] = &made[..] else { return Err(format!("{made:?}").into()) };
    takes_the_lock(DaemonSet::read()?, Node::create(&base).await?, image).await
}

async fn takes_the_lock(set: DaemonSet, mut node: Node, image: &Path) -> TestResult {
    node.configure_containerd()?;
    node.install(image, &format!("{HOME}/{IMAGE}"))?;
    set.lay_into(&node)?;
    node.start().await?;
    node.containerd_answers().await?;
    prepare(&node)?;
    let typed = marked("docs/tutorials/beside-a-kubelet.md", "runtime");
    assert!(!typed.is_empty(), "the page imports no image");
    enter_all(&mut node, &typed).await?;
    // What this test runs itself is in containerd's default namespace.
    node.run(&["ctr", "images", "import", &format!("{HOME}/{IMAGE}")]).await?;
    let before = delay(&node).await?;
    assert!(before < set.wanted, "logind waits {before:?} anyway");
    set.run(&node).await?;

    let is_held = async || {
        let listed = node.run(&["systemd-inhibit", "--list", "--no-legend"]).await;
        listed.is_ok_and(|text| text.lines().any(|line| line.contains("winddown")))
    };
    if node.wait_until("logind to list the lock", SOON, is_held).await.is_err() {
        return Err(node.read("/var/log/winddown-container.log")?.into());
    }
    let is_raised = async || delay(&node).await.is_ok_and(|delay| delay >= set.wanted);
    node.wait_until("logind to wait longer", SOON, is_raised).await?;
    // Not with `ctr task exec`, which now and then loses what a short command prints.
    let agent = "$(ctr task ls | awk '$1 == \"winddown\" {print $2}')";
    let status = format!("nsenter --target {agent} --mount --root --wd /usr/bin/winddown status");
    let said = node.exec(&["sh", "-c", &status], SOON).await?;
    assert!(said.stdout.contains("held"), "{said:?}");
    assert!(said.stdout.contains("node-of-the-set"), "its name is the pod's node: {said:?}");

    let same = format!("[ $(readlink /proc/{agent}/ns/pid) = $(readlink /proc/1/ns/pid) ]");
    node.run(&["sh", "-ec", &same])
        .await
        .map_err(|_| "other pods' processes are hidden from it")?;

    // Nothing holds the lock for an agent in a container.
    node.run(&["ctr", "task", "kill", "--signal=SIGTERM", "winddown"]).await?;
    let is_gone = async || !is_held().await;
    node.wait_until("the lock to go with the agent", SOON, is_gone).await?;

    // Its file stays. Another owner of the delay now wants more, which the next agent sees.
    node.write("/etc/systemd/logind.conf.d/50-vm.conf", LONGER, 0o644)?;
    node.run(&["systemctl", "kill", "--signal=HUP", "systemd-logind"]).await?;
    node.run(&["sh", "-ec", "ctr task rm --force winddown && ctr container rm winddown"]).await?;
    set.run(&node).await?;
    let is_longer =
        async || delay(&node).await.is_ok_and(|delay| delay == Duration::from_secs(600));
    node.wait_until("logind to wait as long as another wants", SOON, is_longer).await?;
    Ok(())
}

async fn delay(node: &Node) -> TestResult<Duration> {
    let path = ["org.freedesktop.login1", "/org/freedesktop/login1"];
    let property = ["org.freedesktop.login1.Manager", "InhibitDelayMaxUSec"];
    let said =
        node.run(&["busctl", "get-property", path[0], path[1], property[0], property[1]]).await?;
    Ok(Duration::from_micros(said.trim().trim_start_matches("t ").parse()?))
}

/// programs/packaging/kubernetes/companion.yaml, as a kubelet would run its pod.
struct DaemonSet {
    config: String,
    /// How long logind has to wait.
    wanted: Duration,
    pod: Value,
    /// Its programs need shared libraries.
    shared: bool,
}

/// Where a pod finds its credentials. Those of this test lead nowhere: the lock does not need them.
const CREDENTIALS: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

impl DaemonSet {
    fn read() -> TestResult<Self> {
        let file = repository().join("programs/packaging/kubernetes/companion.yaml");
        let objects: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(file)?)?;
        let of =
            |kind: &str| objects.iter().find(|object| object["kind"] == kind).ok_or("no object");
        let config = of("ConfigMap")?["data"]["config.yaml"].as_str().ok_or("no file")?.to_owned();
        let seconds = config.lines().find_map(|line| line.strip_prefix("shutdownGracePeriod: "));
        let seconds = seconds.and_then(|text| text.strip_suffix('s')).ok_or("no period")?;
        let pod = of("DaemonSet")?["spec"]["template"]["spec"].clone();
        let wanted = Duration::from_secs(seconds.parse()?);
        Ok(Self { config, wanted, pod, shared: true })
    }

    /// Puts what the pod mounts into a node that is off.
    fn lay_into(&self, node: &Node) -> TestResult {
        node.write("/var/lib/config/config.yaml", &self.config, 0o644)?;
        let authority = repository().join("tests/fuzz/corpus/certificates/node.pem");
        node.write("/var/lib/account/ca.crt", std::fs::read(authority)?, 0o644)?;
        node.write("/var/lib/account/token", "token", 0o600)?;
        node.write("/var/lib/account/namespace", "kube-system", 0o644)?;
        node.write("/var/lib/kubelet/config.yaml", "", 0o644)?;
        Ok(())
    }

    /// Runs its container with what the pod gives it, and nothing more.
    async fn run(&self, node: &Node) -> TestResult {
        let container = &self.pod["containers"][0];
        let mut words: Vec<String> = ["ctr", "run", "--detach", "--seccomp"].map(Into::into).into();
        words.push("--log-uri=file:///var/log/winddown-container.log".into());
        if self.pod["hostNetwork"] == true {
            words.push("--net-host".into());
        }
        if self.pod["hostPID"] == true {
            words.push("--with-ns=pid:/proc/1/ns/pid".into());
        }
        if container["securityContext"]["readOnlyRootFilesystem"] == true {
            words.push("--read-only".into());
        }
        assert_eq!(container["securityContext"]["capabilities"]["drop"][0], "ALL");
        words.extend(CAPABILITIES.map(|name| format!("--cap-drop=CAP_{name}")));
        let fields = BTreeMap::from([
            ("metadata.uid", "uid-of-the-pod"),
            ("spec.nodeName", "node-of-the-set"),
        ]);
        for one in list(&container["env"]) {
            let field = one["valueFrom"]["fieldRef"]["fieldPath"].as_str();
            let value = match field {
                Some(field) => *fields.get(field).ok_or("a field that the test does not know")?,
                None => one["value"].as_str().ok_or("no value")?,
            };
            words.push(format!("--env={}={value}", text(&one["name"])));
        }
        words.extend(
            ["KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=9"]
                .map(|one| format!("--env={one}")),
        );
        for mount in list(&container["volumeMounts"]) {
            let volume = list(&self.pod["volumes"]).find(|volume| volume["name"] == mount["name"]);
            let volume = volume.ok_or("a mount without a volume")?;
            let source = volume["hostPath"]["path"].as_str().unwrap_or("/var/lib/config");
            if volume["hostPath"]["type"] == "DirectoryOrCreate" {
                node.run(&["mkdir", "-p", source]).await?;
            }
            let follows =
                if mount["mountPropagation"] == "HostToContainer" { ":rslave" } else { "" };
            let access = if mount["readOnly"] == true { "ro" } else { "rw" };
            words.push(bind(
                source,
                text(&mount["mountPath"]),
                &format!("rbind{follows}:{access}"),
            ));
        }
        words.push(bind("/var/lib/account", CREDENTIALS, "rbind:ro"));
        let libraries = ["/lib", "/lib64"].into_iter().filter(|_| self.shared);
        words.extend(libraries.map(|path| bind(&format!("/usr{path}"), path, "rbind:ro")));
        words.extend([text(&container["image"]), "winddown"].map(str::to_owned));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        node.run(&words).await?;
        Ok(())
    }
}

fn bind(from: &str, to: &str, options: &str) -> String {
    format!("--mount=type=bind,src={from},dst={to},options={options}")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
