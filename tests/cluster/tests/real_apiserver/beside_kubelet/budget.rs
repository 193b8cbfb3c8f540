//! A disruption budget that lets no pod go, by the real controller of budgets.

use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use winddown_node_tests::scenario::TestResult;

use super::machine::{Ends, Machine};
use super::{DOWN, say};
use crate::RealApi;

/// The pod that the budget protects: of the first group, which has 6 s.
const PROTECTED: &str = "web-1";
/// Two pods of one controller, which a budget lets never go: of the first group, and of the second, which has 4 s.
pub(super) const GUARDED: [&str; 2] = ["web-1", "queue-0"];
/// Half a retry of an eviction, and a busy machine.
const LATE: Duration = Duration::from_millis(1500);

impl Machine {
    /// Makes a budget that lets the pod of this name never go, and waits until it counts.
    pub(super) async fn protect(&self, pod: &str) -> TestResult {
        let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": pod}}});
        self.make_budget(pod, &spec, 1).await
    }

    /// Has a ReplicaSet adopt these pods, and a budget refuse the eviction of any of them.
    pub(super) async fn guard(&self, pods: [&str; 2]) -> TestResult {
        let selector =
            json!({"matchExpressions": [{"key": "app", "operator": "In", "values": pods}]});
        let of_set = json!({"containers": [{"name": "main", "image": "none"}]});
        let set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": "guarded", "namespace": self.node},
            "spec": {
                "replicas": pods.len(), "selector": selector,
                // There is no scheduler: the pods that take their places stay pending.
                "template": {"metadata": {"labels": {"app": pods[0]}}, "spec": of_set},
            },
        });
        self.api.apply(&[set]).await;
        let spec = json!({"maxUnavailable": 0, "selector": selector});
        self.make_budget("guarded", &spec, 2).await
    }

    /// Makes a budget, and waits until it counts so many pods and allows no disruption.
    async fn make_budget(&self, name: &str, spec: &Value, healthy: i32) -> TestResult {
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": self.node}, "spec": spec,
        });
        self.api.apply(&[budget]).await;
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.api.admin().await, &self.node);
        self.eventually("the budget counts its pods", async || {
            let status = budgets.get(name).await.ok().and_then(|budget| budget.status);
            status.is_some_and(|status| {
                status.current_healthy == Some(healthy) && status.disruptions_allowed == Some(0)
            })
        })
        .await
    }

    /// Fails unless these pods alone were asked late, each after the time that its budget had, the third of its
    /// grace, and the report says so.
    pub(super) fn assert_consent_was_sought(&self, of: [&str; 2]) -> TestResult {
        let (logs, report) = (self.scenario.logs(), self.scenario.newest_report()?);
        for (name, group) in self.groups() {
            let asked = group.iter().flat_map(|pod| &logs[*pod].terms).min();
            let asked = *asked.ok_or("no pod of the group was asked")?;
            let consent = report_of(&report, group[0])?["graceSeconds"].as_f64();
            let consent = Duration::from_secs_f64(consent.ok_or("no grace")? / 3.0);
            for pod in group {
                let late = Duration::from_nanos(logs[pod].terms[0] - asked);
                let remark = &report_of(&report, pod)?["remark"];
                println!("{pod} of {name}, {late:?} after the first, had {consent:?}: {remark}");
                if of.contains(&pod) {
                    // The first one's SIGTERM takes its time, too.
                    let early = consent - Duration::from_millis(200);
                    assert!((early..consent + LATE).contains(&late), "{pod}: {late:?}");
                    assert_names_budget(remark, "guarded");
                } else {
                    assert!(late < LATE, "{pod} waited for those with a budget: {late:?}");
                    assert!(remark.is_null(), "{pod}: {remark}");
                }
            }
        }
        Ok(())
    }

    /// Waits until the plan says so: what the API server answered counts for ten seconds.
    async fn plans(&self, said: &str) -> TestResult {
        self.eventually(said, async || {
            let plan = self.scenario.text(&["plan", "shutdown"]).await;
            plan.is_ok_and(|plan| plan.contains(said))
        })
        .await
    }

    /// Lets the kubelet's own credentials list the budgets, which they may not otherwise.
    async fn lets_budgets_be_read(&self) {
        let name = format!("{}-budgets", self.node);
        let kind = |kind: &str| {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
            })
        };
        let (mut role, mut binding) = (kind("ClusterRole"), kind("ClusterRoleBinding"));
        role["rules"] = json!([
            {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list"]},
        ]);
        let group = "rbac.authorization.k8s.io";
        binding["roleRef"] = json!({"apiGroup": group, "kind": "ClusterRole", "name": name});
        let node = format!("system:node:{}", self.node);
        binding["subjects"] = json!([{"apiGroup": group, "kind": "User", "name": node}]);
        self.api.apply(&[role, binding]).await;
    }
}

