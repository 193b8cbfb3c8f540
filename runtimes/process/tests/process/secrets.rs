use std::path::Path;
use std::time::Duration;

use serde_json::json;
use winddown_shared::{Grace, Pod, Runtime as _};

use crate::bed::{Bed, eventually, files_below, sh};

const VALUE: &str = "s3cret-value";

fn holders(dir: &Path) -> Vec<String> {
    let files = files_below(dir).into_iter();
    let holds = |path: &std::path::PathBuf| {
        String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).contains(VALUE)
    };
    files.filter(holds).map(|path| path.display().to_string()).collect()
}

/// The pod as `kubectl apply` sends it: with a copy of itself in an annotation.
fn applied(pod: &Pod) -> Pod {
    let mut object = pod.object().clone();
    let whole = serde_json::to_string(&object).unwrap();
    let name = "kubectl.kubernetes.io/last-applied-configuration".to_owned();
    object.metadata.annotations.get_or_insert_default().insert(name, whole);
    Pod::new(object).unwrap()
}

#[tokio::test]
async fn values_of_the_environment_are_kept_in_memory_only_and_hooks_have_them_after_a_restart() {
    let bed = Bed::new();
    let said = bed.path("said").display().to_string();
    let mut main = sh("main", "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done");
    main["env"] = json!([{"name": "TOKEN", "value": VALUE}]);
    main["lifecycle"] = json!({"preStop": {"exec": {"command":
        ["/bin/sh", "-c", format!("echo $TOKEN | tr a-z A-Z > {said}")]}}});
    let pod = applied(&bed.pod_of(&json!({"containers": [main]})));
    let runtime = bed.open().await;
    bed.bring_up(&runtime, &pod).await;
    assert_eq!(holders(&bed.path("state")), Vec::<String>::new());
    assert_eq!(holders(&bed.path("run")).len(), 1);
    drop(runtime);
    let runtime = bed.open().await;
    runtime.stop_pod(pod.uid(), None, Grace::fixed(Duration::from_secs(20))).await.unwrap();
    assert_eq!(std::fs::read_to_string(&said).unwrap(), "S3CRET-VALUE\n");
    runtime.forget_pod(pod.uid()).await.unwrap();
    eventually("nothing is kept", || files_below(&bed.path("run")).is_empty()).await;
    for directory in ["state/pods", "logs"] {
        assert_eq!(std::fs::read_dir(bed.path(directory)).unwrap().count(), 0, "{directory}");
    }
}

#[tokio::test]
async fn values_that_an_earlier_version_wrote_to_the_disk_are_taken_off_it() {
    let bed = Bed::new();
    let mut main = sh("main", "exec sleep 1000");
    main["env"] = json!([{"name": "TOKEN", "value": VALUE}]);
    let pod = applied(&bed.pod_of(&json!({"containers": [main]})));
    let runtime = bed.open().await;
    runtime.sync_pod(&pod).await.unwrap();
    let before = runtime.pod_status(pod.uid()).await.unwrap().started_at;
    drop(runtime);
    let record = bed.path(&format!("state/pods/{}/pod.json", pod.uid()));
    let written = std::fs::metadata(&record).unwrap().modified().unwrap();
    std::fs::write(&record, serde_json::to_vec(pod.object()).unwrap()).unwrap();
    std::fs::File::options().append(true).open(&record).unwrap().set_modified(written).unwrap();
    let runtime = bed.open().await;
    assert_eq!(holders(&bed.path("state")), Vec::<String>::new());
    assert_eq!(&*runtime.list_pods().await.unwrap()[0].name, "web");
    assert!(before.is_some() && std::fs::metadata(&record).unwrap().modified().unwrap() == written);
    runtime.stop_pod(pod.uid(), None, Grace::fixed(Duration::from_millis(1))).await.unwrap();
}
