//! Sends one HTTP request and reads the response, over TCP or TLS.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::LOCATION;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// The maximum size of a response's head, in bytes.
const MAX_HEAD: usize = 64 * 1024;
/// The maximum number of a response's headers.
const MAX_HEADERS: usize = 1024;

/// The maximum size of the part of a body that is read, in bytes; the kubelet's limit.
const MAX_BODY: usize = 10 * 1024;
/// How long reading a redirect's body may take: it is only for people, and a server that keeps the connection open must
/// not make its probe fail.
const FOR_BODY: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct ProbeResponse {
    pub(super) status: u16,
    pub(super) location: Option<String>,
    /// The body of a redirect, as it was received.
    pub(super) body: String,
    /// False of a success whose body was awaited and did not come.
    pub(super) is_whole: bool,
}

/// Sends `request` on a connection, over TLS if the server has a name for it, and reads as much of the response as is
/// needed: of a success the body too, where it is awaited `until` then. As with the kubelet, certificates are not
/// verified: the node knows no authority for the container's.
///
/// # Errors
/// The server does not speak TLS or HTTP.
pub(super) async fn exchange(
    stream: TcpStream,
    tls_name: Option<&str>,
    request: Request<Empty<Bytes>>,
    until: Option<Instant>,
) -> io::Result<ProbeResponse> {
    let Some(name) = tls_name else { return on(stream, request, until).await };
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let verifier = Arc::new(AnyCertificate);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    on(TlsConnector::from(Arc::new(config)).connect(name, stream).await?, request, until).await
}

/// Whether a request over TLS failed because the server does not speak it.
pub(super) fn is_no_tls(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    matches!(cause, Some(Error::InvalidMessage(_)))
}

async fn on(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Empty<Bytes>>,
    until: Option<Instant>,
) -> io::Result<ProbeResponse> {
    // Go, and so the kubelet, spells headers this way; some servers are case-sensitive.
    let mut client = http1::Builder::new();
    client.title_case_headers(true).max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
    let (mut sender, connection) =
        client.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let mut response = pin!(async { Ok(read(sender.send_request(request).await?, until).await) });
    let response = tokio::select! {
        biased;
        response = &mut response => response,
        // The response may have come with the end of the connection.
        _ = connection => response.await,
    };
    response.map_err(|error: hyper::Error| {
        match error.is_parse() || error.is_incomplete_message() {
            true => io::Error::other("the answer is not HTTP"),
            false => io::Error::other(error),
        }
    })
}

/// Reads the body of a redirect for a short time, and that of a success, if it is awaited, `until` then.
async fn read(response: Response<Incoming>, until: Option<Instant>) -> ProbeResponse {
    let (head, mut body) = response.into_parts();
    let status = head.status.as_u16();
    let until = match until {
        _ if head.status.is_redirection() => Instant::now() + FOR_BODY,
        Some(until) if head.status.is_success() => until,
        _ => return ProbeResponse { status, is_whole: true, ..ProbeResponse::default() },
    };
    let mut seen = Vec::new();
    let rest = async {
        while seen.len() < MAX_BODY && !body.is_end_stream() {
            match body.frame().await {
                Some(Ok(frame)) => seen.extend(frame.into_data().unwrap_or_default()),
                Some(Err(_)) => return false,
                None => break,
            }
        }
        true
    };
    let is_whole = timeout_at(until, rest).await.unwrap_or(false);
    seen.truncate(MAX_BODY);
    let location = head.headers.get(LOCATION);
    ProbeResponse {
        status,
        location: location.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
        body: String::from_utf8_lossy(&seen).into_owned(),
        is_whole,
    }
}

#[derive(Debug)]
struct AnyCertificate;

// === impl AnyCertificate ===

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(3);

    /// What becomes of a request to a server that sends `answer` and keeps the connection open.
    async fn answered(answer: &str) -> io::Result<ProbeResponse> {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let serve = async {
            let mut seen = Vec::new();
            while !seen.ends_with(b"\r\n\r\n") && far.read_buf(&mut seen).await.unwrap() > 0 {}
            far.write_all(answer.as_bytes()).await.unwrap();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            response = on(near, Request::new(Empty::new()), Some(Instant::now() + LIMIT)) => response,
            () = serve => unreachable!(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_redirect_is_known_though_its_body_never_ends() {
        for (head, sent, taken) in [
            ("Content-Length: 5\r\n", "moved, and more", "moved"),
            ("Content-Length: 99\r\n", "moved", "moved"),
            ("", "moved", "moved"),
            ("Content-Length: 0\r\n", "", ""),
        ] {
            let begun = tokio::time::Instant::now();
            let answer = format!("HTTP/1.1 302 Found\r\nLocation: /a\r\n{head}\r\n{sent}");
            let answer = answered(&answer).await.unwrap();
            assert_eq!(
                (answer.location.as_deref(), &*answer.body),
                (Some("/a"), taken),
                "{head:?}"
            );
            assert!(begun.elapsed() <= FOR_BODY, "{head:?}");
        }
    }

    /// A health page whose database hangs.
    #[tokio::test(start_paused = true)]
    async fn a_success_is_one_once_its_body_has_come_as_far_as_a_kubelet_reads() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n";
        for (sent, expected) in [(5, false), (MAX_BODY, true), (50_000, true)] {
            let begun = tokio::time::Instant::now();
            let answer = answered(&format!("{head}{}", "a".repeat(sent))).await.unwrap();
            assert_eq!((answer.status, answer.is_whole), (200, expected), "{sent}");
            let took = if expected { Duration::ZERO } else { LIMIT };
            assert_eq!(begun.elapsed(), took, "{sent}");
        }
        // Nothing else is about its body.
        let answer = answered("HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\n").await.unwrap();
        assert_eq!((answer.status, answer.is_whole), (500, true));
    }

    #[tokio::test]
    async fn the_status_is_that_of_the_first_answer_and_what_is_no_http_is_none() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Some(200)),
            ("HTTP/1.0 404\r\n\r\nHTTP/1.1 200", Some(404)),
            ("HTTP/1.1 500 \nServer: a\n\n", Some(500)),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", Some(204)),
            ("HTTP/1.1 2000\r\n\r\n", None),
            ("SSH-2.0-OpenSSH\r\n", None),
        ] {
            let status = answered(answer).await.map(|answer| answer.status);
            assert_eq!(status.ok(), expected, "{answer:?}");
        }
        let many = "A: b\r\n".repeat(1000);
        let many = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{many}\r\n");
        assert_eq!(answered(&many).await.unwrap().status, 200);
    }
}
