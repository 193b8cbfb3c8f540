//! A test client: TLS with or without a certificate, one request, the response as bytes.

use std::io;
use std::sync::Arc;

use rcgen::{CertifiedIssuer, KeyPair};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::Bench;

pub(super) struct Client {
    pub(super) port: u16,
    tls: TlsConnector,
}

impl Client {
    /// A client that presents this certificate.
    pub(super) async fn new(bench: &Bench, shown: Option<&str>) -> Self {
        Self::of(bench.serve().await, &bench.authority, shown)
    }

    pub(super) fn of(
        port: u16,
        authority: &CertifiedIssuer<'static, KeyPair>,
        shown: Option<&str>,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match shown {
            None => config.with_no_client_auth(),
            Some(pem) => {
                let chain = CertificateDer::pem_slice_iter(pem.as_bytes());
                let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
                let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
        };
        Self { port, tls: TlsConnector::from(Arc::new(config)) }
    }

    /// The same client, which offers these protocols.
    pub(super) fn speaking(&self, protocols: &[&[u8]]) -> Self {
        let mut config = ClientConfig::clone(self.tls.config());
        config.alpn_protocols = protocols.iter().map(|one| one.to_vec()).collect();
        Self { port: self.port, tls: TlsConnector::from(Arc::new(config)) }
    }

    pub(super) async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        self.connect_over(TcpStream::connect(("127.0.0.1", self.port)).await?).await
    }

    /// Connects over what leads to the server.
    pub(super) async fn connect_over<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.tls.connect("localhost".try_into().unwrap(), stream).await
    }

    /// Sends this request and returns the connection.
    pub(super) async fn send(&self, request: &[u8]) -> io::Result<TlsStream<TcpStream>> {
        let mut stream = self.connect().await?;
        stream.write_all(request).await?;
        Ok(stream)
    }

    /// Sends this request and returns the whole response.
    pub(super) async fn raw(&self, request: &[u8]) -> io::Result<String> {
        let mut stream = self.send(request).await?;
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer).await {
            // The connection may end without a TLS `close_notify` after the response.
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof || answer.is_empty() => {
                return Err(error);
            }
            _ => {}
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Sends a `GET` request and returns the status and the body.
    pub(super) async fn get(&self, path: &str, token: Option<&str>) -> io::Result<(u16, String)> {
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        let token = token.unwrap_or_default();
        let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\n{token}\r\n");
        let answer = self.raw(request.as_bytes()).await?;
        let status = answer.get(9..12).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(answer.clone()))?;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        Ok((status, body.to_owned()))
    }
}
