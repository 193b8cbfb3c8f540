//! Routes requests, and determines the permission that each one needs.

use hyper::Method;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestedEndpoint {
    Health,
    Pods,
    Logs(ContainerRef),
    Stream(StreamTarget),
    /// The usage of the node and its pods.
    Summary,
    /// The same as metrics, for metrics-server.
    Resources,
    /// A path that is served only with this other method.
    Other(&'static str),
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerRef {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) container: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamTarget {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    /// The UID that the pod must have, if the client named one.
    pub(crate) uid: Option<String>,
    pub(crate) kind: StreamKind,
}

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
pub(crate) fn route(method: &Method, path: &str) -> (RequestedEndpoint, Right) {
    let words: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (endpoint, subresources): (_, &[&str]) = match *words {
        ["healthz"] => (RequestedEndpoint::Health, &["healthz", "proxy"]),
        ["pods"] => (RequestedEndpoint::Pods, &["pods", "proxy"]),
        ["containerLogs", namespace, pod, container] => (
            RequestedEndpoint::Logs(ContainerRef::new(namespace, pod, container)),
            &["log", "proxy"],
        ),
        [kind @ ("exec" | "attach" | "portForward"), namespace, pod, ref rest @ ..] => (
            StreamTarget::of(kind, namespace, pod, rest)
                .map_or(RequestedEndpoint::Unknown, RequestedEndpoint::Stream),
            &["proxy"],
        ),
        ["stats", "summary"] => (RequestedEndpoint::Summary, &["stats"]),
        ["metrics", "resource"] => (RequestedEndpoint::Resources, &["metrics"]),
        ["stats", ..] => (RequestedEndpoint::Unknown, &["stats"]),
        ["metrics", ..] => (RequestedEndpoint::Unknown, &["metrics"]),
        _ => (RequestedEndpoint::Unknown, &["proxy"]),
    };
    let is_look = matches!(*method, Method::GET | Method::HEAD);
    match endpoint {
        // Whatever the method: a WebSocket begins with a GET, but is not read-only.
        RequestedEndpoint::Stream(_) => (endpoint, Right { verb: "create", subresources }),
        RequestedEndpoint::Unknown => (endpoint, Right { verb: verb(method), subresources }),
        _ if is_look => (endpoint, Right { verb: "get", subresources }),
        _ => (RequestedEndpoint::Other("GET"), Right { verb: verb(method), subresources }),
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

impl ContainerRef {
    fn new(namespace: &str, pod: &str, container: &str) -> Self {
        let [namespace, pod, container] = [namespace, pod, container].map(str::to_owned);
        Self { namespace, pod, container }
    }
}

impl StreamTarget {
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

    fn stream(uid: Option<&str>, kind: StreamKind) -> RequestedEndpoint {
        let [namespace, pod] = ["ns", "web"].map(str::to_owned);
        RequestedEndpoint::Stream(StreamTarget {
            namespace,
            pod,
            uid: uid.map(str::to_owned),
            kind,
        })
    }

    #[test]
    fn each_path_takes_its_own_right() {
        let logs = RequestedEndpoint::Logs(ContainerRef::new("ns", "web", "main"));
        let exec = stream(None, StreamKind::Exec("main".to_owned()));
        let exec_of_uid = stream(Some("u1"), StreamKind::Exec("main".to_owned()));
        let attach = stream(None, StreamKind::Attach("main".to_owned()));
        let forward = stream(None, StreamKind::PortForward);
        for (method, path, endpoint, verb, subresources) in [
            ("GET", "/healthz", RequestedEndpoint::Health, "get", &["healthz", "proxy"][..]),
            ("GET", "/pods", RequestedEndpoint::Pods, "get", &["pods", "proxy"]),
            ("GET", "/containerLogs/ns/web/main", logs.clone(), "get", &["log", "proxy"]),
            (
                "POST",
                "/containerLogs/ns/web/main",
                RequestedEndpoint::Other("GET"),
                "create",
                &["log", "proxy"],
            ),
            ("DELETE", "/pods", RequestedEndpoint::Other("GET"), "delete", &["pods", "proxy"]),
            ("GET", "/containerLogs/ns/web", RequestedEndpoint::Unknown, "get", &["proxy"]),
            ("GET", "/containerLogs/ns/../main/x", RequestedEndpoint::Unknown, "get", &["proxy"]),
            ("GET", "/exec/ns/web/main", exec, "create", &["proxy"]),
            ("POST", "/exec/ns/web/u1/main", exec_of_uid, "create", &["proxy"]),
            ("POST", "/attach/ns/web/main", attach, "create", &["proxy"]),
            ("POST", "/portForward/ns/web", forward, "create", &["proxy"]),
            (
                "POST",
                "/portForward/ns/web/u1/main",
                RequestedEndpoint::Unknown,
                "create",
                &["proxy"],
            ),
            ("POST", "/exec/ns/web", RequestedEndpoint::Unknown, "create", &["proxy"]),
            ("POST", "/run/ns/web/main", RequestedEndpoint::Unknown, "create", &["proxy"]),
            ("GET", "/stats/summary", RequestedEndpoint::Summary, "get", &["stats"]),
            ("GET", "/metrics/resource", RequestedEndpoint::Resources, "get", &["metrics"]),
            ("GET", "/metrics/cadvisor", RequestedEndpoint::Unknown, "get", &["metrics"]),
            ("GET", "/logs/", RequestedEndpoint::Unknown, "get", &["proxy"]),
            ("GET", "/", RequestedEndpoint::Unknown, "get", &["proxy"]),
            ("BREW", "/brew", RequestedEndpoint::Unknown, "create", &["proxy"]),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(
                route(&method, path),
                (endpoint, Right { verb, subresources }),
                "{method} {path}"
            );
        }
    }
}
