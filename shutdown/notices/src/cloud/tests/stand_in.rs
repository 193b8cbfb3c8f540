//! A metadata service for tests: a socket that answers from a table.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::super::Endpoint;

/// The response to one path.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    /// A status, more header lines, and a body.
    Say(u16, &'static str, String),
    /// These bytes and no more; the connection stays open.
    Raw(Vec<u8>),
    /// Never answers.
    Hang,
    /// Holds the response back until the table changes, if the request has `last_etag`.
    Etag(&'static str, String),
}

#[derive(Clone)]
pub(super) struct StandIn(Arc<Inner>);

struct Inner {
    endpoint: Endpoint,
    replies: Mutex<HashMap<String, Reply>>,
    /// The requests' first lines and headers, in order.
    asked: Mutex<Vec<String>>,
    changed: Notify,
}

impl StandIn {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let inner = Inner {
            endpoint: format!("http://{address}").parse().expect("an endpoint"),
            replies: Mutex::default(),
            asked: Mutex::default(),
            changed: Notify::new(),
        };
        let stand_in = Self(Arc::new(inner));
        let serving = stand_in.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serving.clone();
                tokio::spawn(async move { serving.serve(stream).await });
            }
        });
        stand_in
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        self.0.endpoint.clone()
    }

    /// Sets the response to `path` (without its query) from now on.
    pub(super) fn reply(&self, path: &str, reply: Reply) {
        self.0.replies.lock().expect("no panic before").insert(path.to_owned(), reply);
        self.0.changed.notify_waiters();
    }

    pub(super) fn publish(&self, path: &str, body: impl Into<String>) {
        self.reply(path, Reply::Say(200, "", body.into()));
    }

    pub(super) fn asked(&self) -> Vec<String> {
        self.0.asked.lock().expect("no panic before").clone()
    }

    async fn serve(&self, mut stream: TcpStream) {
        let mut request = Vec::new();
        let mut buffer = [0; 1024];
        while !request.windows(4).any(|window| window == b"\r\n\r\n") {
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(read) => request.extend_from_slice(buffer.get(..read).expect("in range")),
            }
        }
        let request = String::from_utf8_lossy(&request).into_owned();
        self.0.asked.lock().expect("no panic before").push(request.clone());
        let target = request.split(' ').nth(1).unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let reply = loop {
            let changed = self.0.changed.notified();
            let reply = self.0.replies.lock().expect("no panic before").get(path).cloned();
            match reply {
                Some(Reply::Etag(etag, _)) if query.contains(&format!("last_etag={etag}")) => {
                    changed.await;
                }
                reply => break reply.unwrap_or(Reply::Say(404, "", String::new())),
            }
        };
        let (status, headers, body) = match reply {
            Reply::Say(status, headers, body) => (status, headers.to_owned(), body),
            Reply::Etag(etag, body) => {
                (200, format!("ETag: {etag}\r\nMetadata-Flavor: Google\r\n"), body)
            }
            Reply::Hang => return std::future::pending().await,
            Reply::Raw(bytes) => {
                let _ = stream.write_all(&bytes).await;
                return std::future::pending().await;
            }
        };
        let head =
            format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(body.as_bytes()).await;
    }
}
