//! Three nodes, rebooted in turn: what clients of a service, a job and identities notice, by winddown and by the kubelet's
//! own graceful shutdown.

mod client;
mod judge;
mod objects;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tempfile::TempDir;
use tokio::time::sleep;
use winddown_node_tests::document::replace_between;
use winddown_node_tests::scenario::TestResult;
use winddown_node_tests::{in_long_form, workload};

use crate::RealApi;
use crate::beside_kubelet::machine::{Ends, Machine, Place, Wanted};
use crate::beside_kubelet::table::number;
use client::{Client, Ways};
use judge::{Account, Turn};

const NAMESPACE: &str = "rolling";
const NODES: u8 = 3;
/// The time of each of the three groups, in seconds.
const GRACE: [u32; 3] = [12, 6, 4];
/// How long a node may take to go down.
const DOWN: Duration = Duration::from_secs(120);
/// How long a machine is off before it boots again.
const OFF: Duration = Duration::from_secs(15);
/// Pieces of work for each reboot.
const WORK: usize = 8;
/// How often each node is rebooted in the long form.
const ROUNDS: &str = "WINDDOWN_ROUNDS";

/// Names a part of who alone terminates the pods; all without it.
const CHOICE: &str = "WINDDOWN_SCENES";

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/reliability.md");
const MARKS: [&str; 2] =
    ["<!-- Written by `make rolling`. -->", "<!-- End of the reboots of three nodes. -->"];
const HEAD: &str = "\
| who terminates the pods | reboots | requests | lost | SIGTERM to not ready | pods exited by themselves | \
started meanwhile | in order | work done | cut short | counted as failed | identities doubled | asked to off | \
asked to whole | left at the end |
|---|--:|--:|--:|---|---|--:|---|--:|--:|--:|--:|--:|--:|---|
";

/// Nanoseconds since 1970, which nodes and this machine share.
fn now() -> u64 {
    u64::try_from(UNIX_EPOCH.elapsed().unwrap().as_nanos()).unwrap()
}

/// Who terminates the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Winddown,
    /// winddown with the kubelet's own credentials, as `winddown install --companion` sets it up.
    WinddownAsKubelet,
    Kubelet,
}

const BY: [(By, &str); 3] = [
    (By::Winddown, "winddown"),
    (By::WinddownAsKubelet, "winddown, with the kubelet's credentials"),
    (By::Kubelet, "the kubelet"),
];

impl By {
    fn ends(self) -> Ends {
        if self == Self::Kubelet { Ends::Kubelet } else { Ends::Winddown }
    }
}

/// A cluster of three nodes.
struct Fleet {
    api: &'static RealApi,
    machines: Vec<Machine>,
    ways: Ways,
    /// What the nodes see as one folder.
    shared: TempDir,
}

impl Fleet {
    /// The nodes, ready. None, after saying so, where a program is missing.
    async fn set(test: &str, by: By) -> TestResult<Option<Self>> {
        let Some(api) = RealApi::cluster(&format!("{test}-{by:?}")).await else { return Ok(None) };
        let ends = by.ends();
        let shared = tempfile::tempdir()?;
        for folder in ["logs", "locks"] {
            std::fs::create_dir(shared.path().join(folder))?;
        }
        let program = workload().await?;
        let mut fleet = Self { api, machines: Vec::new(), ways: Arc::default(), shared };
        for number in 1..=NODES {
            let place = Some(Place { number, shared: fleet.shared.path().to_owned() });
            let wanted = Wanted { pods: Vec::new(), seconds: GRACE, place, ..Wanted::by(ends) };
            let Some(machine) = Machine::joined(api, test, wanted).await? else { return Ok(None) };
            machine.scenario.node.install(&program, objects::PROGRAM)?;
            match by {
                By::Winddown => machine.give_agent_its_rights().await?,
                By::WinddownAsKubelet | By::Kubelet => machine.leave_pods_to(ends).await?,
            }
            fleet.machines.push(machine);
            fleet.find_way(usize::from(number) - 1)?;
        }
        Ok(Some(fleet))
    }

    fn find_way(&self, at: usize) -> TestResult {
        let machine = &self.machines[at];
        let way = machine.scenario.node.dialer()?;
        self.ways.lock().unwrap().insert(machine.node.clone(), way);
        Ok(())
    }

    /// Waits until all servers and identities are ready.
    async fn is_whole(&self) -> TestResult {
        let admin = self.api.admin().await;
        let servers: Api<Deployment> = Api::namespaced(admin.clone(), NAMESPACE);
        let keepers: Api<StatefulSet> = Api::namespaced(admin, NAMESPACE);
        self.machines[0]
            .eventually("servers and identities are ready", async || {
                for app in objects::SERVERS {
                    let status = servers.get(app).await.ok().and_then(|set| set.status);
                    if status.and_then(|set| set.available_replicas) != Some(objects::EACH) {
                        return false;
                    }
                }
                let keepers = keepers.get("store").await.ok().and_then(|set| set.status);
                keepers.is_some_and(|set| set.ready_replicas == Some(objects::KEEPERS))
            })
            .await
    }

