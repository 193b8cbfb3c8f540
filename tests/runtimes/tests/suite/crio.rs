//! Where CRI-O does otherwise than containerd: it makes a pod's control group with the pod's first container.

use serde_json::json;
use winddown_cri::CriRuntime;

use crate::bed::{POLITE, pod, run};
use crate::faults::polite;
use crate::stage::Stage as _;
use crate::stages::{Fake, container_of};

#[tokio::test]
async fn a_pods_group_that_comes_with_its_first_container_has_its_weight_from_then_on() {
    let stage = Fake::set().await;
    let mut config = stage.config();
    let groups = stage.dir.path().join("cgroup");
    config.cgroup_mount.clone_from(&groups);
    stage.cri.make_cgroups(&groups);
    let runtime = CriRuntime::open(config).await.unwrap();
    let mut main = container_of("main", POLITE);
    main["resources"] = json!({"requests": {"cpu": "1500m"}});
    run(&runtime, &pod("web", &json!({"containers": [main]}))).await;
    run(&runtime, &polite("batch")).await;
    let classes = groups.join("winddown");
    let weights = ["burstable", "burstable/poduid-web", "besteffort", "besteffort/poduid-batch"];
    let weights = weights.map(|group| {
        std::fs::read_to_string(classes.join(group).join("cpu.weight")).unwrap_or_default()
    });
    assert_eq!(weights, ["59", "59", "1", "1"]);
}
