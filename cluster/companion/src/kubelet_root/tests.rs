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
        let line = |(kind, place): &(&str, &str)| format!("8:1 / ROOT/{place} rw - {kind}");
        Self::of_lines(mounts.iter().map(line))
    }

    /// `mounts`: devices, the parts of them that are mounted, and paths below the root.
    fn of_parts(mounts: &[(&str, &str, &str)]) -> Self {
        let line = |(device, part, place): &(&str, &str, &str)| {
            format!("{device} {part} ROOT/{place} rw - ext4")
        };
        Self::of_lines(mounts.iter().map(line))
    }

    fn of_lines(lines: impl Iterator<Item = String>) -> Self {
        let scene = Self(tempfile::tempdir().unwrap());
        let root = scene.0.path().display().to_string();
        let theirs: String =
            lines.map(|line| format!("1 2 {} x rw\n", line.replace("ROOT", &root))).collect();
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
        self.shown(Ok(self.look().unused_volumes())).unwrap()
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
    let csi = "plugins/kubernetes.io/csi/disk.example/1d2f/globalmount";
    for (what, staged) in [
        ("CSI", csi),
        ("ceph-csi", &*format!("{csi}/0001-0009-rook-ceph-2")),
        ("iSCSI", "plugins/kubernetes.io/iscsi/iface-default/10.0.0.1:3260-iqn.x-lun-0"),
        ("Fibre Channel", "plugins/kubernetes.io/fc/[500a0981]-lun-0"),
        ("a local disk", "plugins/kubernetes.io/local-volume/mounts/pv"),
        ("flexVolume", "plugins/kubernetes.io/flexvolume/example/lvm/mounts/pv"),
    ] {
        let other = staged.replace("plugins/", "plugins/other/");
        let in_pod = "pods/u2/volumes/kubernetes.io~any/pv";
        let sub_path = "pods/u2/volume-subpaths/pv/web/0";
        let unused = |mounts: &[(&str, &str, &str)]| Scene::of_parts(mounts).unused_volumes();
        let (volume, beside) = (("8:16", "/", staged), ("8:16", "/", &*other));
        assert_eq!(unused(&[volume, beside]), [staged], "{what}");
        assert_eq!(unused(&[volume, ("8:16", "/", in_pod)]), [""; 0], "{what}");
        assert_eq!(unused(&[volume, ("8:16", "/sub", sub_path)]), [""; 0], "{what}");
        assert_eq!(unused(&[volume, ("8:32", "/", in_pod)]), [staged], "another volume: {what}");
        let (one, two) = (("8:1", "/data/1", staged), ("8:1", "/data/2", in_pod));
        assert_eq!(unused(&[one, two]), [staged], "another directory of a disk: {what}");
    }
}

#[test]
fn a_staged_device_is_unused_when_no_pod_has_it_any_more() {
    let of_csi = |place: &str| format!("plugins/kubernetes.io/csi/volumeDevices/{place}");
    let (staged, published) = (of_csi("staging/pv/0001-0009"), of_csi("publish/pv/u2"));
    fn device(place: &str) -> (&str, &str, &str) {
        ("0:5", "/rbd0", place)
    }
    let unused = |mounts: &[(&str, &str, &str)]| Scene::of_parts(mounts).unused_volumes();
    assert_eq!(unused(&[device(&staged), ("0:5", "/rbd1", &published)]), [&*staged]);
    assert_eq!(unused(&[device(&staged), device(&published)]), [""; 0]);
    assert_eq!(unused(&[device(&staged), device(&of_csi("pv/dev/u2"))]), [""; 0]);
    // Without a mount of its own, it is held for its pod only.
    let in_tree = "plugins/kubernetes.io/iscsi/volumeDevices/iface-default/10.0.0.1:3260-lun-0/u2";
    assert_eq!(unused(&[("0:5", "/sdb", in_tree)]), [""; 0]);
}

#[test]
fn what_a_driver_or_an_administrator_mounts_for_itself_is_no_staged_volume() {
    for place in [
        "plugins",
        "plugins/disk.example/mounts/pool",
        "plugins/kubernetes.io",
        "plugins/kubernetes.io/csi",
        "pods",
    ] {
        assert_eq!(Scene::of_parts(&[("8:16", "/", place)]).unused_volumes(), [""; 0], "{place}");
    }
    // As of a PersistentVolume of a directory, which is mounted for its pods alone.
    let local = "pods/u2/volumes/kubernetes.io~local-volume/pv";
    assert_eq!(Scene::of_parts(&[("8:16", "/disks/a", local)]).unused_volumes(), [""; 0]);
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
