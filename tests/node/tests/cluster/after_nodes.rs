//! A rack that goes down at once: the node of the control plane ends its critical pods after its workers.

use std::time::Duration;

use serde_json::Value;
use winddown_apiserver::ApiServer;
use winddown_node_tests::scenario::{GROUPS, SOON, Scenario, Setup, TestResult, seven_pods};
use winddown_node_tests::typed::enter;
use winddown_node_tests::{Bridge, TestPod};

use crate::cluster::bed::{KUBECONFIG, is, setup};
use crate::cluster::power_off::DOWN;
use crate::typed_pages::marked;

const NOTICE: &str = "/run/winddown/notice";

/// The nodes of a rack, one API server, and the ways there.
struct Rack {
    server: ApiServer,
    nodes: Vec<(Scenario, Bridge)>,
}

impl Rack {
    /// A node of the control plane that waits so long for `workers` others. Nothing, after saying so, where no
    /// node can be booted.
    async fn up(test: &str, workers: usize, wait: &str) -> TestResult<Option<Self>> {
        let mut rack = Self { server: ApiServer::start().await?, nodes: Vec::new() };
        let after = format!(
            "shutdownAfterNodes: role=worker\nshutdownAfterNodesTimeout: {wait}\n\
             shutdownAfterNodesPriority: {}\n",
            GROUPS[2]
        );
        if !rack.add(test, "control", &after, seven_pods()).await? {
            return Ok(None);
        }
        for n in 0..workers {
            // It takes as long as two groups of the control plane's node, and more.
            let slow = vec![TestPod::new("slow", 0, 4000)];
            let label = "nodeLabels: {role: worker}\n";
            rack.add(test, &format!("worker-{n}"), label, slow).await?;
        }
        let names = |status: &Value| {
            let nodes = status["cluster"]["afterNodes"]["nodes"].as_array().map(Vec::len);
            nodes == Some(workers)
        };
        let control = rack.control();
        let known = async || control.status().await.is_ok_and(|status| names(&status));
        control
            .node
            .wait_until("the control plane's node to know its workers", SOON, known)
            .await?;
        Ok(Some(rack))
    }

    /// Boots a node of that name and has it join; whether one can be booted here.
    async fn add(
        &mut self,
        test: &str,
        name: &str,
        more: &str,
        pods: Vec<TestPod>,
    ) -> TestResult<bool> {
        let more = format!(
            "{}nodeName: {name}\nshutdownNotices: {{file: {NOTICE}}}\n{more}",
            setup().more
        );
        // A quarter of the time is enough for the wait.
        let setup = Setup { more, seconds: [20, 10, 10], ..Setup::default() };
        let Some(scenario) = Scenario::installed_as(test, pods, &setup).await? else {
            return Ok(false);
        };
        scenario.node.write(KUBECONFIG, self.server.kubeconfig(), 0o600)?;
        let bridge = Bridge::open(&scenario.node, self.server.address()).await?;
        scenario.start().await?;
        let path = format!("nodes/{name}");
        let ready = |all: &winddown_apiserver::Objects<'_>| {
            is(&*all.get(&path)?, "Ready", "True").then_some(())
        };
        self.server.within(SOON, "a node to be ready", ready).await?;
        self.nodes.push((scenario, bridge));
        Ok(true)
    }

    fn control(&self) -> &Scenario {
        &self.nodes[0].0
    }

    /// The workers' pods take four seconds, the control plane's own less.
    fn assert_control_plane_was_last(&self) -> TestResult {
        let workers =
            self.nodes[1..].iter().flat_map(|(scenario, _)| scenario.logs().into_values());
        let last = workers.flat_map(|log| log.exits).max().ok_or("no worker's pod terminated")?;
        let mut asked = self.control().group(GROUPS[2]).into_iter().flat_map(|log| log.terms);
        assert!(asked.all(|at| at > last), "a critical pod was asked before {last}");
        Ok(())
    }

    /// The wait in the control plane's report.
    fn waited(&self) -> TestResult<Value> {
        let report = self.control().newest_report()?;
        assert_eq!(report["outcome"], "clean", "{report:#}");
        let all = report["work"].as_array().into_iter().flatten();
        let mut waits = all.filter(|work| work["what"] == "wait for the nodes that go down first");
        Ok(waits.next().cloned().ok_or("it did not wait")?)
    }
}

#[tokio::test]
async fn a_control_plane_ends_after_its_workers() -> TestResult {
    let test = "a_control_plane_ends_after_its_workers";
    let Some(mut rack) = Rack::up(test, 2, "9s").await? else { return Ok(()) };
    let page = marked("docs/reference/optional-features.md", "rack");
    let [before, after] = &page[..] else { return Err(format!("{page:?}").into()) };
    enter(&mut rack.nodes[0].0.node, before).await?;
    println!("{test}: {}", rack.control().text(&["plan", "shutdown"]).await?);
    for (scenario, _) in &rack.nodes {
        scenario.power_off().await?;
    }
    for (scenario, _) in &mut rack.nodes {
        scenario.node.wait_off(DOWN).await?;
    }
    let work = rack.waited()?;
    println!("{test}: {work:#}");
    assert_eq!(work["outcome"], "done", "{work:#}");
    let said = work["remark"].as_str().unwrap_or_default();
    assert!(
        said.contains("worker-0 was down after") && said.contains("worker-1 was down after"),
        "{said}"
    );
    rack.assert_control_plane_was_last()?;
    let control = &mut rack.nodes[0].0.node;
    control.start().await?;
    enter(control, after).await
}

#[tokio::test]
async fn one_battery_deadline_takes_a_rack_down_in_order() -> TestResult {
    let test = "one_battery_deadline_takes_a_rack_down_in_order";
    let Some(rack) = Rack::up(test, 1, "9s").await? else { return Ok(()) };
    for (scenario, _) in &rack.nodes {
        scenario.node.write(NOTICE, "60s UPS rack: ONBATT\n", 0o644)?;
    }
    let control = rack.control();
    // The report is kept when the pods have ended.
    let reported = async || control.text(&["report"]).await.is_ok();
    control.node.wait_until("the control plane's pods to end", SOON, reported).await?;
    println!("{test}: {}", control.text(&["report"]).await?);
    let work = rack.waited()?;
    assert_eq!(work["outcome"], "done", "{work:#}");
    rack.assert_control_plane_was_last()
}

#[tokio::test]
async fn a_worker_that_never_ends_costs_the_wait_only() -> TestResult {
    let test = "a_worker_that_never_ends_costs_the_wait_only";
    let Some(mut rack) = Rack::up(test, 1, "1s").await? else { return Ok(()) };
    let control = &mut rack.nodes[0].0;
    control.power_off().await?;
    control.node.wait_off(DOWN).await?;
    control.assert_ended_within(Duration::from_secs(2))?;
    let work = rack.waited()?;
    assert_eq!(work["outcome"], "timedOut", "{work:#}");
    assert_eq!(work["remark"], "worker-0 has not reported a clean shutdown");
    Ok(())
}
