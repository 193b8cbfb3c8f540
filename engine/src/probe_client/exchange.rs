//! One HTTP request and its answer, over TCP or TLS.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// Longest head of an answer that is read, in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// Longest part of a redirect's body that is read, in bytes.
const MAX_BODY: usize = 10 * 1024;

/// What a server answered.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Of a redirect: where to.
    pub(super) location: Option<String>,
    /// Of a redirect, as it came.
    pub(super) body: String,
}

/// Sends `request` to a server, and reads as much of the answer as it needs. As with the kubelet, a certificate is not
/// looked at: the container's own has no authority that the node knows of.
///
/// # Errors
/// No listener, no TLS, or no HTTP.
pub(super) async fn exchange(
    (host, port): (&str, u16),
    is_tls: bool,
    request: &[u8],
) -> io::Result<Answer> {
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

async fn on(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &[u8]) -> io::Result<Answer> {
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
        let end = head + MAX_BODY;
        while seen.len() < end && stream.read_buf(&mut seen).await? > 0 {}
        answer.body = String::from_utf8_lossy(&seen[head..end.min(seen.len())]).into_owned();
    }
    Ok(answer)
}

/// What has come so far says, and where its head ends; none if more is needed. Only a redirect's whole head is.
fn read(seen: &[u8]) -> io::Result<Option<(Answer, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(seen);
    let status = response.code.filter(|_| seen.contains(&b'\n'));
    match (status, parsed) {
        (_, Err(_)) => Err(io::Error::other("the answer is not HTTP")),
        (Some(status), _) if !(300..400).contains(&status) => {
            Ok(Some((Answer { status, ..Answer::default() }, 0)))
        }
        (Some(status), Ok(httparse::Status::Complete(head))) => {
            let to = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case("location"));
            let location = to.map(|h| String::from_utf8_lossy(h.value).into_owned());
            Ok(Some((Answer { status, location, ..Answer::default() }, head)))
        }
        _ => Ok(None),
    }
}

/// Takes every server for the right one.
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
        for part in ["HTTP/1.1", "HTTP/1.1 200", "HTTP/1.1 302 Found\r\nLocation: /a\r\n", ""] {
            assert!(read(part.as_bytes()).unwrap().is_none(), "{part:?}");
        }
    }
}
