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
use tokio::time::timeout;
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

/// The maximum size of the part of a redirect's body that is read, in bytes.
const MAX_BODY: usize = 10 * 1024;
/// How long reading a redirect's body may take: it is only for people, and a server that keeps the connection open must
/// not make its probe fail.
const FOR_BODY: Duration = Duration::from_millis(100);

/// The response of a server.
#[derive(Debug, Default)]
pub(super) struct ProbeResponse {
    pub(super) status: u16,
    /// The location of a redirect.
    pub(super) location: Option<String>,
    /// The body of a redirect, as it was received.
    pub(super) body: String,
}

/// Sends `request` on a connection, over TLS if the server has a name for it, and reads as much of the response as is
/// needed. As with the kubelet, certificates are not verified: the node knows no authority for the container's.
///
/// # Errors
/// The server does not speak TLS or HTTP.
pub(super) async fn exchange(
    stream: TcpStream,
    tls_name: Option<&str>,
    request: Request<Empty<Bytes>>,
) -> io::Result<ProbeResponse> {
    let Some(name) = tls_name else { return on(stream, request).await };
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let verifier = Arc::new(AnyCertificate);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    on(TlsConnector::from(Arc::new(config)).connect(name, stream).await?, request).await
}

/// Whether a request over TLS failed because the server does not speak it.
pub(super) fn is_no_tls(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    matches!(cause, Some(Error::InvalidMessage(_)))
}

async fn on(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Empty<Bytes>>,
) -> io::Result<ProbeResponse> {
    // Go, and so the kubelet, spells headers this way; some servers are case-sensitive.
    let mut client = http1::Builder::new();
    client.title_case_headers(true).max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
    let (mut sender, connection) =
        client.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let mut response = pin!(async { Ok(read(sender.send_request(request).await?).await) });
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

/// Only of a redirect more than the head is needed.
async fn read(response: Response<Incoming>) -> ProbeResponse {
    let (head, mut body) = response.into_parts();
    let status = head.status.as_u16();
    if !head.status.is_redirection() {
        return ProbeResponse { status, ..ProbeResponse::default() };
    }
    let mut seen = Vec::new();
    let rest = async {
        while seen.len() < MAX_BODY && !body.is_end_stream() {
            let Some(Ok(frame)) = body.frame().await else { break };
            seen.extend(frame.into_data().unwrap_or_default());
        }
    };
    let _ = timeout(FOR_BODY, rest).await;
    seen.truncate(MAX_BODY);
    let location = head.headers.get(LOCATION);
    ProbeResponse {
        status,
        location: location.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
        body: String::from_utf8_lossy(&seen).into_owned(),
    }
}

/// Accepts every certificate.
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
            response = on(near, Request::new(Empty::new())) => response,
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

    #[tokio::test]
    async fn the_status_is_that_of_the_first_answer_and_what_is_no_http_is_none() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\n\r\n", Some(200)),
            ("HTTP/1.0 404\r\n\r\nHTTP/1.1 200", Some(404)),
            ("HTTP/1.1 500 \nServer: a\n\n", Some(500)),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", Some(204)),
            ("HTTP/1.1 2000\r\n\r\n", None),
            ("SSH-2.0-OpenSSH\r\n", None),
        ] {
            let status = answered(answer).await.map(|answer| answer.status);
            assert_eq!(status.ok(), expected, "{answer:?}");
        }
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(1000));
        assert_eq!(answered(&many).await.unwrap().status, 200);
    }
}
