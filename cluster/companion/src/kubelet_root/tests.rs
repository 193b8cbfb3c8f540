use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

const CLAIMED: bool = true;
const UNCLAIMED: bool = false;

/// The process of the container runtime.
const RUNTIME: u32 = 7;
/// The line of a table of mounts for the file system of everything.
const DISK: &str = "1 2 9:1 / / rw - ext4 x rw\n";

/// A kubelet's root directory, with the mounts that the container runtime sees. This process and process 1 see the disk.
struct Scene(TempDir);

impl Scene {
    /// `mounts`: pairs of a file system type and a path below the root.
    fn new(mounts: &[(&str, &str)]) -> Self {
        let scene = Self(tempfile::tempdir().unwrap());
        let root = scene.0.path().display();
        let line =
            |(kind, place): &(&str, &str)| format!("1 2 8:1 / {root}/{place} rw - {kind} x rw\n");
        let theirs: String = mounts.iter().map(line).collect();
        scene.write(&format!("proc/{RUNTIME}/mountinfo"), &format!("{DISK}{theirs}"));
        ["self", "1"].iter().for_each(|own| scene.write(&format!("proc/{own}/mountinfo"), DISK));
        scene
    }

    fn write(&self, place: &str, text: &str) {
        let path = self.0.path().join(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn claims(&self, version: &str, list: &Value) {
        let data =
            json!({"kind": "DRACheckpoint", "apiVersion": version, "ClaimInfoStateList": list});
        let text = json!({"Data": data.to_string(), "Checksum": 1}).to_string();
        self.write(CLAIMS, &text);
    }

    /// What is held for pod `u1`, with paths relative to the root.
    fn held(&self, has_claims: bool) -> Result<Vec<String>, String> {
        self.shown(self.look().of(&PodUid::new("u1"), has_claims))
    }

    fn unused_volumes(&self) -> Vec<String> {
        self.shown(self.look().unused_volumes()).unwrap()
    }

    fn look(&self) -> KubeletHolds {
        self.root(self.0.path()).look(RUNTIME).unwrap()
    }

    fn root(&self, root: &Path) -> KubeletRoot {
        KubeletRoot { root: root.into(), proc: self.0.path().join("proc") }
    }

    fn shown(&self, found: Result<Vec<String>, NodeError>) -> Result<Vec<String>, String> {
        let root = format!("{}/", self.0.path().display());
        let found = found.map_err(|error| error.to_string())?;
        Ok(found.into_iter().map(|one| one.replace(&root, "")).collect())
    }
}

#[test]
fn mounts_of_a_pod_and_raw_devices_that_are_handed_to_it_are_held_and_memory_is_not() {
    let device = "plugins/kubernetes.io/csi/volumeDevices/publish/pv1";
    let scene = Scene::new(&[
        ("ext4", "pods/u1/volumes/kubernetes.io~csi/pv1/mount"),
        ("tmpfs", "pods/u1/volumes/kubernetes.io~projected/token"),
        ("ext4", "pods/u10/volumes/kubernetes.io~csi/pv2/mount"),
        // On a node that runs in a container, device files are in memory.
        ("devtmpfs", &format!("{device}/u1")),
        ("tmpfs", "plugins/kubernetes.io/csi/volumeDevices/pv1/dev/u1"),
        ("devtmpfs", &format!("{device}/u2")),
    ]);
    let held = [
        "pods/u1/volumes/kubernetes.io~csi/pv1/mount",
        "plugins/kubernetes.io/csi/volumeDevices/publish/pv1/u1",
        "plugins/kubernetes.io/csi/volumeDevices/pv1/dev/u1",
    ];
    assert_eq!(scene.held(UNCLAIMED).unwrap(), held);
}

#[test]
fn a_directory_that_is_a_link_holds_what_is_mounted_below_its_target() {
    let scene = Scene::new(&[("ext4", "pods/u1/volumes/kubernetes.io~csi/pv1/mount")]);
    let link = scene.0.path().join("link");
    std::os::unix::fs::symlink(scene.0.path(), &link).unwrap();
    let held = scene.root(&link).look(RUNTIME).unwrap().of(&PodUid::new("u1"), UNCLAIMED);
    assert_eq!(held.unwrap().len(), 1);
}

#[test]
fn what_only_the_container_runtime_sees_is_held_and_without_the_runtime_it_is_unknown() {
    let volume = "pods/u1/volumes/kubernetes.io~csi/pv1/mount";
    let scene = Scene::new(&[("ext4", volume)]);
    assert_eq!(scene.held(UNCLAIMED).unwrap(), [volume]);
    let root = scene.root(scene.0.path());
    assert!(root.look(8).unwrap_err().why.contains("proc/8/mountinfo cannot be read"));
    scene.write(&format!("proc/{RUNTIME}/mountinfo"), "1 2 9:2 / / rw - ext4 x rw\n");
    assert!(root.look(RUNTIME).unwrap_err().why.contains("nowhere among the mounts"));
}

#[test]
fn a_staged_volume_is_unused_when_no_pod_has_it_any_more() {
    let staged =
        |volume: &str| format!("plugins/kubernetes.io/csi/disk.example/{volume}/globalmount");
    let data = |handle: &str| {
        json!({"driverName": "disk.example", "volumeHandle": handle, "specVolID": "pv"}).to_string()
    };
    let (a, b) = (staged("a"), staged("b"));
    let scene = Scene::new(&[("ext4", &a), ("ext4", &b)]);
    scene.write(&a.replace("globalmount", VOLUME), &data("a"));
    scene.write(&b.replace("globalmount", VOLUME), &data("b"));
    scene.write("pods/u2/volumes/kubernetes.io~csi/pv/vol_data.json", &data("b"));
    scene.write("pods/stray", "");
    assert_eq!(scene.held(CLAIMED).unwrap(), [""; 0]);
    assert_eq!(scene.unused_volumes(), std::slice::from_ref(&a));
    // A volume file that cannot be parsed may be of a volume that no pod uses.
    scene.write(&b.replace("globalmount", VOLUME), "{");
    assert_eq!(scene.unused_volumes(), [a, b]);
}

#[test]
fn a_claim_is_held_until_the_kubelet_has_had_it_unprepared() {
    let scene = Scene::new(&[]);
    assert_eq!(scene.held(CLAIMED).unwrap(), [""; 0], "a kubelet without claims");
    let claim = |name: &str, pods: Value| {
        json!({
            "ClaimUID": name, "ClaimName": name, "Namespace": "ml", "PodUIDs": pods,
            "DriverState": {"gpu.example": {"Devices": []}},
        })
    };
    let shared = claim("shared", json!({"u1": {}, "u2": {}}));
    scene.claims(CLAIMS_VERSION, &json!([shared, claim("other", json!({"u2": {}}))]));
    assert_eq!(scene.held(CLAIMED).unwrap(), ["the devices of claim ml/shared"]);
    assert_eq!(
        scene.held(UNCLAIMED).unwrap(),
        ["the devices of claim ml/shared"],
        "asked for by amount"
    );
    for list in [json!([claim("shared", json!({"u2": {}}))]), json!([]), Value::Null] {
        scene.claims(CLAIMS_VERSION, &list);
        assert_eq!(scene.held(CLAIMED).unwrap(), [""; 0], "{list}");
    }
}

#[test]
fn claims_that_cannot_be_read_are_unknown_and_not_none() {
    let scene = Scene::new(&[]);
    scene.claims("checkpoint.dra.kubelet.k8s.io/v2", &json!([]));
    assert!(scene.held(CLAIMED).unwrap_err().contains("v2"));
    for text in ["", "{}", r#"{"Data": "{}"}"#, r#"{"Data": 1}"#, "[", r#"{"Data": "["}"#] {
        scene.write(CLAIMS, text);
        assert!(scene.held(CLAIMED).is_err(), "{text}");
        assert!(scene.held(UNCLAIMED).is_ok(), "a pod without claims does not need it");
    }
    let large = " ".repeat(usize::try_from(MAX_FILE_BYTES).unwrap() + 1);
    scene.write(CLAIMS, &large);
    assert!(scene.held(CLAIMED).unwrap_err().contains("larger than"));
}
