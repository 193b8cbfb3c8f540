//! Eviction where control groups are version 2 alone, with all controllers: memory, tasks and a disk run
//! short one after the other, and each time the right pod ends.

use std::error::Error;
use std::time::Duration;

use serde_json::{Value, json};
use winddown_node_tests::scenario::{Scenario, Setup, TestResult};
use winddown_node_tests::{Need, in_long_form};

/// Where each pod has a folder: `log`, which it writes, and `go`, which it waits for.
const PODS: &str = "/var/log/pods-under-test";
const PROGRAM: &str = "/usr/local/bin/pressure-pod";
/// Programs are slow there, and the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(240);
/// A part of the machine, and the agent with its pods in it.
const SLICE: &str = "[Slice]\nMemoryMax=450M\nTasksMax=300\n";
const IN_SLICE: &str = "[Service]\nSlice=edge.slice\nEnvironment=WINDDOWN_NODE_CGROUP=/edge.slice\n\
                        Environment=WINDDOWN_LOG=info,winddown_node::pressure=debug\n";

/// What takes nothing that it should not.
const OTHERS: [Taker; 2] = [
    Taker { name: "vip", priority: 1000, does: ("hold", 90), limit: None },
    Taker { name: "web", priority: 0, does: ("hold", 20), limit: None },
];
const HOG: Taker = Taker { name: "hog", priority: 0, does: ("memory", 40), limit: None };
const BOMB: Taker = Taker { name: "bomb", priority: 0, does: ("fork", 50), limit: None };
const TALKER: Taker = Taker { name: "talker", priority: 0, does: ("log", 4), limit: None };
/// It takes a lot once and does nothing with it.
const SLEEPER: Taker = Taker { name: "sleeper", priority: 0, does: ("hold", 250), limit: None };
/// They read what does not fit into their own limits, again and again: they wait for memory, and the node
/// does not. Several, because an emulated processor lets one wait too seldom.
const READERS: [Taker; 4] =
    [reader("reader"), reader("reader-2"), reader("reader-3"), reader("reader-4")];

const fn reader(name: &'static str) -> Taker {
    Taker { name, priority: 0, does: ("cache", 60), limit: Some("40Mi") }
}

