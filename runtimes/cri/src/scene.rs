//! What tests of a part begin with: a runtime that is served by a fake, and a pod for it.

use std::path::Path;

use serde_json::{Value, json};
use winddown_runtimes_tests::FakeCri;
use winddown_shared::{Pod, WallClock, WallTime};

use crate::{CriConfig, CriRuntime};

/// A pod with one container, `main`.
pub(crate) async fn scene(dir: &Path) -> (FakeCri, CriConfig, CriRuntime, Pod) {
    scene_of(dir, &json!({"containers": [{"name": "main", "image": "app:1"}]})).await
}

/// A pod with this `spec`, whose containers run `app:1`.
pub(crate) async fn scene_of(dir: &Path, spec: &Value) -> (FakeCri, CriConfig, CriRuntime, Pod) {
    let mut config = CriConfig::below(dir);
    // What started at 0 counts as never started.
    config.wall = WallClock::fixed(WallTime::from_second(1000).unwrap());
    let cri = FakeCri::start(&dir.join("cri.sock"), config.wall.clone());
    cri.set_image("app:1", true);
    let runtime = CriRuntime::open(config.clone()).await.unwrap();
    let metadata = json!({"name": "web", "namespace": "n", "uid": "u"});
    let object = json!({"metadata": metadata, "spec": spec});
    (cri, config, runtime, Pod::new(serde_json::from_value(object).unwrap()).unwrap())
}
