//! Sends one HTTP request and reads the response, over TCP or TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
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
const MAX_HEAD: usize = 16 * 1024;

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
    /// The content length of a redirect.
    body_length: Option<usize>,
}

/// Sends `request` to a server, and reads as much of the response as is needed. As with the kubelet, certificates are
/// not verified: the node knows no authority for the container's certificate.
///
/// # Errors
/// Nothing listens there, or the server does not speak TLS or HTTP.
pub(super) async fn exchange(
    (host, port): (&str, u16),
    is_tls: bool,
    request: &[u8],
) -> io::Result<ProbeResponse> {
    let stream = TcpStream::connect((host, port)).await?;
    if !is_tls {
        return on(stream, request).await;
    }
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let verifier = Arc::new(AnyCertificate);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    on(TlsConnector::from(Arc::new(config)).connect(name, stream).await?, request).await
}

async fn on(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &[u8],
) -> io::Result<ProbeResponse> {
    stream.write_all(request).await?;
    stream.flush().await?;
    let mut seen = Vec::with_capacity(256);
    let (mut answer, head) = loop {
        if let Some(read) = read(&seen)? {
            break read;
        }
        if seen.len() > MAX_HEAD || stream.read_buf(&mut seen).await? == 0 {
            return Err(io::Error::other("the answer is not HTTP"));
        }
    };
    if (300..400).contains(&answer.status) {
        let end = head + answer.body_length.unwrap_or(MAX_BODY).min(MAX_BODY);
        let rest = async {
            while seen.len() < end && stream.read_buf(&mut seen).await.is_ok_and(|read| read > 0) {}
        };
        let _ = timeout(FOR_BODY, rest).await;
        answer.body = String::from_utf8_lossy(&seen[head..end.min(seen.len())]).into_owned();
    }
    Ok(answer)
}

/// Parses what has been received so far: the response and where its head ends; none if more is needed. Only a redirect
/// needs its whole head.
fn read(seen: &[u8]) -> io::Result<Option<(ProbeResponse, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(seen);
    let status = response.code.filter(|_| seen.contains(&b'\n'));
    match (status, parsed) {
        // More headers than are looked at: the status is known all the same.
        (_, Err(error)) if error != httparse::Error::TooManyHeaders => {
            Err(io::Error::other("the answer is not HTTP"))
        }
        (Some(status), _) if !(300..400).contains(&status) => {
            Ok(Some((ProbeResponse { status, ..ProbeResponse::default() }, 0)))
        }
        (Some(status), Ok(httparse::Status::Complete(head))) => {
            let header = |name: &str| {
                let header = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
                header.map(|h| String::from_utf8_lossy(h.value).into_owned())
            };
            let body_length = header("content-length").and_then(|text| text.trim().parse().ok());
            let location = header("location");
            Ok(Some((
                ProbeResponse { status, location, body_length, ..ProbeResponse::default() },
                head,
            )))
        }
        _ => Ok(None),
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
    use super::*;

    /// The server keeps the connection open.
    #[tokio::test(start_paused = true)]
    async fn a_redirect_is_known_though_its_body_never_ends() {
        for (head, sent, taken) in [
            ("Content-Length: 5\r\n", "moved, and more", "moved"),
            ("Content-Length: 99\r\n", "moved", "moved"),
            ("Content-Length: many\r\n", "moved", "moved"),
            ("", "moved", "moved"),
            ("Content-Length: 0\r\n", "", ""),
        ] {
            let (near, mut far) = tokio::io::duplex(1024);
            let answer = format!("HTTP/1.1 302 Found\r\nLocation: /a\r\n{head}\r\n{sent}");
            far.write_all(answer.as_bytes()).await.unwrap();
            let begun = tokio::time::Instant::now();
            let answer = on(near, b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            assert_eq!(
                (answer.location.as_deref(), &*answer.body),
                (Some("/a"), taken),
                "{head:?}"
            );
            assert!(begun.elapsed() <= FOR_BODY, "{head:?}");
        }
    }

    #[test]
    fn the_status_is_read_from_the_first_line_only() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\n", Some(200)),
            ("HTTP/1.0 404\r\n\r\nHTTP/1.1 200", Some(404)),
            ("HTTP/1.1 500 \r\nServer", Some(500)),
            ("HTTP/1.1 2000\r\n", None),
            ("SSH-2.0-OpenSSH\r\n", None),
        ] {
            let status = read(answer.as_bytes()).map(|read| read.map(|(answer, _)| answer.status));
            assert_eq!(status.ok(), expected.map(Some), "{answer:?}");
        }
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(65));
        assert_eq!(read(many.as_bytes()).unwrap().unwrap().0.status, 200);
        for part in ["HTTP/1.1", "HTTP/1.1 200", "HTTP/1.1 302 Found\r\nLocation: /a\r\n", ""] {
            assert!(read(part.as_bytes()).unwrap().is_none(), "{part:?}");
        }
    }
}
