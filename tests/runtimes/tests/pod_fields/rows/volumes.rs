//! Volumes and where containers find them.

use serde_json::json;

use super::{group, plain};
use crate::table::{Group, harmless, no, rows, yes};

pub(super) fn groups() -> Vec<Group> {
    vec![
        group(
            "Volume",
            "spec.volumes[0]",
            json!({"name": "data"}),
            rows! {
                awsElasticBlockStore = {"volumeID": "v"} => no(), no();
                azureDisk = {"diskName": "d", "diskURI": "u"} => no(), no();
                azureFile = {"secretName": "s", "shareName": "s"} => no(), no();
                cephfs = {"monitors": ["m"]} => no(), no();
                cinder = {"volumeID": "v"} => no(), no();
                configMap = {"name": "c"} => no(), no().resolved("volumes_become_read_only_directories_of_the_host");
                csi = {"driver": "d"} => no(), no();
                downwardAPI = {"items": []} => no(), no().resolved("a_pods_own_facts_are_files");
                emptyDir = {} => no(), yes("a_container_finds_what_its_spec_promises");
                ephemeral = {"volumeClaimTemplate": {"spec": {}}} => no(), no();
                fc = {"lun": 1} => no(), no();
                flexVolume = {"driver": "d"} => no(), no();
                flocker = {"datasetName": "d"} => no(), no();
                gcePersistentDisk = {"pdName": "d"} => no(), no();
                gitRepo = {"repository": "r"} => no(), no();
                glusterfs = {"endpoints": "e", "path": "p"} => no(), no();
                hostPath = {"path": "/data"} => no(), yes("a_host_path_must_be_what_its_type_says");
                image = {"reference": "r"} => no(), no();
                iscsi = {"iqn": "i", "lun": 1, "targetPortal": "t"} => no(), no();
                name = "scratch" with {"emptyDir": {}} => no(), yes("a_container_finds_what_its_spec_promises").but(json!(".."));
                nfs = {"server": "s", "path": "/"} => no(), no();
                persistentVolumeClaim = {"claimName": "c"} => no(), no();
                photonPersistentDisk = {"pdID": "d"} => no(), no();
                portworxVolume = {"volumeID": "v"} => no(), no();
                projected = {"sources": []} => no(), no().resolved("later_sources_of_a_projection_win");
                quobyte = {"registry": "r", "volume": "v"} => no(), no();
                rbd = {"image": "i", "monitors": ["m"]} => no(), no();
                scaleIO = {"gateway": "g", "secretRef": {}, "system": "s"} => no(), no();
                secret = {"secretName": "s"} => no(), no().resolved("volumes_become_read_only_directories_of_the_host");
                storageos = {"volumeName": "v"} => no(), no();
                vsphereVolume = {"volumePath": "p"} => no(), no();
            },
        ),
        plain(
            "EmptyDirVolumeSource",
            "spec.volumes[0].emptyDir",
            rows! {
                medium = "Memory" => no(), yes("a_container_finds_what_its_spec_promises").but(json!("HugePages"));
                mode = 448 => no(), no();
                sizeLimit = "1Mi" => no(), yes("storage_limit_evictions_of_a_writable_layer_of_logs_and_of_an_empty_dir");
            },
        ),
        group(
            "HostPathVolumeSource",
            "spec.volumes[0].hostPath",
            json!({"path": "/data"}),
            rows! {
                path = "/srv" => no(), yes("a_container_finds_what_its_spec_promises").but(json!("/srv/../etc"));
                type = "Directory" => no(), yes("a_host_path_must_be_what_its_type_says");
            },
        ),
        group(
            "VolumeMount",
            "spec.containers[0].volumeMounts[0]",
            json!({"name": "data", "mountPath": "/data"}),
            rows! {
                bindMountOptions = ["noexec"] => no(), no();
                mountPath = "/srv" => no(), yes("a_mount_is_what_its_spec_says").but(json!("srv"));
                mountPropagation = "HostToContainer" => no(), yes("a_mount_is_what_its_spec_says");
                name = "data" => no(), yes("a_mount_is_what_its_spec_says").but(json!("other"));
                readOnly = true => no(), yes("a_mount_is_what_its_spec_says");
                recursiveReadOnly = "IfPossible" => no(), harmless("not possible here").but(json!("Enabled"));
                subPath = "a/b" => no(), yes("a_container_finds_what_its_spec_promises").but(json!("../b"));
                subPathExpr = "$(A)" => no(), yes("a_path_needs_a_value_for_each_variable_and_takes_what_only_looks_like_one");
            },
        ),
    ]
}
