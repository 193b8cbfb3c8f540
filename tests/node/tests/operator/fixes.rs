//! Types each fix of `winddown doctor` on a node with the fault, and asks the doctor again.

mod next_steps;
mod rows;
mod texts;

use std::time::Duration;

use serde_json::{Value, json};
use winddown_apiserver::ApiServer;
use winddown_doctor::Fix;
use winddown_node_tests::scenario::{SOON, Scenario, Setup, TestResult};
use winddown_node_tests::{Bridge, Flavour, Need, Node, TestPod, base_or_skip, programs, typed};
use winddown_render::STATUS_COMMANDS;

use rows::{DOCTOR, Row, Stage};

/// More than the doctor's own patience with everything that hangs.
const LIMIT: Duration = Duration::from_secs(60);
/// What the pod of the node wants, in seconds.
const GRACE: u32 = 60;

/// Reads its configuration when it starts, and holds a shutdown lock for as long, as a kubelet does; it runs no pods.
/// It is ready once it has read its configuration, so that a row can change the file right after a restart.
const KUBELET: &str = "#!/bin/sh
grep -q '^shutdownGracePeriod: 0s' /var/lib/kubelet/config.yaml && is_off=yes
systemd-notify --ready
if [ \"$is_off\" ]; then
    sleep infinity & wait
fi
mkdir -p /etc/systemd/logind.conf.d
printf '[Login]\\nInhibitDelayMaxSec=60\\n' >/etc/systemd/logind.conf.d/99-kubelet.conf
systemctl kill -s HUP systemd-logind
systemd-inhibit --who=kubelet --what=shutdown --mode=delay --why=pods sleep infinity & wait
";
const KUBELETS_UNIT: &str = "[Service]
Type=notify
NotifyAccess=all
ExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml --kubeconfig=/etc/kubernetes/kubelet.conf \
    --container-runtime-endpoint=unix:///run/containerd/containerd.sock
[Install]
WantedBy=multi-user.target
";
const KUBELETS_CONFIG: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
shutdownGracePeriod: 60s
shutdownGracePeriodCriticalPods: 10s
";
/// Makes an image in `/image` that has the kubelet, and nothing of winddown.
const KUBELETS_IMAGE: &str = "#!/bin/sh -e
cd /
mkdir image
cp -a --parents etc/systemd/system/kubelet.service etc/systemd/system/multi-user.target.wants/kubelet.service \
    etc/kubernetes/kubelet.conf usr/bin/kubelet var/lib/kubelet/config.yaml image
";

#[tokio::test]
async fn every_fix_on_a_node_of_processes_mends_what_it_is_printed_for() -> TestResult {
    let test = "every_fix_on_a_node_of_processes_mends_what_it_is_printed_for";
    type_all(test, Stage::Processes).await
}

#[tokio::test]
async fn every_fix_on_a_node_of_services_mends_what_it_is_printed_for() -> TestResult {
    let test = "every_fix_on_a_node_of_services_mends_what_it_is_printed_for";
    type_all(test, Stage::Services).await
}

#[tokio::test]
async fn every_fix_on_a_node_with_controllers_mends_what_it_is_printed_for() -> TestResult {
    let test = "every_fix_on_a_node_with_controllers_mends_what_it_is_printed_for";
    type_all(test, Stage::Controllers).await
}

#[tokio::test]
async fn every_fix_on_a_node_of_containers_mends_what_it_is_printed_for() -> TestResult {
    let test = "every_fix_on_a_node_of_containers_mends_what_it_is_printed_for";
    type_all(test, Stage::Containers).await
}

#[tokio::test]
async fn every_fix_on_a_kubelets_node_mends_what_it_is_printed_for() -> TestResult {
    let test = "every_fix_on_a_kubelets_node_mends_what_it_is_printed_for";
    type_all(test, Stage::Kubelet).await
}

#[tokio::test]
async fn what_a_status_tells_to_type_is_typed_as_it_is() -> TestResult {
    let test = "what_a_status_tells_to_type_is_typed_as_it_is";
    let pods = vec![TestPod::new("web", 0, 100)];
    let Some(scenario) = Scenario::installed_with(test, pods).await? else { return Ok(()) };
    scenario.start().await?;
    for command in STATUS_COMMANDS {
        let said = scenario.node.exec(&["sh", "-c", command], LIMIT).await?;
        // The doctor has an exit code for what it finds.
        let is_well = said.status.success() || command.ends_with("doctor");
        assert!(is_well, "{command}: {} {}", said.stdout, said.stderr);
    }
    let names = async || scenario.text(&["status"]).await.is_ok_and(|text| text.contains("web"));
    scenario.node.wait_until("the drained pod to be back", SOON, names).await?;
    Ok(())
}

/// Types the fixes of a stage, each on a node of its own.
async fn type_all(test: &str, stage: Stage) -> TestResult {
    let only = std::env::var("WINDDOWN_FIX").unwrap_or_default();
    let mut wrong = Vec::new();
    for fix in Fix::ALL {
        let rows = rows::of(*fix);
        assert!(!rows.is_empty(), "{fix:?} is typed nowhere");
        for row in
            rows.iter().filter(|row| row.stage == stage && format!("{fix:?}").contains(&only))
        {
            println!("--- {fix:?}: {}", row.fault);
            let Some((scenario, _api)) = node(test, stage).await? else { return Ok(()) };
            if let Err(error) = type_one(&scenario, *fix, row).await {
                wrong.push(format!("{fix:?}: {error}"));
            }
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n").into()),
    }
}

/// A node that is well, with one pod that wants a minute to end; the API server that a kubelet's node has.
async fn node(test: &str, stage: Stage) -> TestResult<Option<(Scenario, Option<Api>)>> {
    let pods = vec![TestPod { grace_seconds: GRACE, ..TestPod::new("slow", 0, 100) }];
    let setup = Setup { seconds: [70, 4, 4], ..Setup::default() };
    let scenario = match stage {
        Stage::Processes => Scenario::installed_as(test, pods, &setup).await?,
        Stage::Services => Scenario::with_services_as(test, pods, &setup).await?,
        Stage::Controllers => {
            let setup = Setup { needs: &[Need::Controllers], ..setup };
            Scenario::with_services_as(test, pods, &setup).await?
        }
        Stage::Containers => Scenario::with_containerd_as(test, pods, &setup).await?,
        Stage::Kubelet => return kubelet(test).await,
    };
    let Some(scenario) = scenario else { return Ok(None) };
    typed::prepare(&scenario.node)?;
    scenario.start().await?;
    Ok(Some((scenario, None)))
}

/// An API server, and a node's way to it.
type Api = (ApiServer, Bridge);

/// A node with containerd and a stand-in for the kubelet, without pods, on which the programs of winddown are laid but
/// not installed.
async fn kubelet(test: &str) -> TestResult<Option<(Scenario, Option<Api>)>> {
    let Some(base) = base_or_skip(test, Flavour::Containerd).await? else { return Ok(None) };
    let mut node = Node::create(&base).await?;
    node.configure_containerd()?;
    node.install_programs(&programs().await?, "/usr/bin")?;
    node.write("/usr/bin/kubelet", KUBELET, 0o755)?;
    node.write("/usr/bin/make-image", KUBELETS_IMAGE, 0o755)?;
    node.write("/etc/systemd/system/kubelet.service", KUBELETS_UNIT, 0o644)?;
    node.write("/var/lib/kubelet/config.yaml", KUBELETS_CONFIG, 0o644)?;
    let server = ApiServer::start().await?;
    server.apply(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "winddown-node"},
    }))?;
    node.write("/etc/kubernetes/kubelet.conf", server.kubeconfig(), 0o600)?;
    node.start().await?;
    node.containerd_answers().await?;
    typed::prepare(&node)?;
    let bridge = Bridge::open(&node, server.address()).await?;
    node.run(&["systemctl", "enable", "--now", "kubelet"]).await?;
    let scenario = Scenario { node, pods: Vec::new() };
    let ends_pods = async || {
        let said = ask(&scenario.node, DOCTOR).await.unwrap_or_default();
        said["protection"]["effectiveSeconds"] == f64::from(GRACE)
    };
    scenario.node.wait_until("the kubelet's lock", SOON, ends_pods).await?;
    Ok(Some((scenario, Some((server, bridge)))))
}