/// A pod that takes something.
#[derive(Debug, Clone, Copy)]
struct Taker {
    name: &'static str,
    priority: i32,
    /// A mode of `pressure-pod`, and its number.
    does: (&'static str, u64),
    /// Of its memory.
    limit: Option<&'static str>,
}

#[tokio::test]
async fn on_cgroup_v2_a_bounded_node_evicts_the_pod_that_takes_its_memory_tasks_or_disk()
-> TestResult {
    let test = "on_cgroup_v2_a_bounded_node_evicts_the_pod_that_takes_its_memory_tasks_or_disk";
    if !in_long_form(test, "a whole machine is tried, which takes half a minute of a processor") {
        return Ok(());
    }
    let setup = setup(&[Need::Controllers], "memory.available: 200Mi, pid.available: '220'");
    let Some(scenario) = Scenario::installed_as(test, Vec::new(), &setup).await? else {
        return Ok(());
    };
    bound(&scenario).await?;
    start(&scenario, &[HOG, BOMB, TALKER]).await?;
    each_shortage_ends_who_made_it(&scenario).await
}

#[tokio::test]
async fn on_cgroup_v2_a_whole_machine_evicts_the_service_that_takes_its_memory_tasks_or_disk()
-> TestResult {
    let test =
        "on_cgroup_v2_a_whole_machine_evicts_the_service_that_takes_its_memory_tasks_or_disk";
    let setup = setup(&[Need::Controllers], "memory.available: 650Mi, pid.available: '150'");
    let Some(scenario) = Scenario::with_services_as(test, Vec::new(), &setup).await? else {
        return Ok(());
    };
    start(&scenario, &[HOG, BOMB, TALKER]).await?;
    // As many as now and those that are to be left, and some: pods count for what they have.
    let few = "threads=$(cut -d' ' -f4 /proc/loadavg | cut -d/ -f2); \
               echo $((threads + 220)) >/proc/sys/kernel/threads-max";
    scenario.node.run(&["sh", "-c", few]).await?;
    each_shortage_ends_who_made_it(&scenario).await
}

#[tokio::test]
async fn on_cgroup_v2_tasks_that_wait_for_memory_wake_the_agent() -> TestResult {
    let test = "on_cgroup_v2_tasks_that_wait_for_memory_wake_the_agent";
    let needs = &[Need::Controllers, Need::Pressure];
    let setup = setup(needs, "memory.available: 200Mi, pid.available: '220'");
    let Some(scenario) = Scenario::installed_as(test, Vec::new(), &setup).await? else {
        return Ok(());
    };
    bound(&scenario).await?;
    start(&scenario, &[&READERS[..], &[HOG, BOMB, TALKER]].concat()).await?;
    said(&scenario, "memory pressure wakes eviction at once", "cgroup /edge.slice").await?;
    let woken = "tasks wait for memory: eviction checks at once";
    let before = scenario.node.journal(&["--unit=winddown"]).await?;
    assert!(!before.contains(woken), "{before}");
    for reader in READERS {
        go(&scenario, reader)?;
    }
    said(&scenario, woken, "").await?;
    assert_eq!(evicted(&scenario).await?, Vec::<Value>::new(), "it met its own limit");
    each_shortage_ends_who_made_it(&scenario).await
}

#[tokio::test]
async fn on_cgroup_v2_a_pod_that_can_go_to_swap_does_not_end() -> TestResult {
    let test = "on_cgroup_v2_a_pod_that_can_go_to_swap_does_not_end";
    if !in_long_form(test, "a whole machine is tried, which takes half a minute of a processor") {
        return Ok(());
    }
    let mut setup = setup(&[Need::Controllers], "memory.available: 650Mi");
    setup.more.push_str("evictionMemoryReclaim: 5s\n");
    let Some(scenario) = Scenario::with_services_as(test, Vec::new(), &setup).await? else {
        return Ok(());
    };
    scenario.node.run(&["sh", "-c", "mkswap /dev/ubda && swapon /dev/ubda"]).await?;
    start(&scenario, &[SLEEPER]).await?;
    go(&scenario, SLEEPER)?;
    let took_back = async || {
        let plan = scenario.text(&["plan", "eviction"]).await.unwrap_or_default();
        plan.contains(": reclaimed ")
    };
    until(&scenario, "memory to be taken back", took_back).await?;
    let is_over = async || {
        let status = scenario.status().await.unwrap_or_default();
        status["pressure"]["thresholds"][0]["metForSeconds"].is_null()
    };
    until(&scenario, "the shortage to be over", is_over).await?;
    assert_eq!(evicted(&scenario).await?, Vec::<Value>::new());
    let plan: Value =
        serde_json::from_str(&scenario.text(&["plan", "eviction", "-o", "json"]).await?)?;
    let pods = plan["pods"].as_array().ok_or("no pods")?;
    let sleeper = pods.iter().find(|pod| pod["name"] == "sleeper-winddown-node");
    let in_swap = sleeper.and_then(|pod| pod["swap"].as_u64());
    assert!(in_swap.is_some_and(|bytes| bytes > 32 << 20), "{plan:#}");
    Ok(())
}

/// What it writes shows that the sandbox of the unit lets it run.
const HOOK: &str = "evictionHook:\n  command: \
                    [/bin/sh, -c, 'echo for want of $WINDDOWN_SIGNAL: $WINDDOWN_POD_NAME']\n";

fn setup(needs: &'static [Need], thresholds: &str) -> Setup {
    let more = format!(
        "evictionHard: {{{thresholds}, nodefs.available: 50Mi}}\ncontainerLogMaxSize: 1Gi\n{HOOK}"
    );
    Setup { needs, more, ..Setup::default() }
}

/// Makes a part of the machine the node.
async fn bound(scenario: &Scenario) -> TestResult {
    let units = "/etc/systemd/system";
    scenario.node.write(&format!("{units}/edge.slice"), SLICE, 0o644)?;
    scenario.node.write(&format!("{units}/winddown.service.d/50-edge.conf"), IN_SLICE, 0o644)?;
    scenario.node.run(&["systemctl", "daemon-reload"]).await?;
    Ok(())
}

/// Gives the agent a small disk, starts it, and waits until all pods have started.
async fn start(scenario: &Scenario, takers: &[Taker]) -> TestResult {
    let node = &scenario.node;
    let disk = "mount -t tmpfs -o size=64m none /mnt && \
                for part in lib log; do \
                mkdir -p /mnt/$part /var/$part/winddown && mount --bind /mnt/$part /var/$part/winddown \
                || exit; done";
    node.run(&["sh", "-c", disk]).await?;
    node.install(env!("CARGO_BIN_EXE_pressure-pod").as_ref(), PROGRAM)?;
    let pods: Vec<Taker> = OTHERS.iter().chain(takers).copied().collect();
    for pod in &pods {
        node.write(&format!("{PODS}/{}/log", pod.name), "", 0o644)?;
        let path = format!("/etc/winddown/pods/{}.json", pod.name);
        node.write(&path, pod.manifest().to_string(), 0o644)?;
    }
    for pod in OTHERS {
        go(scenario, pod)?;
    }
    scenario.start().await?;
    let run = async || {
        let status = scenario.status().await.unwrap_or_default();
        let all = status["pods"].as_array().cloned().unwrap_or_default();
        all.len() == pods.len() && all.iter().all(|pod| pod["phase"] == "Running")
    };
    until(scenario, "all pods to run", run).await?;
    let hold = async || OTHERS.iter().all(|pod| log(scenario, pod.name).contains("start"));
    until(scenario, "pods to hold their memory", hold).await
}

/// One after the other runs short, and after each of them another pod has ended.
async fn each_shortage_ends_who_made_it(scenario: &Scenario) -> TestResult {
    let resources = [
        (HOG, "MemoryPressure", "memory"),
        (BOMB, "PIDPressure", "pids"),
        (TALKER, "DiskPressure", "ephemeral-storage"),
    ];
    for (number, (taker, condition, resource)) in resources.into_iter().enumerate() {
        go(scenario, taker)?;
        let ended = async || evicted(scenario).await.is_ok_and(|all| all.len() > number);
        until(scenario, &format!("{} to be evicted", taker.name), ended).await?;
        let all = evicted(scenario).await?;
        let is_it = |pod: &&Value| pod["name"] == format!("{}-winddown-node", taker.name);
        let found = all.iter().find(is_it).filter(|_| all.len() == number + 1);
        let Some(pod) = found else { return Err(known(scenario, "not the right pods").await) };
        let message = pod["message"].as_str().unwrap_or_default();
        let why = format!("The node was low on resource: {resource}. ");
        assert!(message.starts_with(&why), "{message}");
        let conditions = scenario.status().await?["pressure"]["conditions"].to_string();
        assert!(conditions.contains(condition), "{conditions}");
        // What it had has come back, and so nobody follows.
        let is_over = async || {
            let status = scenario.status().await.unwrap_or_default();
            let thresholds = status["pressure"]["thresholds"].as_array();
            thresholds.is_some_and(|all| all.iter().all(|one| one["metForSeconds"].is_null()))
        };
        until(scenario, "the shortage to be over", is_over).await?;
    }
    // The text has the last few decisions only.
    let plan = scenario.text(&["plan", "eviction", "-o", "json"]).await?;
    // Where no task can be started, none is.
    for told in ["for want of memory.available: hog-", "for want of nodefs.available: talker-"] {
        assert!(plan.contains(told), "{plan}");
    }
    if evicted(scenario).await?.len() != resources.len() {
        return Err(known(scenario, "one followed that had taken nothing").await);
    }
    for other in OTHERS {
        let log = log(scenario, other.name);
        assert!(!log.contains("term"), "{} was asked to terminate", other.name);
    }
    Ok(())
}

/// Lets a pod begin.
fn go(scenario: &Scenario, pod: Taker) -> TestResult {
    Ok(scenario.node.write(&format!("{PODS}/{}/go", pod.name), "", 0o644)?)
}

/// What a pod has written down.
fn log(scenario: &Scenario, pod: &str) -> String {
    scenario.node.read(&format!("{PODS}/{pod}/log")).unwrap_or_default()
}

/// The pods that were evicted, by the agent's own account.
async fn evicted(scenario: &Scenario) -> TestResult<Vec<Value>> {
    let status = scenario.status().await?;
    let pods = status["pods"].as_array().cloned().ok_or("no pods")?;
    Ok(pods.into_iter().filter(|pod| pod["reason"] == "Evicted").collect())
}

/// Waits until the agent has logged an entry with both, one of them in a field of its own.
async fn said(scenario: &Scenario, one: &str, other: &str) -> TestResult {
    let said = async || {
        let read = ["--unit=winddown", "--output=json"];
        let journal = scenario.node.journal(&read).await.unwrap_or_default();
        journal.lines().any(|line| line.contains(one) && line.contains(other))
    };
    until(scenario, &format!("the agent to say '{one}'"), said).await
}

/// Waits, and says on failure what the agent knows and has logged.
async fn until(scenario: &Scenario, what: &str, is_so: impl AsyncFnMut() -> bool) -> TestResult {
    match scenario.node.wait_until(what, PATIENCE, is_so).await {
        Ok(_) => Ok(()),
        Err(error) => Err(known(scenario, &error.to_string()).await),
    }
}

/// What went wrong, with what the agent knows and has logged.
async fn known(scenario: &Scenario, error: &str) -> Box<dyn Error> {
    let status = scenario.text(&["status", "-o", "wide"]).await.unwrap_or_default();
    let plan = scenario.text(&["plan", "eviction"]).await.unwrap_or_default();
    let journal = scenario.node.journal(&["--unit=winddown"]).await.unwrap_or_default();
    format!("{error}\n{status}\n{plan}\n{journal}").into()
}

impl Taker {
    fn manifest(&self) -> Value {
        let (mode, number) = self.does;
        let dir = format!("{PODS}/{}", self.name);
        let script = format!(
            "until [ -e {dir}/go ]; do sleep 0.3; done; exec {PROGRAM} {dir}/log {mode} {number}"
        );
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": self.name },
            "spec": {
                "hostNetwork": true,
                "priority": self.priority,
                "containers": [{
                    "name": "main", "image": "host", "command": ["/bin/sh", "-c", script],
                }],
            },
        });
        if let Some(limit) = self.limit {
            pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = limit.into();
        }
        pod
    }
}
