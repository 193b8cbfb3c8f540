//! A small HTTPS client.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use winddown_apiserver::{ApiServer, Identity};

const TIME: Duration = Duration::from_secs(20);

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Makes a connection for every request.
#[derive(Clone)]
pub(crate) struct Client {
    address: std::net::SocketAddr,
    tls: Arc<ClientConfig>,
    token: Option<String>,
    accept: &'static str,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Client {
    pub(crate) fn of(server: &ApiServer) -> Self {
        Self::new(server, Some(&server.client_identity_pem()), None, b"h2")
    }

    pub(crate) fn http1(server: &ApiServer) -> Self {
        Self::new(server, Some(&server.client_identity_pem()), None, b"http/1.1")
    }

    pub(crate) fn with_identity(server: &ApiServer, identity: &Identity) -> Self {
        Self::new(server, Some(&identity.pem()), None, b"h2")
    }

    pub(crate) fn with_pem(server: &ApiServer, pem: &str) -> Self {
        Self::new(server, Some(pem), None, b"h2")
    }

    pub(crate) fn with_token(server: &ApiServer, token: &str) -> Self {
        Self::new(server, None, Some(token), b"h2")
    }

    pub(crate) fn nobody(server: &ApiServer) -> Self {
        Self::new(server, None, None, b"h2")
    }

    fn new(server: &ApiServer, identity: Option<&str>, token: Option<&str>, alpn: &[u8]) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(server.ca_pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut tls = match identity {
            Some(pem) => {
                let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
                config.with_client_auth_cert(vec![certificate], key).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        tls.alpn_protocols = vec![alpn.to_vec()];
        Self {
            address: server.address(),
            tls: Arc::new(tls),
            token: token.map(str::to_owned),
            accept: "application/json",
        }
    }

    pub(crate) fn accepting(self, accept: &'static str) -> Self {
        Self { accept, ..self }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", &Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, "application/json", body).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.ask("PUT", path, "application/json", body).await
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Answer {
        self.ask("PATCH", path, "application/merge-patch+json", body).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.ask("PATCH", path, "application/strategic-merge-patch+json", body).await
    }

    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Answer {
        self.ask("DELETE", path, "application/json", options).await
    }

    /// Panics when there is no answer.
    pub(crate) async fn ask(&self, method: &str, path: &str, media: &str, body: &Value) -> Answer {
        self.try_ask(method, path, media, body).await.unwrap()
    }

    pub(crate) async fn try_ask(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: &Value,
    ) -> Result<Answer, Failed> {
        let asking = async {
            let response = self.send(method, path, media, body).await?;
            let (parts, body) = response.into_parts();
            let bytes = body.collect().await?.to_bytes();
            let body = serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
            Ok(Answer { code: parts.status.as_u16(), headers: parts.headers, body })
        };
        tokio::time::timeout(TIME, asking).await?
    }

    /// Begins a watch; `query` without the `watch` parameter.
    pub(crate) async fn watch(&self, path: &str, query: &str) -> Watch {
        let path = format!("{path}?watch=true&{query}");
        let sending = self.send("GET", &path, "", &Value::Null);
        let response = tokio::time::timeout(TIME, sending).await.unwrap().unwrap();
        Watch { code: response.status().as_u16(), body: response.into_body(), rest: Vec::new() }
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: &Value,
    ) -> Result<Response<Incoming>, Failed> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::from(self.address.ip());
        let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let request = Request::builder().method(method).header(CONTENT_TYPE, media);
        let mut request = request.header(ACCEPT, self.accept);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = Full::new(Bytes::from(body));
        if http2 {
            let uri = format!("https://{}{path}", self.address);
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                    .await?;
            tokio::spawn(connection);
            let response = sender.send_request(request.uri(uri).body(body)?).await?;
            Ok(response)
        } else {
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            let request = request.uri(path).header(HOST, "localhost");
            Ok(sender.send_request(request.body(body)?).await?)
        }
    }
}

/// A watch, line by line.
pub(crate) struct Watch {
    pub(crate) code: u16,
    body: Incoming,
    rest: Vec<u8>,
}

impl Watch {
    /// The next event: its type and its object. `None`: the watch has ended.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let mut event: Value = serde_json::from_slice(&line).unwrap();
                let kind = event["type"].as_str().unwrap().to_owned();
                return Some((kind, event["object"].take()));
            }
            match tokio::time::timeout(TIME, self.body.frame()).await.unwrap() {
                Some(Ok(frame)) => self.rest.extend(frame.into_data().unwrap()),
                Some(Err(_)) | None => return None,
            }
        }
    }

    /// The next event as `TYPE name`.
    pub(crate) async fn told(&mut self) -> String {
        match self.next().await {
            Some((kind, object)) => {
                format!("{kind} {}", object["metadata"]["name"].as_str().unwrap_or_default())
            }
            None => "the end".to_owned(),
        }
    }
}