/// Makes the fault, types what the doctor prints, and compares what the doctor finds before and after.
async fn type_one(scenario: &Scenario, fix: Fix, row: &Row) -> TestResult {
    let node = &scenario.node;
    // Some faults are commands that fail.
    node.exec(&["sh", "-c", row.fault], LIMIT).await?;
    let wanted = serde_json::to_value(fix)?;
    let is_it = |finding: &Value| finding["id"] == row.id && finding["fixId"] == wanted;
    let mut before = Value::Null;
    let found = async || {
        before = ask(node, row.doctor).await.unwrap_or_default();
        findings(&before).any(is_it)
    };
    if let Err(error) = node.wait_until("the fault to be found", SOON, found).await {
        return Err(format!("{error}\n{before:#}").into());
    }
    let finding = findings(&before).find(|finding| is_it(finding)).ok_or("no finding")?;
    let locks = node.exec(&["systemd-inhibit", "--list", "--no-pager"], LIMIT).await?.stdout;
    let by_kubelet = locks.lines().any(|lock| lock.starts_with("kubelet"));
    for command in finding["fix"].as_array().into_iter().flatten() {
        let command = command.as_str().ok_or("a command is a text")?;
        println!("$ {command}");
        let ran = node.exec(&["sh", "-c", command], LIMIT).await?;
        if !ran.status.success() {
            return Err(format!("`{command}`: {}\n{}{}", ran.status, ran.stdout, ran.stderr).into());
        }
    }
    // Root sees more than the user who was told so.
    let again = row.doctor.rfind("winddown doctor").map_or(row.doctor, |at| &row.doctor[at..]);
    let (mut after, mut worse) = (Value::Null, Vec::new());
    let better = async || {
        after = ask(node, again).await.unwrap_or_default();
        worse = not_better(&before, &after, row.id);
        worse.is_empty()
    };
    if node.wait_until("the doctor to find it mended", SOON, better).await.is_err() {
        return Err(format!("after the fix: {}\n{after:#}", worse.join("; ")).into());
    }
    if scenario.pods.is_empty() {
        let now = grace(&ask(node, DOCTOR).await?);
        return match by_kubelet && now.is_none_or(|now| now < f64::from(GRACE)) {
            true => Err(format!("the kubelet gave {GRACE} s, now a shutdown waits {now:?}").into()),
            false => Ok(()),
        };
    }
    // Some faults stop the agent.
    node.run(&["systemctl", "start", "winddown"]).await?;
    let mut plan = Value::Null;
    let keeps = async || {
        plan = ask(node, "winddown plan shutdown -o json").await.unwrap_or_default();
        has_its_grace(&plan)
    };
    match node.wait_until("the pod to have its grace", SOON, keeps).await {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("the pod lost its grace: {plan:#}").into()),
    }
}