/// What the report says of a pod.
fn report_of<'a>(report: &'a Value, name: &str) -> TestResult<&'a Value> {
    let groups = report["groups"].as_array().into_iter().flatten();
    let mut pods = groups.flat_map(|group| group["pods"].as_array().into_iter().flatten());
    Ok(pods.find(|pod| pod["name"] == name).ok_or("it is not in the report")?)
}

/// Fails unless the remark on a pod names the budget that refused, and the deletion after that.
fn assert_names_budget(remark: &Value, budget: &str) {
    let said = remark.as_str().unwrap_or_default();
    assert!(said.starts_with(&format!("the disruption budget {budget} refused for ")), "{said}");
    assert!(said.ends_with("and it was deleted without consent"), "{said}");
}

#[tokio::test]
async fn a_budget_that_refuses_is_named_and_so_is_the_deletion_without_its_consent() -> TestResult {
    let test = "a_budget_that_refuses_is_named_and_so_is_the_deletion_without_its_consent";
    if RealApi::with_controllers(test).await.is_none() {
        return Ok(());
    }
    let Some(mut machine) = Machine::set(test, Ends::Winddown).await? else { return Ok(()) };
    machine.protect(PROTECTED).await?;
    machine.plans("unknown: the API server does not list the disruption budgets").await?;
    machine.lets_budgets_be_read().await;
    let (node, pod) = (&machine.node, PROTECTED);
    machine
        .plans(&format!("! disruption budget {node}/{pod} refuses the eviction of {pod}"))
        .await?;
    let asked = machine.scenario.power_off().await?;
    machine.scenario.node.wait_off(DOWN).await?;
    say(test, asked, &machine.scenario, &machine);
    // The protected pod holds its group up for the third of its grace that the budget has.
    let logs = machine.scenario.logs();
    let others = logs.iter().filter(|(name, _)| name.starts_with("web") && *name != PROTECTED);
    let first = others.flat_map(|(_, log)| &log.terms).min().copied().ok_or("no pod was asked")?;
    let protected = logs[PROTECTED].terms[0];
    let refused = Duration::from_nanos(protected.saturating_sub(first));
    assert!(refused >= Duration::from_secs(1), "it was asked {refused:?} after the others");
    let next = machine.scenario.group(1000).iter().flat_map(|log| log.terms.clone()).min();
    assert!(next > logs[PROTECTED].exits.first().copied(), "the next group did not wait for it");
    for (name, log) in &logs {
        assert_eq!((log.starts.len(), log.exits.len()), (1, 1), "{name}: {log:?}");
    }
    machine.assert_static_pod_was_last()?;

    let report = machine.scenario.newest_report()?;
    let pod = report_of(&report, PROTECTED)?;
    assert_names_budget(&pod["remark"], PROTECTED);
    let sigterm = pod["sigtermMs"].as_u64().unwrap_or_default();
    assert!(sigterm >= 1900, "SIGTERM is said to have come before it could: {sigterm} ms");

    let events: Api<Event> = Api::namespaced(machine.api.admin().await, &machine.node);
    let events = events.list(&ListParams::default()).await?;
    let notes: Vec<Value> = events
        .iter()
        .filter(|event| {
            let of = event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref());
            of == Some(PROTECTED)
                && event.reporting_controller.as_deref().unwrap_or_default().contains("winddown")
        })
        .map(|event| json!([event.reason, event.note]))
        .collect();
    let says = |text: &str| notes.iter().any(|note| note.to_string().contains(text));
    assert!(says("budget"), "no event says that the budget refused: {notes:#?}");
    Ok(())
}
