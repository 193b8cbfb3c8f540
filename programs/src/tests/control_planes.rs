//! The order in which the pods of a control plane end, on the layouts of distributions: `winddown plan shutdown -f`.
//!
//! The layouts have the structure of what the distributions write: names, labels, images, programs. Each pod is one
//! document of the layout's file.

use proptest::prelude::*;
use winddown_shared::{CONFIG_MIRROR_ANNOTATION, Pod};
use winddown_shutdown::{Policy, Role, plan};
use winddown_static_pods::read_manifest;

use super::world::run;

const LAYOUTS: [(&str, &str); 15] = [
    ("bottlerocket", include_str!("control_planes/bottlerocket.yaml")),
    ("eks", include_str!("control_planes/eks.yaml")),
    ("gce", include_str!("control_planes/gce.yaml")),
    ("gke", include_str!("control_planes/gke.yaml")),
    ("k0s", include_str!("control_planes/k0s.yaml")),
    ("k3s", include_str!("control_planes/k3s.yaml")),
    ("k3s-agent", include_str!("control_planes/k3s-agent.yaml")),
    ("kops", include_str!("control_planes/kops.yaml")),
    ("kubeadm", include_str!("control_planes/kubeadm.yaml")),
    ("kubespray", include_str!("control_planes/kubespray.yaml")),
    ("microk8s", include_str!("control_planes/microk8s.yaml")),
    ("openshift", include_str!("control_planes/openshift.yaml")),
    ("own", include_str!("control_planes/own.yaml")),
    ("rke2", include_str!("control_planes/rke2.yaml")),
    ("talos", include_str!("control_planes/talos.yaml")),
];

/// The node's configuration: by roles, with a runtime that takes images.
const CONFIG: &str =
    "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nruntime: cri\nnodeName: cp-1\n";

fn documents(layout: &str) -> impl Iterator<Item = &str> {
    layout.split("\n---\n")
}

#[test]
fn on_every_layout_others_end_first_then_the_api_server_then_etcd() {
    for (name, layout) in LAYOUTS {
        let directory = tempfile::tempdir().unwrap();
        let pods = directory.path().join("pods");
        std::fs::create_dir(&pods).unwrap();
        for (number, text) in documents(layout).enumerate() {
            std::fs::write(pods.join(format!("{number}.yaml")), text).unwrap();
        }
        let config = directory.path().join("config.yaml");
        std::fs::write(&config, CONFIG).unwrap();
        let line = format!("--config {} plan shutdown -f {}", config.display(), pods.display());
        let ran = run(&format!("winddown {line}"));
        assert_eq!(ran.err, "", "{name}");
        insta::assert_snapshot!(name, ran.out);
    }
}

/// The pods of a layout as this node reads them, and as a kubelet's mirror pods show them.
fn pods(layout: &str) -> Vec<Pod> {
    let of_files = documents(layout)
        .map(|text| read_manifest("pod.yaml".as_ref(), text.as_bytes(), "cp-1").unwrap());
    let both = |pod: Pod| {
        let mut mirror = pod.object().clone();
        let hash = mirror.metadata.uid.clone().unwrap();
        mirror.metadata.uid = Some(format!("mirror-{hash}"));
        let annotations = mirror.metadata.annotations.get_or_insert_default();
        annotations.insert(CONFIG_MIRROR_ANNOTATION.to_owned(), hash);
        [pod, Pod::new(mirror).unwrap()]
    };
    of_files.flat_map(both).collect()
}

/// What a pod of the layouts is, by its name: 2 for an etcd, 1 for an API server.
fn known(pod: &Pod) -> u8 {
    match &**pod.name() {
        "etcd-empty-dir-cleanup-cp-1" | "etcd-of-shop-cp-1" => 0,
        name if name.starts_with("etcd") || name.starts_with("store") => 2,
        name if name.starts_with("kube-apiserver") || name.starts_with("front") => 1,
        _ => 0,
    }
}

proptest! {
    #[test]
    fn no_etcd_is_asked_to_end_before_an_api_server_has_ended(
        picks in proptest::collection::vec(any::<proptest::sample::Index>(), 1..30),
        (total, later) in (1..90u64).prop_flat_map(|total| (Just(total), 1..=total)),
        available in proptest::option::of(0..60u64),
    ) {
        let secs = std::time::Duration::from_secs;
        let all: Vec<Pod> = LAYOUTS.iter().flat_map(|(_, layout)| pods(layout)).collect();
        let mut picked: Vec<Pod> = picks.iter().map(|index| index.get(&all).clone()).collect();
        picked.dedup_by(|a, b| a.uid() == b.uid());
        let policy = Policy::by_role(secs(total), secs(later)).unwrap();
        let plan = plan(&picked, &policy, available.map(secs));
        // A group begins when the one before it has ended or its time is over.
        let order: Vec<u8> = plan
            .groups
            .iter()
            .flat_map(|group| group.pods.iter().map(|planned| known(&planned.pod)).max())
            .collect();
        prop_assert!(order.is_sorted(), "{order:?}");
        for group in &plan.groups {
            let kinds = group.pods.iter().map(|planned| known(&planned.pod));
            prop_assert!(kinds.clone().all(|kind| kind != 2) || kinds.clone().all(|kind| kind != 1));
            if group.role == Some(Role::Datastore) {
                prop_assert!(kinds.clone().all(|kind| kind == 2));
            }
        }
    }
}
