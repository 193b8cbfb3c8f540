//! Containers that are added to a running pod to look into it, with containers.

use serde_json::json;
use winddown_shared::{ContainerKind, Runtime as _};

use crate::bed::{Act, POLITE, exit_of, pod, stop, sync_until};
use crate::stage::Stage;

pub(crate) async fn a_container_to_look_into_a_running_pod_runs_once<S: Stage>(stage: &S) {
    let runtime = stage.open().await;
    let mut spec = json!({"containers": [stage.container("main", POLITE)]});
    let web = pod("web", &spec);
    stage.up(&runtime, &web).await;
    let main = runtime.sync_pod(&web).await.unwrap().status.containers.remove(0);
    let mut debugger = stage.container("debugger", Act::exits(3));
    debugger["targetContainerName"] = json!("main");
    spec["ephemeralContainers"] = json!([debugger]);
    let debugged = pod("web", &spec);
    let seen = sync_until(&runtime, &debugged, |c| c.len() == 2 && exit_of(&c[1]).is_some()).await;
    assert_eq!(seen[0], main);
    assert_eq!((seen[1].kind, seen[1].ready), (ContainerKind::Ephemeral, false));
    assert_eq!(exit_of(&seen[1]).unwrap().exit_code, 3);
    drop(runtime);
    let runtime = stage.open().await;
    let synced = runtime.sync_pod(&debugged).await.unwrap();
    assert_eq!((&synced.ignored[..], synced.again_in), (&[][..], None));
    let after = &synced.status.containers[1];
    assert_eq!((&after.id, after.restart_count, &after.state), (&seen[1].id, 0, &seen[1].state));
    stop(&runtime, &debugged, 20).await;
}
