//! Tests of commands whose streams the node API serves, with a command that echoes its input.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use hyper::header::{HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::{WebSocketStream, client_async};
use winddown_host::{CommandStream, PodStream, PodStreams, StreamRequest};
use winddown_shared::{PodUid, RuntimeError};

use super::Bench;
use super::clients::Client;
use super::streams::{SOON, api_server, upgrade};

const EXEC: &str = "/exec/ns/web/main?command=cat&input=1&output=1&error=1";

/// A runtime whose only command writes "err" to stderr, echoes its input and exits with the given result.
struct Runtime {
    ends: Result<i32, &'static str>,
    begun: Mutex<u32>,
    /// Dropped when the command is abandoned.
    alive: Mutex<Option<oneshot::Sender<()>>>,
    /// The command's side of a terminal, which replaces the pipes.
    terminal: Mutex<Option<OwnedFd>>,
    /// Whether another process keeps writing to stdout after the command has exited.
    lingers: bool,
    /// Whether the command neither reads nor writes, and never exits.
    sleeps: bool,
}

impl Runtime {
    fn that_ends(ends: Result<i32, &'static str>) -> Arc<Self> {
        let (begun, alive, terminal, lingers, sleeps) = Default::default();
        Arc::new(Self { ends, begun, alive, terminal, lingers, sleeps })
    }

    fn stream(self: &Arc<Self>, tty: bool) -> io::Result<CommandStream> {
        let runtime = Arc::clone(self);
        let begin = move || {
            *runtime.begun.lock().unwrap() += 1;
            runtime.alive.lock().unwrap().take()
        };
        if tty {
            let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
            let terminal = openpt(flags)?;
            rustix::fs::fcntl_setfl(&terminal, rustix::fs::OFlags::NONBLOCK)?;
            unlockpt(&terminal)?;
            *self.terminal.lock().unwrap() = Some(ioctl_tiocgptpeer(&terminal, flags)?);
            let exit = async move {
                let _alive = begin();
                std::future::pending().await
            };
            let stdin = Some(terminal.try_clone()?);
            let (stdout, stderr) = (Some(terminal), None);
            return Ok(CommandStream { stdin, stdout, stderr, exit: exit.boxed() });
        }
        let (to, mut reads) = tokio::net::unix::pipe::pipe()?;
        let (mut says, stdout) = tokio::net::unix::pipe::pipe()?;
        let (mut errs, stderr) = tokio::net::unix::pipe::pipe()?;
        let fd = |end: io::Result<OwnedFd>| end.map(Some);
        let (ends, lingers, sleeps) = (self.ends, self.lingers, self.sleeps);
        let exit = async move {
            let _alive = begin();
            if sleeps {
                std::future::pending::<()>().await;
            }
            let failed = |what: &str| RuntimeError::Failed { what: what.to_owned(), source: None };
            let code = ends.map_err(failed)?;
            errs.write_all(b"err").await.unwrap();
            drop(errs);
            tokio::io::copy(&mut reads, &mut says).await.unwrap();
            if lingers {
                tokio::spawn(async move {
                    while says.write_all(b"x").await.is_ok() {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                });
            }
            Ok(code)
        };
        Ok(CommandStream {
            stdin: fd(Sender::into_nonblocking_fd(to))?,
            stdout: fd(Receiver::into_nonblocking_fd(stdout))?,
            stderr: fd(Receiver::into_nonblocking_fd(stderr))?,
            exit: exit.boxed(),
        })
    }
}

/// The runtime's streams, as the node sees them.
struct Streams(Arc<Runtime>);

impl PodStreams for Streams {
    fn open<'a>(
        &'a self,
        _: &'a PodUid,
        wanted: StreamRequest,
    ) -> BoxFuture<'a, Result<Option<PodStream>, RuntimeError>> {
        let StreamRequest::Exec { stdio, .. } = wanted else { panic!("{wanted:?}") };
        async move { Ok(Some(PodStream::Command(self.0.stream(stdio.tty).unwrap()))) }.boxed()
    }
}

