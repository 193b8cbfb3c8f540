//! Requests to a metadata service: plain HTTP/1.1, bounded in time and size, without redirects or
//! proxies.

use std::io;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{DATE, ETAG, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use jiff::fmt::rfc2822::DateTimeParser;
use tokio::net::TcpStream;
use tokio::time::timeout;
use winddown_host::HostNames;
use winddown_shared::WallTime;

/// The timeout of a request whose response nothing holds back.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest response body that is accepted, in bytes.
const MAX_BODY_BYTES: usize = 256 * 1024;

/// There is one metadata service.
static NAMES: HostNames = HostNames::new(1);

/// The address of a metadata service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
}

/// The error for an address that cannot be used.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is no address of a metadata service: write http://HOST or http://HOST:PORT")]
#[non_exhaustive]
pub struct EndpointError {
    /// The address as it was given.
    pub text: String,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum MetadataRequestError {
    #[error("cannot connect to {host} port {port}; is this machine in that cloud?")]
    Connect { host: String, port: u16, source: io::Error },
    #[error("no answer to {path} within {} s", .after.as_secs())]
    TimeOut { path: String, after: Duration },
    #[error("{path} failed")]
    Http { path: String, source: hyper::Error },
    #[error("the answer to {path} cannot be read (at most {MAX_BODY_BYTES} bytes of UTF-8)")]
    Body { path: String },
    #[error("{path} was answered with {status}{hint}")]
    Status { path: String, status: StatusCode, hint: &'static str },
    #[error("the answer to {path} is not understood: {why}")]
    Content { path: String, why: String },
}

pub(super) struct MetadataRequest<'a> {
    pub(super) method: Method,
    /// The path and query.
    pub(super) path: &'a str,
    pub(super) headers: &'a [(&'static str, &'a str)],
    /// The timeout, connecting included.
    pub(super) within: Duration,
}

/// A response, whatever its status.
#[derive(Debug)]
pub(super) struct MetadataResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

// === impl Endpoint ===

impl Endpoint {
    /// `http://169.254.169.254`, the address in all three clouds.
    pub fn link_local() -> Self {
        Self { host: "169.254.169.254".to_owned(), port: 80 }
    }

    /// Sends one request on a connection of its own. Cancel-safe.
    pub(super) async fn send(
        &self,
        request: &MetadataRequest<'_>,
    ) -> Result<MetadataResponse, MetadataRequestError> {
        let after = request.within;
        timeout(after, self.send_unbounded(request)).await.unwrap_or_else(|_| {
            Err(MetadataRequestError::TimeOut { path: request.path.to_owned(), after })
        })
    }

    async fn send_unbounded(
        &self,
        request: &MetadataRequest<'_>,
    ) -> Result<MetadataResponse, MetadataRequestError> {
        let path = || request.path.to_owned();
        let failed = |source| MetadataRequestError::Http { path: path(), source };
        let stream = self.connect().await.map_err(|source| MetadataRequestError::Connect {
            host: self.host.clone(),
            port: self.port,
            source,
        })?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        let asked = async {
            let response = sender.send_request(self.http(request)?).await.map_err(failed)?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_BODY_BYTES).collect().await;
            let body = body.map_err(|_| MetadataRequestError::Body { path: path() })?.to_bytes();
            let body = String::from_utf8(body.into())
                .map_err(|_| MetadataRequestError::Body { path: path() })?;
            Ok(MetadataResponse { status: head.status, headers: head.headers, body })
        };
        // The connection is driven alongside the request and dropped with it, so that no task outlives its caller.
        tokio::pin!(asked);
        let connection = std::pin::pin!(connection);
        tokio::select! {
            biased;
            response = &mut asked => response,
            ended = connection => match ended {
                Ok(()) => asked.await,
                Err(error) => Err(failed(error)),
            },
        }
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let host = self.host.trim_matches(['[', ']']);
        NAMES.connect(host, host, self.port).await
    }

