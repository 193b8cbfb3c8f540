//! Checks containers over TCP, HTTP or HTTPS, for probes and lifecycle handlers.

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue,
    TRAILER, TRANSFER_ENCODING, USER_AGENT,
};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Uri};
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::net::TcpStream;
use tokio::time::Instant;
use winddown_host::{HostNames, is_host_address};

mod exchange;

use crate::action_error::ActionError;
use crate::http_get::invalid_fields;
use exchange::{exchange, is_no_tls};

/// The maximum number of requests when the server redirects; the kubelet's limit.
const MAX_REQUESTS: usize = 10;

/// Looks up the hosts that probes and hooks name. Pods choose these names and their name servers' delays, so the API
/// server's name has threads of its own.
static NAMES: HostNames = HostNames::new(8);

/// The user agent of `program`'s probes (`NAME-VERSION`), which servers know from the kubelet's.
pub fn probe_user_agent(program: &str) -> String {
    format!("kube-probe/{program}")
}

/// Where a probe or a hook connects if it names no host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeHost {
    /// The pod has this address of its own.
    Own(String),
    /// The pod is on the host's network: the node's address, if it is known, and then `127.0.0.1`, where a kubelet does
    /// not look.
    Node(Option<IpAddr>),
    /// The pod has an address of its own, which is not known: nothing is asked, least of all what else listens on the node.
    Unknown,
}

/// The host and port to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeEndpoint {
    /// The host that the probe or the hook names.
    named: Option<String>,
    port: u16,
}

/// A host and port as a request names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeServer {
    host: String,
    port: u16,
}

/// An HTTP request. Values from the spec go through types that cannot hold a line end, so it always is exactly one
/// request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpGet {
    endpoint: ProbeEndpoint,
    is_tls: bool,
    /// Whether it is a hook's, which has run once the server has answered, whatever the answer.
    is_hook: bool,
    /// The path and the headers, or the reason why they cannot be sent. Such a pod is refused at admission, but a
    /// running pod may have been admitted by an older agent.
    request: Result<(PathAndQuery, HeaderMap), String>,
}

/// Headers about the connection or a body, which are not taken from the spec; the kubelet ignores them as well.
const OURS: [HeaderName; 4] = [CONNECTION, CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING];

impl ProbeHost {
    /// The host of a pod with this address of its own, as its runtime reports it, on a node with the address `node`. The
    /// network decides first: of a pod on the host's, containerd reports no address, and CRI-O may report one of the
    /// machine's that it has chosen itself.
    pub fn of_pod(
        is_on_host_network: bool,
        own: Option<&str>,
        node: impl FnOnce() -> Option<IpAddr>,
    ) -> Self {
        if is_on_host_network {
            return Self::Node(node());
        }
        own.map_or(Self::Unknown, |ip| Self::Own(ip.to_owned()))
    }
}

impl ProbeEndpoint {
    /// The endpoint of a `tcpSocket`; none if its port cannot be resolved to a number.
    pub fn of(action: &api::TCPSocketAction, container: &api::Container) -> Option<Self> {
        Some(Self::at(action.host.as_deref(), port(&action.port, container)?))
    }

    /// The endpoint at a host that a probe names, or else at the pod's.
    pub(crate) fn at(named: Option<&str>, port: u16) -> Self {
        Self { named: named.filter(|host| !host.is_empty()).map(str::to_owned), port }
    }

    /// Connects to the named host, or else to `pod`, for the pod with the key `asker`. Resolves with the server that was
    /// found too.
    ///
    /// # Errors
    /// Nothing listens there. Or nothing was asked: the pod's address is not known, or other names are looked up.
    pub(crate) async fn open(
        &self,
        asker: &str,
        pod: &ProbeHost,
    ) -> Result<(TcpStream, ProbeServer), ActionError> {
        let server = |host| ProbeServer { host, port: self.port };
        let on_loopback = || server(Ipv4Addr::LOCALHOST.to_string());
        let (first, second) = match (&self.named, pod) {
            (Some(host), _) | (None, ProbeHost::Own(host)) => (server(host.clone()), None),
            // An address that the host no longer has may never answer.
            (None, ProbeHost::Node(Some(ip))) if is_host_address(*ip) => {
                (server(ip.to_string()), Some(on_loopback()))
            }
            (None, ProbeHost::Node(_)) => (on_loopback(), None),
            (None, ProbeHost::Unknown) => {
                return Err(ActionError::unasked("the pod's address is not known"));
            }
        };
        match (first.open(asker).await, second) {
            (Ok(stream), _) => Ok((stream, first)),
            (Err(error), None) => Err(error),
            (Err(error), Some(second)) => match second.open(asker).await {
                Ok(stream) => Ok((stream, second)),
                Err(_) => Err(error),
            },
        }
    }