/// What is not better than before for check `id`, or worse for another one.
fn not_better(before: &Value, after: &Value, id: &str) -> Vec<String> {
    let rank = |answer: &Value, id: &Value| {
        let finding = findings(answer).find(|finding| finding["id"] == *id);
        let severity = finding.and_then(|finding| finding["severity"].as_str()).unwrap_or("ok");
        ["ok", "info", "warning", "problem"].iter().position(|name| *name == severity)
    };
    if findings(after).next().is_none() {
        return vec!["the doctor does not answer".to_owned()];
    }
    let mut wrong = Vec::new();
    for finding in findings(before).chain(findings(after)) {
        let (was, is) = (rank(before, &finding["id"]), rank(after, &finding["id"]));
        if is > was || (finding["id"] == *id && is == was) {
            wrong.push(format!("{}: {was:?}, now {is:?}", finding["id"]));
        }
    }
    if let Some(was) = grace(before)
        && grace(after).is_none_or(|is| is < was)
    {
        wrong.push(format!("a shutdown waited {was} s, now {:?}", grace(after)));
    }
    wrong
}

/// How long a shutdown waits for whoever ends the pods, in seconds.
fn grace(answer: &Value) -> Option<f64> {
    answer["protection"]["effectiveSeconds"].as_f64()
}

/// Whether the plan gives the pod its own grace.
fn has_its_grace(plan: &Value) -> bool {
    match plan {
        Value::Object(fields) => {
            fields.get("graceSeconds").and_then(Value::as_f64) == Some(f64::from(GRACE))
                || fields.values().any(has_its_grace)
        }
        Value::Array(items) => items.iter().any(has_its_grace),
        _ => false,
    }
}

fn findings(answer: &Value) -> impl Iterator<Item = &Value> {
    answer["findings"].as_array().into_iter().flatten()
}

async fn ask(node: &Node, doctor: &str) -> TestResult<Value> {
    Ok(serde_json::from_str(&node.exec(&["sh", "-c", doctor], LIMIT).await?.stdout)?)
}
