//! Routes requests, and determines the permission that each one needs.

use hyper::Method;

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Health,
    Pods,
    Logs(Place),
    Stream(Target),
    /// The usage of the node and its pods.
    Summary,
    /// The same as metrics, for metrics-server.
    Resources,
    /// A path that is served only with this other method.
    Other(&'static str),
    Unknown,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) container: String,
}

/// The target of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    /// The UID that the pod must have, if the client named one.
    pub(crate) uid: Option<String>,
    pub(crate) kind: StreamKind,
}

/// What a stream connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// A command in the container of this name.
    Exec(String),
    /// The main process of the container of this name.
    Attach(String),
    /// Ports of the pod.
    PortForward,
}

/// A permission on the node's subresources; any one of them is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Right {
    pub(crate) verb: &'static str,
    pub(crate) subresources: &'static [&'static str],
}

/// Returns what a request asks for, and the permission that it needs. The permissions are the kubelet's except for
/// logs: a client with `nodes/log` can read these files through a kubelet too, by their path.
pub(crate) fn route(method: &Method, path: &str) -> (Ask, Right) {
    let words: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (ask, subresources): (_, &[&str]) = match *words {
        ["healthz"] => (Ask::Health, &["healthz", "proxy"]),
        ["pods"] => (Ask::Pods, &["pods", "proxy"]),
        ["containerLogs", namespace, pod, container] => {
            (Ask::Logs(Place::new(namespace, pod, container)), &["log", "proxy"])
        }
        [kind @ ("exec" | "attach" | "portForward"), namespace, pod, ref rest @ ..] => {
            (Target::of(kind, namespace, pod, rest).map_or(Ask::Unknown, Ask::Stream), &["proxy"])
        }
        ["stats", "summary"] => (Ask::Summary, &["stats"]),
        ["metrics", "resource"] => (Ask::Resources, &["metrics"]),
        ["stats", ..] => (Ask::Unknown, &["stats"]),
        ["metrics", ..] => (Ask::Unknown, &["metrics"]),
        _ => (Ask::Unknown, &["proxy"]),
    };
    let is_look = matches!(*method, Method::GET | Method::HEAD);
    match ask {
        // Whatever the method: a WebSocket begins with a GET, but is not read-only.
        Ask::Stream(_) => (ask, Right { verb: "create", subresources }),
        Ask::Unknown => (ask, Right { verb: verb(method), subresources }),
        _ if is_look => (ask, Right { verb: "get", subresources }),
        _ => (Ask::Other("GET"), Right { verb: verb(method), subresources }),
    }
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "create",
    }
}

impl Place {
    fn new(namespace: &str, pod: &str, container: &str) -> Self {
        let [namespace, pod, container] = [namespace, pod, container].map(str::to_owned);
        Self { namespace, pod, container }
    }
}

impl Target {
    /// Parses the target of a path; `rest` are its segments after the pod's name.
    fn of(kind: &str, namespace: &str, pod: &str, rest: &[&str]) -> Option<Self> {
        let (uid, container) = match (kind, rest) {
            ("portForward", &[]) => (None, None),
            ("portForward", &[uid]) => (Some(uid), None),
            ("exec" | "attach", &[container]) => (None, Some(container)),
            ("exec" | "attach", &[uid, container]) => (Some(uid), Some(container)),
            _ => return None,
        };
        let kind = match container.map(str::to_owned) {
            Some(container) if kind == "exec" => StreamKind::Exec(container),
            Some(container) => StreamKind::Attach(container),
            None => StreamKind::PortForward,
        };
        let [namespace, pod] = [namespace, pod].map(str::to_owned);
        Some(Self { namespace, pod, uid: uid.map(str::to_owned), kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(uid: Option<&str>, kind: StreamKind) -> Ask {
        let [namespace, pod] = ["ns", "web"].map(str::to_owned);
        Ask::Stream(Target { namespace, pod, uid: uid.map(str::to_owned), kind })
    }

    #[test]
    fn each_path_takes_its_own_right() {
        let logs = Ask::Logs(Place::new("ns", "web", "main"));
        let exec = stream(None, StreamKind::Exec("main".to_owned()));
        let exec_of_uid = stream(Some("u1"), StreamKind::Exec("main".to_owned()));
        let attach = stream(None, StreamKind::Attach("main".to_owned()));
        let forward = stream(None, StreamKind::PortForward);
        for (method, path, ask, verb, subresources) in [
            ("GET", "/healthz", Ask::Health, "get", &["healthz", "proxy"][..]),
            ("GET", "/pods", Ask::Pods, "get", &["pods", "proxy"]),
            ("GET", "/containerLogs/ns/web/main", logs.clone(), "get", &["log", "proxy"]),
            ("POST", "/containerLogs/ns/web/main", Ask::Other("GET"), "create", &["log", "proxy"]),
            ("DELETE", "/pods", Ask::Other("GET"), "delete", &["pods", "proxy"]),
            ("GET", "/containerLogs/ns/web", Ask::Unknown, "get", &["proxy"]),
            ("GET", "/containerLogs/ns/../main/x", Ask::Unknown, "get", &["proxy"]),
            ("GET", "/exec/ns/web/main", exec, "create", &["proxy"]),
            ("POST", "/exec/ns/web/u1/main", exec_of_uid, "create", &["proxy"]),
            ("POST", "/attach/ns/web/main", attach, "create", &["proxy"]),
            ("POST", "/portForward/ns/web", forward, "create", &["proxy"]),
            ("POST", "/portForward/ns/web/u1/main", Ask::Unknown, "create", &["proxy"]),
            ("POST", "/exec/ns/web", Ask::Unknown, "create", &["proxy"]),
            ("POST", "/run/ns/web/main", Ask::Unknown, "create", &["proxy"]),
            ("GET", "/stats/summary", Ask::Summary, "get", &["stats"]),
            ("GET", "/metrics/resource", Ask::Resources, "get", &["metrics"]),
            ("GET", "/metrics/cadvisor", Ask::Unknown, "get", &["metrics"]),
            ("GET", "/logs/", Ask::Unknown, "get", &["proxy"]),
            ("GET", "/", Ask::Unknown, "get", &["proxy"]),
            ("BREW", "/brew", Ask::Unknown, "create", &["proxy"]),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(
                route(&method, path),
                (ask, Right { verb, subresources }),
                "{method} {path}"
            );
        }
    }
}