async fn bench(runtime: &Arc<Runtime>) -> (Bench, Client) {
    let mut bench = Bench::new();
    let streams = Arc::new(Streams(Arc::clone(runtime)));
    Arc::get_mut(&mut bench.context).unwrap().pod_streams = Some(streams);
    bench.pod(Ok(0));
    let client = api_server(&bench).await;
    (bench, client)
}

type Socket = WebSocketStream<TlsStream<TcpStream>>;

/// Opens a stream, and returns it with the negotiated protocol.
async fn opened(client: &Client, path: &str, protocols: &'static str) -> (Socket, String) {
    let mut request = format!("ws://localhost{path}").into_client_request().unwrap();
    request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocols));
    let (socket, head) = client_async(request, client.connect().await.unwrap()).await.unwrap();
    let agreed = head.headers()[SEC_WEBSOCKET_PROTOCOL].to_str().unwrap().to_owned();
    (socket, agreed)
}

async fn say(socket: &mut Socket, channel: u8, words: &[u8]) {
    socket.send(Message::binary([&[channel], words].concat())).await.unwrap();
}

/// Collects the data of each channel until the stream is closed normally.
async fn heard(socket: &mut Socket) -> [String; 4] {
    let mut heard = <[String; 4]>::default();
    while let Some(message) = timeout(SOON, socket.next()).await.unwrap() {
        match message.unwrap() {
            Message::Binary(bytes) => {
                heard[usize::from(bytes[0])].push_str(std::str::from_utf8(&bytes[1..]).unwrap());
            }
            Message::Close(farewell) => assert_eq!(farewell.unwrap().code, CloseCode::Normal),
            _ => {}
        }
    }
    heard
}

async fn status(runtime: &Arc<Runtime>) -> Value {
    let (_bench, client) = bench(runtime).await;
    let (mut socket, _) = opened(&client, EXEC, "v5.channel.k8s.io").await;
    say(&mut socket, 255, &[0]).await;
    serde_json::from_str(&heard(&mut socket).await[3]).unwrap()
}

#[tokio::test]
async fn a_command_is_told_and_heard_channel_by_channel_until_its_input_and_it_have_ended() {
    let (_bench, client) = bench(&Runtime::that_ends(Ok(7))).await;
    let (mut socket, agreed) =
        opened(&client, EXEC, "channel.k8s.io, v4.channel.k8s.io,v5.channel.k8s.io").await;
    assert_eq!(agreed, "v5.channel.k8s.io");
    let first = timeout(SOON, socket.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(first, Message::binary(vec![1]), "it is open");
    socket.send(Message::Ping("?".into())).await.unwrap();
    let words = "some words\n".repeat(10_000);
    for block in words.as_bytes().chunks(4096) {
        say(&mut socket, 0, block).await;
    }
    say(&mut socket, 4, br#"{"Width":80,"Height":24}"#).await;
    say(&mut socket, 9, b"of no channel").await;
    say(&mut socket, 255, &[0]).await;
    let [stdin, stdout, stderr, status] = heard(&mut socket).await;
    assert_eq!((&*stdin, &*stderr), ("", "err"));
    assert_eq!(stdout, words);
    let expected = json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": "command terminated with non-zero exit code: exit status 7",
        "details": {"causes": [{"reason": "ExitCode", "message": "7"}]},
    });
    assert_eq!(serde_json::from_str::<Value>(&status).unwrap(), expected);
}

#[tokio::test]
async fn how_a_command_ended_or_why_it_was_not_run_is_told_in_the_apis_words() {
    let success = json!({"metadata": {}, "status": "Success"});
    assert_eq!(status(&Runtime::that_ends(Ok(0))).await, success);
    let failure = status(&Runtime::that_ends(Err("the disk is full"))).await;
    let text = "error executing command in container: the disk is full";
    assert_eq!(failure["message"], format!("Internal error occurred: {text}"));
    assert_eq!((&failure["reason"], &failure["code"]), (&json!("InternalError"), &json!(500)));
}

