//! What a stopped pod holds on the machine, on a real containerd.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use winddown_shared::{Runtime as _, error_chain};

use crate::bed::{Act, POLITE, clean, eventually, pod, stop};
use crate::real::set;
use crate::stage::Stage as _;
use crate::stages::container_of;

/// Where the descriptors of this process lead to.
fn open_files() -> Vec<PathBuf> {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    all.filter_map(|file| std::fs::read_link(file.path()).ok()).collect()
}

#[tokio::test]
async fn the_mounts_of_a_container_that_ends_are_held_until_its_pod_is_cleaned_up() {
    let Some(stage) = set("the mounts of a container that ends are held").await else { return };
    let runtime = stage.open_now().await;
    let mut main = container_of("main", Act { stop: "gate", ..POLITE });
    let gate = stage.gates().join("gate");
    main["command"].as_array_mut().unwrap().push(json!(gate));
    main["volumeMounts"] = json!([{"name": "gates", "mountPath": stage.gates()}]);
    let pod = pod(
        "web",
        &json!({"containers": [main],
            "volumes": [{"name": "gates", "hostPath": {"path": stage.gates()}}]}),
    );
    stage.up(&runtime, &pod).await;
    let pid = stage.containerd.pids_of("act forever")[0];
    let namespace = std::fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap();
    let open = async {
        eventually("it is held", || open_files().contains(&namespace)).await;
        std::fs::write(&gate, []).unwrap();
    };
    let (stopped, ()) = tokio::join!(stop(&runtime, &pod, 300), open);
    assert!(!stopped.forced());
    assert!(open_files().contains(&namespace), "let go before the pod was cleaned up");
    clean(&runtime, pod.uid()).await;
    assert!(!open_files().contains(&namespace), "held for ever");
}

#[tokio::test]
async fn a_volume_that_is_in_use_is_named_with_its_holder_and_released_later() {
    let Some(stage) = set("a volume that is in use").await else { return };
    let runtime = stage.open_now().await;
    let mut main = container_of("main", POLITE);
    main["volumeMounts"] = json!([{"name": "fast", "mountPath": "/fast"}]);
    let volumes = json!([{"name": "fast", "emptyDir": {"medium": "Memory"}}]);
    let pod = pod("web", &json!({"containers": [main], "volumes": volumes}));
    stage.up(&runtime, &pod).await;
    let volume = stage.dir.path().join("state/pods/uid-web/volumes/fast");
    let shown = volume.display().to_string();
    assert_eq!(runtime.mounts(pod.uid()).await.unwrap(), std::slice::from_ref(&shown));
    let file = std::fs::File::create(volume.join("log")).unwrap();
    stop(&runtime, &pod, 20).await;
    let error = error_chain(&runtime.clean_pod(pod.uid()).await.unwrap_err());
    let holder = format!("{shown} is in use by process {} (", std::process::id());
    assert!(error.contains("the volumes of pod default/web") && error.contains(&holder), "{error}");
    assert_eq!(runtime.mounts(pod.uid()).await.unwrap(), [shown]);
    drop(file);
    // Errors are tried again, as the pod workers do: a sandbox's shim may be going as it is asked.
    let cleaned = async {
        while let Err(error) = runtime.clean_pod(pod.uid()).await {
            println!("not yet: {}", error_chain(&error));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), cleaned).await.unwrap();
    assert_eq!(runtime.mounts(pod.uid()).await.unwrap(), [""; 0]);
}