    /// Connects to the named host, or else to `pod`, and closes the connection. `asker` is a key of the pod's own: one pod's
    /// names do not keep others from looking up theirs.
    ///
    /// # Errors
    /// Nothing listens there. Or nothing was asked: the pod's address is not known, or other names are looked up.
    pub async fn connect(&self, asker: &str, pod: &ProbeHost) -> Result<(), ActionError> {
        self.open(asker, pod).await.map(drop)
    }
}

impl ProbeServer {
    pub(crate) fn authority(&self) -> String {
        match self.host.parse() {
            Ok(IpAddr::V6(ip)) => format!("[{ip}]:{}", self.port),
            _ => format!("{}:{}", self.host, self.port),
        }
    }

    async fn open(&self, asker: &str) -> Result<TcpStream, ActionError> {
        NAMES.connect(asker, &self.host, self.port).await.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => ActionError::unasked(error.to_string()),
            _ => ActionError::NoAnswer(error),
        })
    }
}

impl HttpGet {
    /// The request of an `httpGet`; none if its port cannot be resolved to a number.
    pub fn of(action: &api::HTTPGetAction, container: &api::Container) -> Option<Self> {
        let endpoint = ProbeEndpoint::at(action.host.as_deref(), port(&action.port, container)?);
        let request = match invalid_fields(action).first() {
            Some((field, why)) => Err(format!("httpGet.{field} {why}")),
            None => read(action),
        };
        let is_tls = action.scheme.as_deref().is_some_and(|s| s.eq_ignore_ascii_case("https"));
        Some(Self { endpoint, is_tls, is_hook: false, request })
    }

    /// The request as that of a hook.
    #[must_use]
    pub(crate) fn of_hook(self) -> Self {
        Self { is_hook: true, ..self }
    }

    /// Sends the request as `program` (`NAME-VERSION`), unless the spec names another user agent, to the host that it
    /// names, or else to `pod`. A status from 200 to 299 is a success, and each is for a hook. A redirect is followed as
    /// long as it names the same host; any other redirect is a success too, with the kubelet's warning. A hook's server
    /// that speaks HTTP where HTTPS is expected is asked over HTTP. The body of a success is read as far as the kubelet
    /// reads it, `until` then; a hook does without. `asker` is as for [`ProbeEndpoint::connect`].
    ///
    /// # Errors
    /// Another status, too many redirects, no HTTP, no listener. Or it says nothing about the container: the request in
    /// the spec cannot be sent, the pod's address is not known, or the body of a success did not come.
    pub async fn ask(
        &self,
        asker: &str,
        pod: &ProbeHost,
        program: &str,
        until: Instant,
    ) -> Result<Option<String>, ActionError> {
        if !self.is_hook {
            return self.send((asker, pod), &probe_user_agent(program), Some(until)).await;
        }
        let user_agent = format!("kube-lifecycle/{program}");
        match self.send((asker, pod), &user_agent, None).await {
            Err(ActionError::NoAnswer(error)) if self.is_tls && is_no_tls(&error) => {
                tracing::warn!(
                    port = self.endpoint.port,
                    "the server of an HTTPS hook speaks HTTP: asking it over HTTP"
                );
                let mut plain = Self { is_tls: false, ..self.clone() };
                if let Ok((_, headers)) = &mut plain.request {
                    headers.remove(AUTHORIZATION);
                }
                plain.send((asker, pod), &user_agent, None).await
            }
            sent => sent,
        }
    }

    async fn send(
        &self,
        (asker, pod): (&str, &ProbeHost),
        user_agent: &str,
        until: Option<Instant>,
    ) -> Result<Option<String>, ActionError> {
        let (path, headers) = self.request.as_ref().map_err(ActionError::unasked)?;
        let (stream, server) = self.endpoint.open(asker, pod).await?;
        let to = To { server, is_tls: self.is_tls, path: path.clone() };
        self.follow((asker, stream), to, (headers, user_agent), until).await
    }

