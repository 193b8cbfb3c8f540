//! Scrapes as Prometheus does, over the control socket and over TCP.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use winddown_control::{ControlSocket, Limits, Server};
use winddown_node::metrics::serve_over_tcp;

use super::bed::{Bed, TestNode, value};

/// A timeout longer than anything in these tests takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn server(bed: &Bed, stop: &CancellationToken) -> Server<TestNode> {
    Server::new(Arc::new(bed.node.clone()), Limits::default(), stop.clone())
}

/// Scrapes, checks the head of the answer and returns its body.
async fn scrape(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    let request =
        "GET /metrics HTTP/1.1\r\nHost: node\r\nAccept: application/openmetrics-text\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let kind = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(head.to_ascii_lowercase().contains(kind), "{head}");
    assert!(body.ends_with("# EOF\n"), "{body}");
    body.to_owned()
}

#[tokio::test]
async fn a_scrape_over_the_control_socket_gives_the_document() {
    let bed = Bed::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("winddown.sock");
    let stop = CancellationToken::new();
    let socket = ControlSocket::bind(&path, None).await.unwrap();
    let served = tokio::spawn(server(&bed, &stop).serve(socket));
    let text = scrape(UnixStream::connect(&path).await.unwrap()).await;
    assert_eq!(value(&text, "winddown_inhibitor_held"), 1.0);
    stop.cancel();
    served.await.unwrap();
}

#[tokio::test]
async fn a_scrape_over_tcp_gives_the_document_once_the_address_can_be_had() {
    let bed = Bed::new();
    // An address of its own: another test could be given the port as soon as it is free.
    let taken = TcpListener::bind("127.0.0.57:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let stop = CancellationToken::new();
    let again = Duration::from_millis(5);
    let (problem, mut problems) = watch::channel(None);
    let told = move |text| drop(problem.send_replace(text));
    let served =
        tokio::spawn(serve_over_tcp(server(&bed, &stop), address, again, stop.clone(), told));
    let said = problems.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    assert!(said.contains(&address.to_string()) && said.contains("in use"), "{said}");
    assert!(!served.is_finished(), "an address in use is waited for");
    drop(taken);
    // The port does not end with `taken`: a program that another test is about to start holds it too,
    // until it runs. Who connects before the server has the address is reset.
    tokio::time::timeout(PATIENCE, problems.wait_for(Option::is_none)).await.unwrap().unwrap();
    let text = scrape(TcpStream::connect(address).await.unwrap()).await;
    assert_eq!(value(&text, "winddown_inhibitor_held"), 1.0);
    stop.cancel();
    tokio::time::timeout(PATIENCE, served).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_address_that_cannot_be_had_does_not_hold_up_the_end() {
    let bed = Bed::new();
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let stop = CancellationToken::new();
    let again = Duration::from_secs(3600);
    let served =
        tokio::spawn(serve_over_tcp(server(&bed, &stop), address, again, stop.clone(), drop));
    tokio::task::yield_now().await;
    stop.cancel();
    tokio::time::timeout(PATIENCE, served).await.unwrap().unwrap();
}
