//! What a container reads of its pod's end, on each stage whose containers run scripts.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;
use winddown_shared::{Grace, KillReason, NodeEnding, Pod, Runtime as _, ShutdownKind};

use crate::bed::{POLITE, eventually, pod, run, secs};
use crate::stage::Stage;

/// Hands the names of all scenarios to a macro.
macro_rules! notice_scenarios {
    ($then:ident $($words:ident)*) => {
        $then! { $($words)* =>
            a_pod_reads_of_the_end_of_the_node_and_of_its_own
        }
    };
}
pub(crate) use notice_scenarios;

/// Copies what it reads, and says when there is nothing any more. Copied by another name first: a reader must not
/// see half of it.
const READER: &str = r#"
keep() { cat "$WINDDOWN_NOTICE" > "$GATES/part" && mv "$GATES/part" "$GATES/$1"; }
trap 'keep asked; exit 0' TERM
echo x > "${WINDDOWN_NOTICE%/*}/x" 2>/dev/null && echo yes > "$GATES/wrote"
echo up
seen=
while :; do
  if [ -e "$WINDDOWN_NOTICE" ]; then keep seen && seen=1; elif [ "$seen" ]; then echo > "$GATES/gone"; fi
  sleep 0.05 & wait $!
done"#;
const HOOK: &str = r#"cat "$WINDDOWN_NOTICE" > "$GATES/hook"; echo "$WINDDOWN_REASON $WINDDOWN_DEADLINE" > "$GATES/env""#;

fn reader<S: Stage>(stage: &S) -> Pod {
    let mut main = stage.container("main", POLITE);
    main["command"] = json!(["/bin/sh", "-c", READER]);
    main["env"] = json!([{"name": "GATES", "value": stage.gates()}]);
    main["lifecycle"] = json!({"preStop": {"exec": {"command": ["/bin/sh", "-c", HOOK]}}});
    let mut spec = json!({});
    if S::HAS_OWN_FILES {
        main["volumeMounts"] = json!([{"name": "gates", "mountPath": stage.gates()}]);
        spec["volumes"] = json!([{"name": "gates", "hostPath": {"path": stage.gates()}}]);
    }
    spec["containers"] = json!([main]);
    pod("reader", &spec)
}

fn read(path: &Path) -> Option<Value> {
    serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()
}

pub(crate) async fn a_pod_reads_of_the_end_of_the_node_and_of_its_own<S: Stage>(stage: &S) {
    let runtime = stage.open().await;
    let (pod, gates) = (reader(stage), stage.gates());
    run(&runtime, &pod).await;
    stage.hears(&pod).await;
    let ending = NodeEnding {
        reason: KillReason::Shutdown,
        node_action: Some(ShutdownKind::Reboot),
        deadline: Instant::now() + secs(60),
        requested_by: None,
        notice: Some("aws: spot instance is reclaimed".to_owned()),
    };
    runtime.announce(Some(Arc::new(ending)));
    eventually("the pod reads of the shutdown", || gates.join("seen").exists()).await;
    let seen = read(&gates.join("seen")).unwrap();
    assert_eq!((&seen["reason"], &seen["nodeAction"]), (&json!("shutdown"), &json!("reboot")));
    assert_eq!(seen["stopping"], false);
    runtime.announce(None);
    eventually("the pod reads that it was cancelled", || gates.join("gone").exists()).await;

    let grace = Grace::fixed(secs(20)).with_reason(KillReason::Eviction);
    assert!(!runtime.stop_pod(pod.uid(), Some(&pod), grace).await.unwrap().forced());
    for by in ["hook", "asked"] {
        let notice = read(&gates.join(by)).unwrap();
        assert_eq!((&notice["reason"], &notice["stopping"]), (&json!("eviction"), &json!(true)));
    }
    let env = std::fs::read_to_string(gates.join("env")).unwrap();
    let told = env.starts_with("eviction 2");
    // No call of a container runtime's gives a command an environment of its own.
    assert_eq!(told, !S::HAS_OWN_FILES, "{env}");
    if S::HAS_OWN_FILES {
        assert!(!gates.join("wrote").exists(), "its directory is there to be read");
    }
    assert!(stage.notices().join("uid-reader").exists());
    stage.clean(&runtime, pod.uid()).await;
    eventually("it is gone", || !stage.notices().join("uid-reader").exists()).await;
}