    /// Sends the request on a connection, and follows redirects.
    async fn follow(
        &self,
        (asker, mut stream): (&str, TcpStream),
        mut to: To,
        (headers, user_agent): (&HeaderMap, &str),
        until: Option<Instant>,
    ) -> Result<Option<String>, ActionError> {
        let asked = to.server.clone();
        for _ in 0..MAX_REQUESTS {
            let moved = to.server != asked;
            let request = to.request(headers, moved, user_agent);
            let tls_name = to.is_tls.then_some(&*to.server.host);
            let answer = exchange(stream, tls_name, request, until).await?;
            let next = match answer.status {
                301..=303 | 307 | 308 => answer.location.and_then(|location| to.joined(&location)),
                200..=299 if !answer.is_whole => {
                    return Err(ActionError::unasked("the body of the answer did not come"));
                }
                200..=299 => return Ok(None),
                300..=399 => None,
                _ if self.is_hook => return Ok(None),
                code => {
                    let text = format!("HTTP probe failed with statuscode: {code}");
                    return Err(io::Error::other(text).into());
                }
            };
            match next.filter(|next| next.server.host == asked.host) {
                Some(next) => {
                    stream = next.server.open(asker).await?;
                    to = next;
                }
                None => {
                    let body = answer.body;
                    return Ok(Some(format!("Probe terminated redirects, Response body: {body}")));
                }
            }
        }
        Err(io::Error::other(format!("stopped after {MAX_REQUESTS} redirects")).into())
    }
}

/// The target of a request.
#[derive(Debug)]
struct To {
    server: ProbeServer,
    is_tls: bool,
    path: PathAndQuery,
}

impl To {
    /// `moved`: a redirect led to another endpoint, so the spec's `Host` is replaced.
    fn request(&self, headers: &HeaderMap, moved: bool, user_agent: &str) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = Uri::from(self.path.clone());
        *request.headers_mut() = headers.clone();
        if (moved || !headers.contains_key(HOST))
            && let Ok(host) = HeaderValue::try_from(self.server.authority())
        {
            request.headers_mut().insert(HOST, host);
        }
        if let Ok(agent) = HeaderValue::try_from(user_agent) {
            request.headers_mut().entry(USER_AGENT).or_insert(agent);
        }
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        request
    }

    /// Resolves a redirect's location; none if it cannot be requested.
    fn joined(&self, location: &str) -> Option<Self> {
        let absolute = match location.strip_prefix("//") {
            Some(_) if self.is_tls => format!("https:{location}"),
            Some(_) => format!("http:{location}"),
            None => location.to_owned(),
        };
        // The query of a relative location may name an address too.
        let parts =
            absolute.split_once("://").filter(|(scheme, _)| !scheme.contains(['/', '?', '#']));
        let Some((scheme, rest)) = parts else {
            let here = self.path.path();
            let base = match location.as_bytes().first() {
                Some(b'/') => "",
                Some(b'?') => here,
                _ => &here[..here.rfind('/').map_or(0, |at| at + 1)],
            };
            let path = PathAndQuery::try_from(escaped(&format!("{base}{location}"))).ok()?;
            return Some(Self { server: self.server.clone(), is_tls: self.is_tls, path });
        };
        let is_tls = scheme.eq_ignore_ascii_case("https");
        if !is_tls && !scheme.eq_ignore_ascii_case("http") {
            return None;
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let authority: Uri = authority.parse().ok()?;
        let host = authority.host()?.trim_matches(['[', ']']).to_owned();
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let path = PathAndQuery::try_from(escaped(path)).ok()?;
        Some(Self { server: ProbeServer { host, port }, is_tls, path })
    }
}

