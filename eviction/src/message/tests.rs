use k8s_openapi::api::core::v1::ResourceRequirements;
use winddown_shared::{ContainerStats, DiskUse, PressureCondition};

use super::*;
use crate::tests::{bytes as number, changed, container, quantities};

fn uses(name: &str, memory: &str) -> ContainerStats {
    let memory_working_set = Some(number(memory));
    ContainerStats { name: name.into(), memory_working_set, ..ContainerStats::default() }
}

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap()
}

fn met() -> (Quantity, Quantity) {
    (quantity("2Gi"), bytes(number("1500Mi")))
}

const LOW: &str =
    "The node was low on resource: memory. Threshold quantity: 2Gi, available: 1500Mi. ";

fn of(pod: &Pod, containers: Vec<ContainerStats>) -> Message {
    let stats = {
        let mut stats = PodStats::default();
        stats.containers = containers;
        stats
    };
    node_was_low(Resource::Memory, met(), pod, Some(&stats))
}

#[test]
fn eviction_message_of_a_pod_in_which_none_exceeds_its_request() {
    let pod = changed("p", 0, &[("memory", "300Mi")], |_| {});
    let message = of(&pod, vec![uses("main", "300Mi")]);
    assert_eq!(message.text, LOW);
    let annotations = [
        ("offending_containers", String::new()),
        ("offending_containers_usage", String::new()),
        ("starved_resource", "memory".to_owned()),
    ];
    assert_eq!(message.annotations, annotations);
}

#[test]
fn eviction_message_names_containers_of_all_kinds_but_ephemeral_ones_in_the_order_of_the_figures() {
    let pod = changed("p", 0, &[], |object| {
        let spec = object.spec.as_mut().unwrap();
        spec.containers =
            vec![container("a", &[("memory", "100Mi")], &[]), container("b", &[], &[])];
        let mut sidecar = container("side", &[("memory", "1Mi")], &[]);
        sidecar.restart_policy = Some("Always".to_owned());
        spec.init_containers = Some(vec![container("init", &[("memory", "50Mi")], &[]), sidecar]);
    });
    let stats = ["debug", "b", "init", "side", "a"].map(|name| uses(name, "150Mi"));
    let message = of(&pod, stats.into());
    let text = format!(
        "{LOW}Container b was using 150Mi, request is 0, has larger consumption of memory. \
         Container init was using 150Mi, request is 50Mi, has larger consumption of memory. \
         Container side was using 150Mi, request is 1Mi, has larger consumption of memory. \
         Container a was using 150Mi, request is 100Mi, has larger consumption of memory. "
    );
    assert_eq!(message.text, text);
    assert_eq!(message.annotations[0], ("offending_containers", "b,init,side,a".to_owned()));
    let usage = "150Mi,150Mi,150Mi,150Mi".to_owned();
    assert_eq!(message.annotations[1], ("offending_containers_usage", usage));
}

#[test]
fn eviction_message_of_a_pod_with_a_request_of_its_own_names_the_pod() {
    let pod = changed("whole", 0, &[], |object| {
        object.spec.as_mut().unwrap().resources = Some(ResourceRequirements {
            requests: quantities([("memory", "1Gi")]),
            ..ResourceRequirements::default()
        });
    });
    let stats = {
        let mut stats = PodStats::default();
        stats.memory_working_set = Some(number("1.5Gi"));
        stats
    };
    let message = node_was_low(Resource::Memory, met(), &pod, Some(&stats));
    let blamed = "Pod whole was using 1536Mi, request is 1Gi, has larger consumption of memory. ";
    assert_eq!(message.text, format!("{LOW}{blamed}"));
    assert_eq!(message.annotations[0], ("offending_pod", "whole".to_owned()));
    assert_eq!(message.annotations[1], ("offending_pod_usage", "1536Mi".to_owned()));
}

#[test]
fn eviction_message_without_figures_blames_no_container_and_has_no_annotations() {
    let message = node_was_low(Resource::Memory, met(), &changed("p", 0, &[], |_| {}), None);
    assert_eq!(message, Message { text: LOW.to_owned(), annotations: Vec::new() });
}

#[test]
fn disk_pressure_verify_pod_status_counts_writable_layer_and_logs_if_both_are_known() {
    let pod = changed("p", 0, &[("ephemeral-storage", "100Mi")], |_| {});
    let part = |quantity| Some(DiskUse { bytes: number(quantity), inodes: 1, is_partial: false });
    let main = |logs| ContainerStats {
        name: "main".into(),
        rootfs: part("600Mi"),
        logs,
        ..ContainerStats::default()
    };
    let text = |logs| {
        let stats = {
            let mut stats = PodStats::default();
            stats.containers = vec![main(logs)];
            stats
        };
        let met = (quantity("2Gi"), bytes(number("1.5Gi")));
        node_was_low(Resource::EphemeralStorage, met, &pod, Some(&stats)).text
    };
    let low = "The node was low on resource: ephemeral-storage. Threshold quantity: 2Gi, \
               available: 1536Mi. ";
    let blamed = "Container main was using 700Mi, request is 100Mi, has larger consumption of \
                  ephemeral-storage. ";
    assert_eq!(text(part("100Mi")), format!("{low}{blamed}"));
    assert_eq!(text(None), low);
}

#[test]
fn pid_pressure_verify_pod_status_counts_in_thousands() {
    let met = (quantity("1200"), Quantity::new(500, QuantityFormat::DecimalSi));
    let message = node_was_low(Resource::Tasks, met, &changed("p", 0, &[], |_| {}), None);
    let text = "The node was low on resource: pids. Threshold quantity: 1200, available: 500. ";
    assert_eq!(message.text, text);
    assert_eq!(quantity("1000").to_string(), "1k");
}

#[test]
fn the_other_texts_are_the_kubelets_byte_for_byte() {
    assert_eq!(
        node_had_condition(
            [PressureCondition::Disk, PressureCondition::Memory].into_iter().collect()
        ),
        "The node had condition: [MemoryPressure DiskPressure]. "
    );
    assert_eq!(
        empty_dir_over("scratch", quantity("1Gi")),
        "Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Gi\". "
    );
    assert_eq!(
        pod_over(quantity("2Gi")),
        "Pod ephemeral local storage usage exceeds the total limit of containers 2Gi. "
    );
    assert_eq!(
        container_over("web", quantity("1Gi")),
        "Container web exceeded its local ephemeral storage limit \"1Gi\". "
    );
}