    fn http(
        &self,
        request: &MetadataRequest<'_>,
    ) -> Result<hyper::Request<Empty<Bytes>>, MetadataRequestError> {
        let bad = |what: &dyn std::fmt::Display| MetadataRequestError::Content {
            path: request.path.to_owned(),
            why: format!("it cannot be asked again: {what}"),
        };
        let authority = match self.port {
            80 => self.host.clone(),
            port => format!("{}:{port}", self.host),
        };
        let mut sent = hyper::Request::builder()
            .method(request.method.clone())
            .uri(request.path)
            .header(HOST, authority)
            .body(Empty::new())
            .map_err(|error| bad(&error))?;
        for (name, value) in request.headers {
            let value = HeaderValue::from_str(value).map_err(|error| bad(&error))?;
            sent.headers_mut().insert(HeaderName::from_static(name), value);
        }
        Ok(sent)
    }
}

impl std::str::FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || EndpointError { text: text.to_owned() };
        let uri: Uri = text.parse().map_err(|_| bad())?;
        let plain = uri.scheme_str() == Some("http")
            && matches!(uri.path(), "" | "/")
            && uri.query().is_none()
            && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        let host = uri.host().filter(|host| plain && !host.is_empty()).ok_or_else(bad)?;
        Ok(Self { host: host.to_owned(), port: uri.port_u16().unwrap_or(80) })
    }
}

// === impl MetadataResponse ===

impl MetadataResponse {
    /// The time in the `Date` header.
    pub(super) fn server_time(&self) -> Option<WallTime> {
        date(self.headers.get(DATE)?.to_str().ok()?)
    }

    /// The body of a response to `path`, a name or a token: one word, which an error page is not.
    pub(super) fn word(&self, path: &str) -> Result<&str, MetadataRequestError> {
        let text = self.body.trim();
        let is_word = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c == '<');
        let why = "it is not one word".to_owned();
        is_word
            .then_some(text)
            .ok_or_else(|| MetadataRequestError::Content { path: path.to_owned(), why })
    }

    /// The ETag: the version of a value whose change can be waited for.
    pub(super) fn etag(&self) -> Option<&str> {
        self.headers.get(ETAG)?.to_str().ok()
    }
}

/// Parses a date as HTTP, AWS and Azure write it: `Mon, 19 Sep 2016 18:29:47 GMT`, or without the weekday.
pub(super) fn date(text: &str) -> Option<WallTime> {
    DateTimeParser::new().parse_timestamp(text.trim()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_others_refused() {
        let of = |text: &str| text.parse::<Endpoint>();
        assert_eq!(of("http://169.254.169.254"), Ok(Endpoint::link_local()));
        assert_eq!(of("http://169.254.169.254/"), Ok(Endpoint::link_local()));
        let local = Endpoint { host: "localhost".to_owned(), port: 8080 };
        assert_eq!(of("http://localhost:8080"), Ok(local));
        assert_eq!(of("http://[fd00:ec2::254]").map(|e| e.host), Ok("[fd00:ec2::254]".to_owned()));
        for wrong in ["", "localhost", "https://localhost", "http://", "http://a/b", "http://u@h"] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }

    /// A name server that does not answer would take one of them after the other.
    #[test]
    fn a_host_name_takes_no_thread_of_those_for_disks() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().max_blocking_threads(1).build().expect("a runtime").block_on(async {
            let (go, gate) = std::sync::mpsc::channel::<()>();
            let disk = tokio::task::spawn_blocking(move || gate.recv());
            let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let port = server.local_addr().expect("an address").port();
            let endpoint: Endpoint = format!("http://127.1:{port}").parse().expect("a name");
            let within = Duration::from_secs(5);
            let request = MetadataRequest { method: Method::GET, path: "/", headers: &[], within };
            tokio::select! {
                answer = endpoint.send(&request) => panic!("{answer:?}"),
                asked = server.accept() => drop(asked.expect("a connection")),
            }
            drop(go);
            assert!(disk.await.expect("it ends").is_err());
        });
    }

    #[test]
    fn dates_are_read_with_and_without_the_day() {
        let expected: WallTime = "2019-01-21T09:00:43Z".parse().expect("a time");
        for text in ["21 Jan 2019 09:00:43 GMT", "Mon, 21 Jan 2019 09:00:43 GMT"] {
            assert_eq!(date(text), Some(expected), "{text}");
        }
        for text in ["", "tomorrow", "Tue, 21 Jan 2019 09:00:43 GMT", "32 Jan 2019 09:00:43 GMT"] {
            assert_eq!(date(text), None, "{text}");
        }
    }
}