/// Reads the path and the headers of an `httpGet`. The error says what cannot be sent.
fn read(action: &api::HTTPGetAction) -> Result<(PathAndQuery, HeaderMap), String> {
    let path = action.path.as_deref().filter(|p| !p.is_empty()).unwrap_or("/");
    let path = PathAndQuery::try_from(escaped(path))
        .map_err(|error| format!("httpGet.path is no path: {error}"))?;
    let too_many = |_| "httpGet.httpHeaders are too many".to_owned();
    let mut headers = HeaderMap::new();
    for (name, value) in action.http_headers.iter().flatten().map(|h| (&*h.name, &*h.value)) {
        let name =
            HeaderName::from_bytes(name.as_bytes()).map_err(|error| format!("httpGet: {error}"))?;
        let value = HeaderValue::from_bytes(value.as_bytes())
            .map_err(|error| format!("httpGet: header {name}: {error}"))?;
        // These may occur only once.
        let again = (name == HOST || name == USER_AGENT) && headers.contains_key(&name);
        if !again && !OURS.contains(&name) {
            headers.try_append(name, value).map_err(too_many)?;
        }
    }
    // As with the kubelet, any kind of answer is welcome unless the spec says otherwise; an empty value leaves it out.
    if headers.get(ACCEPT).is_some_and(HeaderValue::is_empty) {
        headers.remove(ACCEPT);
    } else if !headers.contains_key(ACCEPT) {
        headers.try_insert(ACCEPT, HeaderValue::from_static("*/*")).map_err(too_many)?;
    }
    // The host, the user agent and the connection follow.
    headers.try_reserve(3).map_err(too_many)?;
    Ok((path, headers))
}

