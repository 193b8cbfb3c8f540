//! A web server that a shutdown hurts: each answer takes a moment, and SIGTERM kills the server at once, with its
//! listener and all requests in progress.
//!
//!     replica ADDRESS:PORT

use std::process::ExitCode;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// How long an answer takes.
const WORK: Duration = Duration::from_millis(20);
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\ndone\n";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(address) = std::env::args().nth(1) else {
        eprintln!("usage: replica ADDRESS:PORT");
        return ExitCode::from(2);
    };
    let listener = match TcpListener::bind(&address).await {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("replica: {address}: {error}");
            return ExitCode::FAILURE;
        }
    };
    loop {
        // A client that disconnects before it is served is no reason to stop.
        if let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client));
        }
    }
}

async fn serve(mut client: TcpStream) -> std::io::Result<()> {
    let mut request = BufReader::new(&mut client).lines();
    while request.next_line().await?.is_some_and(|line| !line.is_empty()) {}
    tokio::time::sleep(WORK).await;
    client.write_all(ANSWER).await?;
    client.shutdown().await
}
