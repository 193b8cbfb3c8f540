//! Volumes that the kubelet mounts, and that may stay mounted after their pod has ended.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use winddown_node_tests::scenario::TestResult;

use super::machine::{Ends, Machine, WITH_VOLUMES, Wanted};
use super::{DOWN, say};

impl Machine {
    /// Gives the pod a directory of the node as a persistent volume: the kubelet bind-mounts it below its pods'
    /// directory, as the driver of a storage does.
    pub(super) async fn give_volume(&self, pod: &str, object: &mut Value) -> TestResult {
        let volume = format!("{}-{pod}", self.node);
        let path = format!("/var/lib/storage/{pod}");
        self.scenario.node.run(&["mkdir", "-p", &path]).await?;
        let capacity = json!({"storage": "1Gi"});
        let modes = json!(["ReadWriteOnce"]);
        let of_node =
            json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [self.node]});
        let persistent = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
            "spec": {
                "capacity": capacity, "accessModes": modes, "storageClassName": "by-hand",
                "persistentVolumeReclaimPolicy": "Retain", "local": {"path": path},
                "claimRef": {"namespace": self.node, "name": pod},
                "nodeAffinity": {"required": {
                    "nodeSelectorTerms": [{"matchExpressions": [of_node]}],
                }},
            },
        });
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": pod, "namespace": self.node,
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {
                "volumeName": volume, "accessModes": modes, "storageClassName": "by-hand",
                "resources": {"requests": capacity},
            },
        });
        self.api.apply(&[persistent, claim]).await;
        // As the controller of volumes would have bound them.
        let admin = self.api.admin().await;
        let params = PatchParams::default();
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(admin.clone(), &self.node);
        let bound =
            json!({"status": {"phase": "Bound", "accessModes": modes, "capacity": capacity}});
        let claim = claims.patch_status(pod, &params, &Patch::Merge(bound)).await?;
        let volumes: Api<PersistentVolume> = Api::all(admin);
        let uid = json!({"spec": {"claimRef": {"uid": claim.metadata.uid}}});
        volumes.patch(&volume, &params, &Patch::Merge(uid)).await?;
        let bound = json!({"status": {"phase": "Bound"}});
        volumes.patch_status(&volume, &params, &Patch::Merge(bound)).await?;

        let volumes = object["spec"]["volumes"].as_array_mut().ok_or("no volumes")?;
        volumes.push(json!({"name": "data", "persistentVolumeClaim": {"claimName": pod}}));
        let mounts = object["spec"]["containers"][0]["volumeMounts"].as_array_mut();
        mounts.ok_or("no mounts")?.push(json!({"name": "data", "mountPath": "/data"}));
        Ok(())
    }

    /// Keeps the volume of the pod in use for `seconds` after the pod's exit, and writes down when it is
    /// unmounted.
    pub(super) async fn use_volume_of(&self, pod: &str, seconds: &str) -> TestResult {
        let script = format!(
            "of_pod=$(findmnt -rno TARGET | grep 'pods/.*/{node}-{pod}$')
systemd-run --quiet --property=WorkingDirectory=$of_pod sh -c \\
    'until grep -q EXIT {LOGS}/{pod}; do sleep 0.05; done; sleep {seconds}'
systemd-run --quiet sh -c \\
    'while findmnt $0 >/dev/null; do sleep 0.05; done; date +%s%N >/var/log/unmounted-{pod}' $of_pod",
            node = self.node
        );
        self.scenario.node.run(&["sh", "-ec", &script]).await?;
        Ok(())
    }

    /// When it was unmounted, in nanoseconds since 1970.
    pub(super) fn unmounted_at(&self, pod: &str) -> TestResult<u64> {
        let text = self.scenario.node.read(&format!("/var/log/unmounted-{pod}"))?;
        Ok(text.trim().parse()?)
    }
}

/// Where pods write down what happens.
const LOGS: &str = "/var/log/pods-under-test";

#[tokio::test]
async fn static_pods_and_the_lock_wait_for_volumes_that_stay_mounted_and_the_next_group_does_not()
-> TestResult {
    let test =
        "static_pods_and_the_lock_wait_for_volumes_that_stay_mounted_and_the_next_group_does_not";
    let wanted = Wanted { volumes: true, ..Wanted::by(Ends::Winddown) };
    let Some(mut machine) = Machine::set_with(test, wanted).await? else { return Ok(()) };
    for pod in WITH_VOLUMES {
        machine.use_volume_of(pod, "1.5").await?;
    }
    let asked = machine.scenario.power_off().await?;
    machine.scenario.node.wait_off(DOWN).await?;
    say(test, asked, &machine.scenario, &machine);
    let report = machine.scenario.newest_report()?;
    let [in_the_middle, last] = WITH_VOLUMES;
    let logs = machine.scenario.logs();
    for pod in WITH_VOLUMES {
        let held = Duration::from_nanos(machine.unmounted_at(pod)? - logs[pod].exits[0]);
        assert!(held >= Duration::from_millis(1500), "{pod}: {held:?}");
    }
    let next = logs[last].terms[0];
    assert!(next < machine.unmounted_at(in_the_middle)?, "the next group waited");
    let fixed = machine.log_of_static_pod()?.terms[0];
    assert!(
        fixed >= machine.unmounted_at(last)?,
        "the static pod, which ends the kubelet, did not wait"
    );
    let released = machine.scenario.lock_released_at().await?;
    assert!(released >= machine.unmounted_at(last)?, "the lock did not wait");
    for (name, log) in &logs {
        assert_eq!((log.starts.len(), log.exits.len()), (1, 1), "{name}: {log:?}");
    }
    machine.assert_static_pod_was_last()?;
    assert_eq!(report["outcome"], "clean");
    Ok(())
}

#[tokio::test]
async fn a_volume_that_is_never_unmounted_is_named_and_waited_for_within_the_plan() -> TestResult {
    let test = "a_volume_that_is_never_unmounted_is_named_and_waited_for_within_the_plan";
    let wanted = Wanted { volumes: true, ..Wanted::by(Ends::Winddown) };
    let Some(mut machine) = Machine::set_with(test, wanted).await? else { return Ok(()) };
    let [_, last] = WITH_VOLUMES;
    machine.use_volume_of(last, "3600").await?;
    let asked = machine.scenario.power_off().await?;
    machine.scenario.node.wait_off(DOWN).await?;
    say(test, asked, &machine.scenario, &machine);
    let report = machine.scenario.newest_report()?;
    let named =
        report.to_string().contains(&format!("kubernetes.io~local-volume/{}-{last}", machine.node));
    assert!(named, "the report does not name it: {report:#}");
    machine.scenario.assert_logind_was_patient().await?;
    machine.assert_static_pod_was_last()
}