/// Escapes a spec's path for a request: characters that are not allowed are percent-encoded, and a fragment is dropped.
fn escaped(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let mut text = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        text.push('/');
    }
    let bytes = path.as_bytes();
    for (index, &byte) in bytes.iter().enumerate() {
        let is_code = || {
            let digits = bytes.get(index + 1..index + 3);
            digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        };
        let stands = match byte {
            b'%' => is_code(),
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => false,
            byte => byte.is_ascii_graphic(),
        };
        match stands {
            true => text.push(char::from(byte)),
            false => {
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}

/// Resolves a port: a number, or the name of one of the container's ports.
pub fn port(port: &IntOrString, container: &api::Container) -> Option<u16> {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rcgen::{CertificateParams, KeyPair};
    use serde_json::json;
    use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::{ServerConfig, crypto::ring::default_provider};

    use super::*;

    const PROGRAM: &str = "my-agent-7.1";

    fn until() -> Instant {
        Instant::now() + std::time::Duration::from_secs(10)
    }

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

    fn action(action: serde_json::Value) -> api::HTTPGetAction {
        serde_json::from_value(action).unwrap()
    }

    fn get(spec: serde_json::Value) -> HttpGet {
        HttpGet::of(&action(spec), &container()).unwrap()
    }

    #[tokio::test]
    async fn a_header_of_the_spec_replaces_ours() {
        let (result, request) = asked(json!({"path": "health", "httpHeaders": [
            {"name": "host", "value": "example.org"}, {"name": "x-A", "value": "1"}]}))
        .await;
        result.unwrap();
        assert!(request.starts_with("GET /health HTTP/1.1\r\n"), "{request}");
        // Spelled as the kubelet spells them.
        assert!(request.contains("\r\nHost: example.org\r\nX-A: 1\r\n"), "{request}");
        assert!(!request.contains("127.0.0.1"), "{request}");
        assert!(request.ends_with("Connection: close\r\n\r\n"), "{request}");
    }

    #[tokio::test]
    async fn what_says_how_long_a_request_is_does_not_come_from_the_spec() {
        let header = |name: &str| json!({"name": name, "value": "7"});
        let (result, request) = asked(json!({"httpHeaders": [
            header("content-length"), header("Transfer-Encoding"), header("Connection"),
            header("Host"), header("HOST")]}))
        .await;
        result.unwrap();
        let lines: Vec<&str> = request.lines().collect();
        let agent = format!("User-Agent: kube-probe/{PROGRAM}");
        assert_eq!(
            lines,
            ["GET / HTTP/1.1", "Host: 7", "Accept: */*", &agent, "Connection: close", ""]
        );
    }

    #[tokio::test]
    async fn any_kind_of_answer_is_accepted_unless_the_spec_says_otherwise() {
        for (given, sent) in [
            (&[][..], &["Accept: */*"][..]),
            (&["text/plain"], &["Accept: text/plain"]),
            (&["text/plain", "text/html"], &["Accept: text/plain", "Accept: text/html"]),
            (&[""], &[]),
        ] {
            let headers: Vec<_> =
                given.iter().map(|value| json!({"name": "accept", "value": value})).collect();
            let (result, request) = asked(json!({"httpHeaders": headers})).await;
            result.unwrap();
            let lines: Vec<&str> =
                request.lines().filter(|line| line.starts_with("Accept")).collect();
            assert_eq!(lines, sent, "{given:?}");
        }
    }

    #[test]
    fn a_path_is_sent_as_the_kubelet_sends_it() {
        for (path, sent) in [
            ("", "/"),
            ("health", "/health"),
            ("/a/b?c=d&e=%20", "/a/b?c=d&e=%20"),
            ("/a b", "/a%20b"),
            ("/\u{e9}", "/%C3%A9"),
            ("/50%", "/50%25"),
            ("/a#b", "/a"),
            ("/\"<>", "/%22%3C%3E"),
            ("/a\r\nb", "/a%0D%0Ab"),
        ] {
            assert_eq!(escaped(if path.is_empty() { "/" } else { path }), sent, "{path}");
        }
    }

    #[test]
    fn a_host_that_is_a_name_needs_none_of_the_threads_for_disks() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().max_blocking_threads(1).build().unwrap().block_on(async {
            let (go, gate) = std::sync::mpsc::channel::<()>();
            let hangs = tokio::task::spawn_blocking(move || gate.recv().is_ok());
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let endpoint = ProbeEndpoint::at(Some("127.1"), port);
            let connected = endpoint.connect("pod", &ProbeHost::Unknown);
            let connected = tokio::time::timeout_at(until(), connected).await;
            drop(go);
            hangs.await.unwrap();
            connected.unwrap().unwrap();
        });
    }

    #[test]
    fn an_address_of_version_6_stands_in_brackets() {
        let server = ProbeServer { host: "2001:db8::1".to_owned(), port: 80 };
        assert_eq!(server.authority(), "[2001:db8::1]:80");
    }

    #[test]
    fn what_can_be_sent_in_no_request_is_named() {
        let header = |name: &str, value: &str| json!([{"name": name, "value": value}]);
        for (spec, field) in [
            (json!({"port": 80, "path": "/a\r\nHost: b"}), "path"),
            (json!({"port": 80, "path": "/a\0"}), "path"),
            (json!({"port": 80, "host": "a\r\nb"}), "host"),
            (json!({"port": 80, "host": "user@a"}), "host"),
            (json!({"port": 80, "host": "a/b"}), "host"),
            (json!({"port": 80, "host": "a b"}), "host"),
            (json!({"port": 80, "httpHeaders": header("A\r\nB", "c")}), "httpHeaders[0].name"),
            (json!({"port": 80, "httpHeaders": header("A: b", "c")}), "httpHeaders[0].name"),
            (json!({"port": 80, "httpHeaders": header("", "c")}), "httpHeaders[0].name"),
            (json!({"port": 80, "httpHeaders": header("A", "b\r\n\r\nc")}), "httpHeaders[0].value"),
            (json!({"port": 80, "httpHeaders": header("A", "b\nc")}), "httpHeaders[0].value"),
        ] {
            let found = invalid_fields(&action(spec.clone()));
            assert_eq!(found.len(), 1, "{spec}");
            assert_eq!(found[0].0, field, "{spec}");
            let error = get(spec.clone()).request.unwrap_err();
            assert!(error.starts_with(&format!("httpGet.{field} ")), "{error}");
        }
        let fine = json!({"port": 80, "path": "/a b?c#d", "host": "my_host.example", "httpHeaders":
            [{"name": "X-Custom", "value": "\u{e9} \t:"}]});
        assert_eq!(invalid_fields(&action(fine)), []);
    }

    #[test]
    fn a_header_can_be_sent_exactly_if_the_types_of_a_request_hold_it() {
        for c in (0..0x180).filter_map(char::from_u32) {
            for (name, value) in
                [(format!("A{c}"), "a".to_owned()), ("A".to_owned(), format!("a{c}"))]
            {
                let is_held = HeaderName::from_bytes(name.as_bytes()).is_ok()
                    && HeaderValue::from_bytes(value.as_bytes()).is_ok();
                let headers = json!([{"name": name, "value": value}]);
                let found = invalid_fields(&action(json!({"port": 80, "httpHeaders": headers})));
                assert_eq!(found.is_empty(), is_held, "{name:?} {value:?}");
            }
        }
    }

    /// Listens, answers one request, and returns the bytes received until the client closed.
    async fn asked(spec: serde_json::Value) -> (Result<Option<String>, ActionError>, String) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut spec = spec;
        spec["port"] = json!(listener.local_addr().unwrap().port());
        served(&get(spec), &ProbeHost::Node(None), listener).await
    }

    async fn served(
        get: &HttpGet,
        pod: &ProbeHost,
        listener: tokio::net::TcpListener,
    ) -> (Result<Option<String>, ActionError>, String) {
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(b"\r\n\r\n") && stream.read_buf(&mut seen).await.unwrap() > 0 {}
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            stream.read_to_end(&mut seen).await.unwrap();
            String::from_utf8(seen).unwrap()
        });
        let result = get.ask("pod", pod, PROGRAM, until()).await;
        // A request that failed may have made no connection.
        let seen = if result.is_ok() { serving.await.unwrap() } else { String::new() };
        (result, seen)
    }

    #[tokio::test]
    async fn a_server_sees_one_request_whatever_the_spec_says() {
        let (result, seen) = asked(json!({"path": "/a b HTTP/1.1?x", "host": "127.0.0.1"})).await;
        result.unwrap();
        assert!(seen.starts_with("GET /a%20b%20HTTP/1.1?x HTTP/1.1\r\n"), "{seen}");
        assert_eq!(seen.matches("HTTP/1.1\r\n").count(), 1, "{seen}");
        let split = "/ HTTP/1.1\r\nHost: victim\r\n\r\nGET /admin";
        for spec in [
            json!({"path": split, "host": "127.0.0.1"}),
            json!({"httpHeaders": [{"name": "A", "value": split}], "host": "127.0.0.1"}),
            json!({"httpHeaders": [{"name": split, "value": "a"}], "host": "127.0.0.1"}),
        ] {
            let (result, seen) = asked(spec).await;
            assert!(matches!(result, Err(ActionError::Unasked { .. })), "{result:?}");
            assert_eq!(seen, "");
        }
    }

    /// Answers one request according to its path.
    async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, answers: &[(&str, &str)]) {
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n") && stream.read_buf(&mut seen).await.unwrap() > 0 {}
        let path = String::from_utf8(seen).unwrap().split(' ').nth(1).unwrap().to_owned();
        let (_, answer) = answers.iter().find(|(known, _)| *known == path).unwrap();
        stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await.unwrap();
        let _ = stream.shutdown().await;
    }

    /// The outcome of a request for `path`.
    async fn outcome(
        path: &str,
        scheme: &str,
        answers: &[(&str, &str)],
    ) -> Result<Option<String>, String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let key = KeyPair::generate().unwrap();
        let own =
            CertificateParams::new(vec!["a.test".to_owned()]).unwrap().self_signed(&key).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.der().clone()], key.into())
            .unwrap();
        let serving = async {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                match scheme {
                    "HTTPS" => {
                        let acceptor = TlsAcceptor::from(Arc::new(config.clone()));
                        answer(acceptor.accept(stream).await.unwrap(), answers).await;
                    }
                    _ => answer(stream, answers).await,
                }
            }
        };
        let get = get(json!({"port": port, "path": path, "scheme": scheme}));
        tokio::select! {
            outcome = get.ask("pod", &ProbeHost::Node(None), PROGRAM, until()) => outcome.map_err(|error| error.output()),
            () = serving => unreachable!(),
        }
    }

    #[tokio::test]
    async fn a_server_with_a_certificate_of_its_own_is_asked_over_https() {
        assert_eq!(outcome("/", "HTTPS", &[("/", "200 OK\r\n\r\n")]).await, Ok(None));
        let failed = Err("HTTP probe failed with statuscode: 503".to_owned());
        assert_eq!(outcome("/", "HTTPS", &[("/", "503 No\r\n\r\n")]).await, failed);
    }

    #[tokio::test]
    async fn a_hook_has_run_whatever_status_the_server_answers() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hook = get(json!({"port": listener.local_addr().unwrap().port()})).of_hook();
        let serve = async {
            let (stream, _) = listener.accept().await.unwrap();
            answer(stream, &[("/", "503 No\r\n\r\n")]).await;
        };
        let (asked, ()) =
            tokio::join!(hook.ask("pod", &ProbeHost::Node(None), PROGRAM, until()), serve);
        assert_eq!(asked.unwrap(), None);
    }

    #[tokio::test]
    async fn a_hook_over_https_reaches_a_server_that_speaks_http_and_a_probe_does_not() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let secret = json!([{"name": "Authorization", "value": "secret"}]);
        let port = listener.local_addr().unwrap().port();
        let probe = get(json!({"port": port, "scheme": "HTTPS", "httpHeaders": secret}));
        let mut seen = Vec::new();
        let serve = async {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 4096];
                let read = stream.read(&mut request).await.unwrap();
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
                seen.push(String::from_utf8_lossy(&request[..read]).into_owned());
            }
        };
        let both = async {
            let pod = ProbeHost::Node(None);
            probe.ask("pod", &pod, PROGRAM, until()).await.unwrap_err();
            probe.clone().of_hook().ask("pod", &pod, PROGRAM, until()).await
        };
        tokio::select! {
            asked = both => assert_eq!(asked.unwrap(), None),
            () = serve => unreachable!(),
        }
        assert_eq!(
            seen.iter().map(|one| one.starts_with("GET / ")).collect::<Vec<_>>(),
            [false, false, true]
        );
        assert!(seen[2].contains("User-Agent: kube-lifecycle/my-agent-7.1"), "{}", seen[2]);
        assert!(!seen[2].contains("secret"), "{}", seen[2]);
    }

    #[tokio::test]
    async fn a_redirect_on_the_same_host_is_followed_and_another_is_well_with_a_warning() {
        let failed = Err("HTTP probe failed with statuscode: 500".to_owned());
        let lost = "302 Found\r\nLocation: http://0.0.0.0/\r\n\r\n<a>Found</a>.";
        let servers = [
            ("/a", "302 Found\r\nLocation: /b/c\r\n\r\n"),
            ("/b/c", "307 Temporary\r\nlocation: d?e#f\r\n\r\n"),
            ("/b/d?e", "500 No\r\n\r\n"),
            ("/loop", "301 Moved\r\nLocation: /loop\r\n\r\n"),
            ("/lost", lost),
            ("/nowhere", "302 Found\r\n\r\n"),
        ];
        assert_eq!(outcome("/a", "HTTP", &servers).await, failed);
        let warning =
            |body: &str| Ok(Some(format!("Probe terminated redirects, Response body: {body}")));
        assert_eq!(outcome("/lost", "HTTP", &servers).await, warning("<a>Found</a>."));
        assert_eq!(outcome("/nowhere", "HTTP", &servers).await, warning(""));
        assert_eq!(
            outcome("/loop", "HTTP", &servers).await,
            Err("stopped after 10 redirects".to_owned())
        );
    }

    #[tokio::test]
    async fn a_redirect_to_a_page_that_fails_is_no_success_because_its_query_names_an_address() {
        let servers = [
            ("/a", "302 Found\r\nLocation: /login?to=http://b/\r\n\r\n"),
            ("/login?to=http://b/", "500 No\r\n\r\n"),
        ];
        let failed = Err("HTTP probe failed with statuscode: 500".to_owned());
        assert_eq!(outcome("/a", "HTTP", &servers).await, failed);
    }

    #[test]
    fn a_redirect_is_read_as_a_browser_reads_it() {
        let joined = |location: &str| {
            let path = get(json!({"port": 80, "path": "/a/b?c"})).request.unwrap().0;
            let server = ProbeServer { host: "127.0.0.1".to_owned(), port: 80 };
            let to = To { server, is_tls: true, path }.joined(location)?;
            Some(format!("{} {} {}", to.is_tls, to.server.authority(), to.path))
        };
        for (location, to) in [
            ("/x", Some("true 127.0.0.1:80 /x")),
            ("x?y", Some("true 127.0.0.1:80 /a/x?y")),
            ("?y", Some("true 127.0.0.1:80 /a/b?y")),
            ("x?y=ftp://b/", Some("true 127.0.0.1:80 /a/x?y=ftp://b/")),
            ("//b:1/x", Some("true b:1 /x")),
            ("http://b", Some("false b:80 /")),
            ("https://[::1]/x", Some("true [::1]:443 /x")),
            ("ftp://b/x", None),
            ("http:///x", None),
        ] {
            assert_eq!(joined(location).as_deref(), to, "{location}");
        }
    }

    #[tokio::test]
    async fn a_socket_is_asked_at_its_own_host_or_the_pods() {
        let own = |host: &str| ProbeHost::Own(host.to_owned());
        let node = |host: [u8; 4]| ProbeHost::Node(Some(host.into()));
        // Example addresses are not asked.
        for (listens, host, pod) in [
            ("127.0.0.1", json!("127.0.0.1"), own("192.0.2.1")),
            ("127.0.0.1", json!(null), own("127.0.0.1")),
            ("127.0.0.2", json!(null), node([127, 0, 0, 2])),
            ("127.0.0.1", json!(null), node([127, 0, 0, 2])),
            ("127.0.0.1", json!(null), node([192, 0, 2, 1])),
            ("127.0.0.1", json!(null), ProbeHost::Node(None)),
            ("127.0.0.1", json!("127.0.0.1"), ProbeHost::Unknown),
        ] {
            let listener = tokio::net::TcpListener::bind((listens, 0)).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let socket = serde_json::from_value(json!({"port": port, "host": host})).unwrap();
            ProbeEndpoint::of(&socket, &container()).unwrap().connect("pod", &pod).await.unwrap();
            listener.accept().await.unwrap();
        }
    }

    #[tokio::test]
    async fn nothing_is_asked_of_a_pod_whose_address_is_not_known() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let endpoint = ProbeEndpoint::at(None, port);
        let (pod, request) = (ProbeHost::Unknown, get(json!({"port": port})));
        for (what, outcome) in [
            ("tcpSocket", endpoint.connect("pod", &pod).await),
            ("grpc", endpoint.open("pod", &pod).await.map(drop)),
            ("httpGet", request.ask("pod", &pod, PROGRAM, until()).await.map(drop)),
            (
                "a hook",
                request.clone().of_hook().ask("pod", &pod, PROGRAM, until()).await.map(drop),
            ),
        ] {
            assert!(matches!(outcome, Err(ActionError::Unasked { .. })), "{what}: {outcome:?}");
        }
    }

    #[test]
    fn a_pod_on_the_hosts_network_is_asked_at_the_nodes_address_whatever_its_runtime_reports() {
        let (node, other) = ([10, 0, 0, 7].into(), "10.88.0.1");
        for (is_on_host_network, own, expected) in [
            (true, None, ProbeHost::Node(Some(node))),
            (true, Some(other), ProbeHost::Node(Some(node))),
            (false, Some(other), ProbeHost::Own(other.to_owned())),
            (false, None, ProbeHost::Unknown),
        ] {
            let host = ProbeHost::of_pod(is_on_host_network, own, || Some(node));
            assert_eq!(host, expected, "{is_on_host_network} {own:?}");
        }
    }

    #[tokio::test]
    async fn a_request_names_the_host_where_the_server_was_found() {
        for listens in ["127.0.0.2", "127.0.0.1"] {
            let listener = tokio::net::TcpListener::bind((listens, 0)).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let pod = ProbeHost::Node(Some([127, 0, 0, 2].into()));
            let (result, request) = served(&get(json!({"port": port})), &pod, listener).await;
            result.unwrap();
            assert!(request.contains(&format!("\r\nHost: {listens}:{port}\r\n")), "{request}");
        }
    }

    #[test]
    fn more_headers_than_a_request_can_have_are_refused_and_do_not_panic() {
        let sent = |count: usize| {
            let header = |n| json!({"name": format!("a{n}"), "value": ""});
            let headers = (0..count).map(header).collect::<Vec<_>>();
            let (path, headers) = get(json!({"port": 80, "httpHeaders": headers})).request?;
            let server = ProbeServer { host: "127.0.0.1".to_owned(), port: 80 };
            let request = To { server, is_tls: false, path }.request(&headers, false, PROGRAM);
            Ok::<_, String>(request.headers().len())
        };
        let most = 24_576;
        assert_eq!(sent(most - 4), Ok(most));
        for count in most - 3..=most + 1 {
            assert_eq!(sent(count), Err("httpGet.httpHeaders are too many".to_owned()));
        }
    }
}
