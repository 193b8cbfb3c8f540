//! What runs in the cluster: a service, a job, one pod for each of three identities, and one for each node.

use serde_json::{Value, json};
use winddown_node_tests::{IMAGE, SHARED};

/// The path of the pods' program in a node.
pub(super) const PROGRAM: &str = "/usr/local/bin/workload";
pub(super) const PORT: u16 = 8080;
/// The Deployments of servers: those of the first end on SIGTERM, in their time; those of the second at once, after a
/// `preStop` hook that sleeps.
pub(super) const SERVERS: [&str; 2] = ["web", "hooked"];
/// Pods of each.
pub(super) const EACH: i32 = 2;
/// Identities of the StatefulSet.
pub(super) const KEEPERS: i32 = 3;
/// How long a server goes on answering after it is to end, in seconds.
const LAME_DUCK: u64 = 2;
/// How long a pod of the Job works.
const WORK: &str = "6000";
/// How many pods of the Job work at a time.
const AT_WORK: i32 = 3;

/// Everything in the namespace, and so many pieces of work for the Job.
pub(super) fn all(namespace: &str, work: usize) -> Vec<Value> {
    let mut workers = pod("work", &["work", WORK]);
    workers["spec"]["restartPolicy"] = json!("Never");
    let ignored = json!({
        "action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    });
    let mut keepers = pod("store", &["keep", "1000"]);
    keepers["spec"]["priorityClassName"] = json!("queue");
    let mut agents = pod("agent", &["keep", "300"]);
    agents["spec"]["priorityClassName"] = json!("system-node-critical");
    let of = |app: &str| json!({"matchLabels": {"app": app}});
    let mut objects = vec![
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "queue"}, "value": 1000}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"selector": {"serves": "web"}, "ports": [{"port": PORT}]}}),
        // One at a time, as far as their shutdown leaves the time for it.
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"serves": "web"}}}}),
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "store"},
            "spec": {"replicas": KEEPERS, "serviceName": "store", "selector": of("store"), "template": keepers}}),
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
            "spec": {"selector": of("agent"), "template": agents}}),
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"}, "spec": {
            "completions": work, "parallelism": AT_WORK, "backoffLimit": 0,
            "podFailurePolicy": {"rules": [ignored]}, "template": workers,
        }}),
    ];
    objects.extend(SERVERS.map(|app| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": app},
            "spec": {"replicas": EACH, "selector": of(app), "template": server(app)}})
    }));
    for object in objects.iter_mut().skip(1) {
        object["metadata"]["namespace"] = json!(namespace);
    }
    objects
}

/// A server of the service, whose pods are on all nodes.
fn server(app: &str) -> Value {
    let (port, lame_duck) = (PORT.to_string(), (LAME_DUCK * 1000).to_string());
    let is_hooked = app == "hooked";
    let mut pod = pod(app, &["web", &port, if is_hooked { "0" } else { &lame_duck }]);
    pod["metadata"]["labels"]["serves"] = json!("web");
    let container = &mut pod["spec"]["containers"][0];
    container["readinessProbe"] =
        json!({"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1, "timeoutSeconds": 5});
    if is_hooked {
        container["lifecycle"] = json!({"preStop": {"sleep": {"seconds": LAME_DUCK}}});
    }
    pod["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"serves": "web"}},
    }]);
    pod
}

/// A pod of this app, with the arguments of its program.
fn pod(app: &str, arguments: &[&str]) -> Value {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let command = [&[PROGRAM], arguments].concat();
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {
            "automountServiceAccountToken": false, "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "main", "image": IMAGE, "command": command,
                "env": [
                    field("POD_NAME", "metadata.name"), field("POD_UID", "metadata.uid"),
                    field("NODE_NAME", "spec.nodeName"),
                ],
                "volumeMounts": [
                    {"name": "program", "mountPath": PROGRAM, "readOnly": true},
                    {"name": "shared", "mountPath": SHARED},
                ],
            }],
            "volumes": [
                {"name": "program", "hostPath": {"path": PROGRAM, "type": "File"}},
                {"name": "shared", "hostPath": {"path": SHARED, "type": "Directory"}},
            ],
        },
    })
}