    async fn job_is_done(&self) -> TestResult {
        let jobs: Api<Job> = Api::namespaced(self.api.admin().await, NAMESPACE);
        self.machines[0]
            .eventually("the Job is complete or failed", async || {
                let status = jobs.get("work").await.ok().and_then(|job| job.status);
                status.is_some_and(|status| {
                    let conditions = status.conditions.unwrap_or_default();
                    conditions.iter().any(|one| {
                        one.status == "True" && ["Complete", "Failed"].contains(&one.type_.as_str())
                    })
                })
            })
            .await
    }

    /// Reboots a node, and waits until it and the workloads are as before.
    async fn reboot(&mut self, at: usize, ends: Ends) -> TestResult<Turn> {
        let machine = &mut self.machines[at];
        let asked = now();
        machine.scenario.node.shut_down(&["systemctl", "reboot"]).await?;
        machine.scenario.node.wait_off(DOWN).await?;
        let off = now();
        let report = match ends {
            Ends::Winddown => machine.scenario.newest_report()?,
            Ends::Kubelet | Ends::Requests => serde_json::Value::Null,
        };
        // It says so in whole seconds.
        let since = jiff::Timestamp::from_nanosecond(i128::from(off))?;
        sleep(OFF).await;
        machine.boot_again().await?;
        self.find_way(at)?;
        let machine = &self.machines[at];
        let nodes: Api<Node> = Api::all(self.api.admin().await);
        machine
            .eventually("the node is ready and open", async || {
                let spec = nodes.get(&machine.node).await.ok().and_then(|node| node.spec);
                let is_open = spec.is_some_and(|spec| {
                    spec.unschedulable != Some(true) && spec.taints.unwrap_or_default().is_empty()
                });
                is_open && machine.ready_at().await.is_some_and(|at| at > since)
            })
            .await?;
        let open = now();
        if ends == Ends::Winddown {
            machine.scenario.lock_is_back().await?;
        }
        self.is_whole().await?;
        let whole = now();
        let report = report["outcome"].as_str().unwrap_or("none").to_owned();
        Ok(Turn { node: self.machines[at].node.clone(), asked, off, open, whole, report })
    }
}

/// Plays the rounds. None, after saying so, where a program is missing.
async fn play(test: &str, by: By, rounds: usize) -> TestResult<Option<Account>> {
    let Some(mut fleet) = Fleet::set(test, by).await? else { return Ok(None) };
    fleet.api.namespace(NAMESPACE).await;
    let work = WORK * usize::from(NODES) * rounds;
    fleet.api.apply(&objects::all(NAMESPACE, work)).await;
    fleet.is_whole().await?;
    let admin = fleet.api.admin().await;
    let slices = Api::namespaced(admin, NAMESPACE);
    let client = Client::start(slices, Arc::clone(&fleet.ways));
    client::settle().await;
    let mut turns = Vec::new();
    for turn in 0..rounds * usize::from(NODES) {
        let turn = fleet.reboot(turn % usize::from(NODES), by.ends()).await?;
        println!(
            "{by:?}: {turn:?}: off, open, whole {:?}; {} lost so far",
            turn.times(),
            client.lost()
        );
        turns.push(turn);
        client::settle().await;
    }
    fleet.job_is_done().await?;
    let counted = client.stop().await;
    let account = Account::of(&fleet, turns, counted).await?;
    fleet.machines.clear();
    fleet.api.stop();
    Ok(Some(account))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_rebooted_in_turn_by_winddown_and_by_the_kubelet_itself() -> TestResult {
    let test = "three_nodes_rebooted_in_turn_by_winddown_and_by_the_kubelet_itself";
    if !in_long_form(test, "three nodes take minutes") {
        return Ok(());
    }
    let rounds = number(ROUNDS);
    let mut table = HEAD.to_owned();
    let chosen = std::env::var(CHOICE).ok();
    for (by, who) in BY {
        if chosen.as_ref().is_some_and(|chosen| !who.contains(chosen.as_str())) {
            continue;
        }
        let Some(account) = play(test, by, rounds).await? else { return Ok(()) };
        println!("{account:#?}");
        if by.ends() == Ends::Winddown {
            account.check();
        }
        table += &account.row(who);
    }
    println!("{table}");
    if std::env::var_os("WINDDOWN_WRITE_PAGES").is_some() && chosen.is_none() {
        replace_between(Path::new(PAGE), MARKS, &table)?;
    }
    Ok(())
}
