//! Asks a container over TCP or HTTP whether it is there: for probes and lifecycle handlers.

use std::io;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::environment::NodeFacts;

/// Longest part of an HTTP answer that is read, in bytes: its first line.
const MAX_STATUS_LINE: usize = 4096;

/// Where to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    host: String,
    port: u16,
}

/// An HTTP request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpGet {
    endpoint: Endpoint,
    path: String,
    headers: Vec<(String, String)>,
}

impl Endpoint {
    /// What a `tcpSocket` names; none if its port has no number.
    pub(crate) fn of(
        action: &api::TCPSocketAction,
        container: &api::Container,
        node: &NodeFacts,
    ) -> Option<Self> {
        let port = port(&action.port, container)?;
        Some(Self { host: host(action.host.as_deref(), node), port })
    }

    /// Connects, and closes again.
    ///
    /// # Errors
    /// Nobody listens.
    pub(crate) async fn connect(&self) -> io::Result<()> {
        TcpStream::connect((self.host.as_str(), self.port)).await.map(drop)
    }
}

impl HttpGet {
    /// What an `httpGet` names; none if its port has no number.
    pub(crate) fn of(
        action: &api::HTTPGetAction,
        container: &api::Container,
        node: &NodeFacts,
    ) -> Option<Self> {
        let port = port(&action.port, container)?;
        let path = action.path.as_deref().filter(|p| !p.is_empty()).unwrap_or("/");
        let slash = if path.starts_with('/') { "" } else { "/" };
        let headers = action.http_headers.iter().flatten();
        Some(Self {
            endpoint: Endpoint { host: host(action.host.as_deref(), node), port },
            path: format!("{slash}{path}"),
            headers: headers.map(|h| (h.name.clone(), h.value.clone())).collect(),
        })
    }

    /// Asks. A status from 200 to 399 is well.
    ///
    /// # Errors
    /// Another status, no HTTP, or nobody listens.
    pub(crate) async fn ask(&self) -> io::Result<()> {
        let Endpoint { host, port } = &self.endpoint;
        let mut stream = TcpStream::connect((host.as_str(), *port)).await?;
        stream.write_all(self.request().as_bytes()).await?;
        let mut answer = Vec::with_capacity(256);
        while !answer.contains(&b'\n') && answer.len() < MAX_STATUS_LINE {
            if stream.read_buf(&mut answer).await? == 0 {
                break;
            }
        }
        match status(&answer) {
            Some(200..=399) => Ok(()),
            Some(code) => Err(io::Error::other(format!("the answer's status is {code}"))),
            None => Err(io::Error::other("the answer is not HTTP")),
        }
    }

    fn request(&self) -> String {
        let has = |name: &str| self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        let mut text = format!("GET {} HTTP/1.1\r\n", self.path);
        let mut add = |name: &str, value: &str| text.extend([name, ": ", value, "\r\n"]);
        if !has("host") {
            add("Host", &format!("{}:{}", self.endpoint.host, self.endpoint.port));
        }
        if !has("user-agent") {
            add("User-Agent", concat!("kube-probe/winddown-", env!("CARGO_PKG_VERSION")));
        }
        for (name, value) in &self.headers {
            add(name, value);
        }
        add("Connection", "close");
        text.push_str("\r\n");
        text
    }
}

/// A port's number, by itself or by the name the container gave it.
pub(crate) fn port(port: &IntOrString, container: &api::Container) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten();
            named
                .filter(|p| p.name.as_deref() == Some(name))
                .map(|p| p.container_port)
                .next()
                .or_else(|| name.parse().ok())?
        }
    };
    u16::try_from(number).ok().filter(|n| *n > 0)
}

/// A pod on the host's network has the host's address.
fn host(named: Option<&str>, node: &NodeFacts) -> String {
    let own = || node.address.map_or("127.0.0.1".to_owned(), |address| address.to_string());
    named.filter(|h| !h.is_empty()).map_or_else(own, str::to_owned)
}

fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|&b| b == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?.strip_prefix("HTTP/1.")?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container() -> api::Container {
        let ports = json!([{"name": "web", "containerPort": 8080}]);
        serde_json::from_value(json!({"name": "main", "ports": ports})).unwrap()
    }

    #[test]
    fn a_port_is_a_number_or_a_name_of_the_container() {
        let text = |name: &str| IntOrString::String(name.to_owned());
        for (given, expected) in [
            (IntOrString::Int(80), Some(80)),
            (IntOrString::Int(0), None),
            (IntOrString::Int(70_000), None),
            (text("web"), Some(8080)),
            (text("90"), Some(90)),
            (text("nope"), None),
        ] {
            assert_eq!(port(&given, &container()), expected, "{given:?}");
        }
    }

    #[test]
    fn the_status_is_read_from_the_first_line_only() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\n", Some(200)),
            ("HTTP/1.0 404\r\n\r\nHTTP/1.1 200", Some(404)),
            ("HTTP/1.1 2000\r\n", Some(2000)),
            ("SSH-2.0-OpenSSH\r\n", None),
            ("HTTP/1.1", None),
            ("", None),
        ] {
            assert_eq!(status(answer.as_bytes()), expected, "{answer:?}");
        }
    }

    #[test]
    fn a_header_of_the_spec_replaces_ours() {
        let node = NodeFacts { name: String::new(), address: None, cpu_milli: 0, memory_bytes: 0 };
        let action = json!({"port": "web", "path": "health", "httpHeaders": [
            {"name": "host", "value": "example.org"}, {"name": "X-A", "value": "1"}]});
        let get = HttpGet::of(&serde_json::from_value(action).unwrap(), &container(), &node);
        let request = get.unwrap().request();
        assert!(request.starts_with("GET /health HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("\r\nhost: example.org\r\nX-A: 1\r\n"), "{request}");
        assert!(!request.contains("Host: 127.0.0.1"), "{request}");
        assert!(request.ends_with("Connection: close\r\n\r\n"), "{request}");
    }
}