#[tokio::test]
async fn a_process_that_outlives_its_command_and_keeps_writing_holds_up_no_client() {
    let mut runtime = Runtime::that_ends(Ok(0));
    Arc::get_mut(&mut runtime).unwrap().lingers = true;
    let status = timeout(SOON, status(&runtime)).await.unwrap();
    assert_eq!(status["status"], "Success");
}

#[tokio::test]
async fn a_command_that_reads_nothing_ends_with_a_client_that_closes_or_resets_the_connection() {
    let mut runtime = Runtime::that_ends(Ok(0));
    Arc::get_mut(&mut runtime).unwrap().sleeps = true;
    let (bench, client) = bench(&runtime).await;
    for resets in [false, true] {
        let (alive, gone) = oneshot::channel();
        *runtime.alive.lock().unwrap() = Some(alive);
        let (mut socket, _) = opened(&client, EXEC, "v5.channel.k8s.io").await;
        // More than the pipe to the command holds, so the server soon reads nothing more.
        say(&mut socket, 0, &[b'x'; 200_000]).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        if resets {
            socket.get_ref().get_ref().0.set_zero_linger().unwrap();
            drop(socket);
        } else {
            socket.get_mut().shutdown().await.unwrap();
        }
        timeout(SOON, gone).await.unwrap().unwrap_err();
    }
    let all = u32::try_from(crate::MAX_OPEN_STREAMS).unwrap();
    drop(timeout(SOON, bench.context.streams.acquire_many(all)).await.unwrap().unwrap());
}

#[tokio::test]
async fn nothing_is_run_for_a_client_that_does_not_speak_the_protocol() {
    let runtime = Runtime::that_ends(Ok(0));
    let (_bench, client) = bench(&runtime).await;
    let spdy = client.raw(upgrade("POST", EXEC).as_bytes()).await.unwrap();
    assert!(spdy.starts_with("HTTP/1.1 400 ") && spdy.contains("over WebSockets alone"), "{spdy}");
    let request = upgrade("GET", EXEC).replace(
        "SPDY/3.1",
        "websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: channel.k8s.io",
    );
    let old = client.raw(request.as_bytes()).await.unwrap();
    let text = "this node speaks v5.channel.k8s.io and v4.channel.k8s.io alone\n";
    assert!(old.starts_with("HTTP/1.1 400 ") && old.ends_with(text), "{old}");
    assert_eq!(*runtime.begun.lock().unwrap(), 0);
}

#[tokio::test]
async fn a_terminal_has_the_size_of_its_clients_and_ends_with_an_older_client_and_with_its_pod() {
    let runtime = Runtime::that_ends(Ok(0));
    let (bench, client) = bench(&runtime).await;
    let path = format!("{EXEC}&tty=1");
    for pod_ends in [false, true] {
        let (alive, gone) = oneshot::channel();
        *runtime.alive.lock().unwrap() = Some(alive);
        let (mut socket, agreed) = opened(&client, &path, "v4.channel.k8s.io").await;
        assert_eq!(agreed, "v4.channel.k8s.io");
        say(&mut socket, 4, br#"{"Width":132,"Height":43}"#).await;
        say(&mut socket, 0, b"it\r").await;
        while timeout(SOON, socket.next()).await.unwrap().unwrap().unwrap().len() <= 1 {}
        {
            let terminal = runtime.terminal.lock().unwrap();
            let size = tcgetwinsize(terminal.as_ref().unwrap()).unwrap();
            assert_eq!((size.ws_col, size.ws_row), (132, 43));
        }
        if pod_ends {
            let pod = bench.pod(Ok(0));
            bench.statuses.set(pod, serde_json::from_value(json!({"phase": "Failed"})).unwrap());
            heard(&mut socket).await;
        } else {
            drop(socket);
        }
        timeout(SOON, gone).await.unwrap().unwrap_err();
    }
    let all = u32::try_from(crate::MAX_OPEN_STREAMS).unwrap();
    drop(timeout(SOON, bench.context.streams.acquire_many(all)).await.unwrap().unwrap());
}
