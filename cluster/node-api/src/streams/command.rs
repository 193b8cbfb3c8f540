//! Serves a command to `kubectl exec` with the protocols `v5.channel.k8s.io` (KEP-4006) and `v4.channel.k8s.io` over
//! a WebSocket. The first byte of each message is its channel.

use std::io;
use std::os::fd::OwnedFd;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::header::{
    CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use hyper::upgrade::Upgraded;
use hyper::{HeaderMap, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustix::io::ioctl_fionread;
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use winddown_host::CommandStream;
use winddown_shared::{RuntimeError, error_chain};

use super::patience::{CLOSE_TIMEOUT, LAST_OUTPUT_TIMEOUT, WRITE_TIMEOUT};
use crate::answer::{self, Body, FailureAnswer};

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// The supported protocols, in order of preference.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
/// Closes the channel that the message names; version 5 only.
const CLOSE: u8 = 255;
/// The most bytes of output in a message.
const MAX_OUTPUT_BYTES: usize = 16 * 1024;
/// The most bytes of a client's message; `kubectl` sends 32 KiB.
const MAX_CLIENT_MESSAGE_BYTES: usize = 1024 * 1024;

/// Negotiates the protocol and returns the head of the response.
///
/// # Errors
/// The client speaks none of the protocols; the error says what to do instead.
pub(super) fn agree(headers: &HeaderMap) -> Result<Response<Body>, FailureAnswer> {
    let refused = |text: &str| FailureAnswer::new(StatusCode::BAD_REQUEST, text);
    let words = |name: HeaderName| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(str::trim)
    };
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY) else {
        let text = "containers of this node take streams over WebSockets alone, which API servers before Kubernetes \
                    1.36 turn into SPDY: upgrade the API server, or use `runtime: cri`";
        return Err(refused(text));
    };
    let offered: Vec<&str> = words(SEC_WEBSOCKET_PROTOCOL).collect();
    let Some(protocol) = PROTOCOLS.into_iter().find(|one| offered.contains(one)) else {
        return Err(refused(&format!("this node speaks {} alone", PROTOCOLS.join(" and "))));
    };
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes()));
    let mut response = answer::empty(StatusCode::SWITCHING_PROTOCOLS);
    let answers = response.headers_mut();
    answers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    answers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    answers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    answers.insert(SEC_WEBSOCKET_ACCEPT, accept.map_err(|error| refused(&error.to_string()))?);
    Ok(response)
}

/// Runs the command for its client until the command exits, the client disconnects or `ended` resolves.
pub(super) async fn serve(
    client: TokioIo<Upgraded>,
    command: CommandStream,
    ended: impl Future<Output = ()>,
) -> io::Result<()> {
    let bounds = WebSocketConfig::default();
    let bounds = bounds
        .max_message_size(Some(MAX_CLIENT_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_CLIENT_MESSAGE_BYTES));
    let socket = WebSocketStream::from_raw_socket(client, Role::Server, Some(bounds)).await;
    let (to_client, mut from_client) = socket.split();
    let mut to_client = Teller(to_client);
    let terminal = command.stdout.as_ref().map(OwnedFd::try_clone).transpose()?;
    let CommandStream { stdin, stdout, stderr, exit } = command;
    let served = tokio::select! {
        told = run(&mut to_client, [stdout, stderr], exit) => told,
        heard = hear(&mut from_client, stdin, terminal) => heard,
        () = ended => Ok(()),
    };
    let mut socket = to_client.0.reunite(from_client).map_err(io::Error::other)?;
    let farewell = async {
        // `kubectl` takes a close frame without a code for an error. The rest of the client's data is read, because
        // the kernel might otherwise discard what was sent last.
        let bye = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
        let _ = socket.close(Some(bye)).await;
        while let Some(Ok(_)) = socket.next().await {}
        let _ = socket.get_mut().shutdown().await;
    };
    // A client that is stuck is not waited for.
    let _ = timeout(CLOSE_TIMEOUT, farewell).await;
    served
}

/// Runs the command, and sends its output and its exit status to the client.
async fn run(
    to_client: &mut Teller,
    outputs: [Option<OwnedFd>; 2],
    mut exit: impl Future<Output = Result<i32, RuntimeError>> + Unpin,
) -> io::Result<()> {
    let [stdout, stderr] = outputs.map(|fd| fd.map(OutputEnd::new).transpose());
    let (mut stdout, mut stderr) = (stdout?, stderr?);
    // An empty message tells the client that the stream is open, as a runtime's own server does.
    to_client.tell(STDOUT, &[]).await?;
    let (mut ended, mut deadline) = (None, Instant::now());
    while stdout.is_some() || stderr.is_some() || ended.is_none() {
        tokio::select! {
            block = next(&mut stdout) => match block {
                Some(block) => to_client.tell(STDOUT, block).await?,
                None => stdout = None,
            },
            block = next(&mut stderr) => match block {
                Some(block) => to_client.tell(STDERR, block).await?,
                None => stderr = None,
            },
            how = &mut exit, if ended.is_none() => {
                (ended, deadline) = (Some(how), Instant::now() + LAST_OUTPUT_TIMEOUT);
                [&mut stdout, &mut stderr].into_iter().flatten().for_each(OutputEnd::note_exit);
            }
            // Another process may still hold the output open after the command has exited.
            () = sleep_until(deadline), if ended.is_some() && all_read([&stdout, &stderr]) => break,
        }
    }
    match ended {
        Some(how) => to_client.tell(STATUS, status(how).to_string().as_bytes()).await,
        None => Ok(()),
    }
}

/// The exit status of the command as a `v1.Status`, in the kubelet's form.
fn status(how: Result<i32, RuntimeError>) -> Value {
    match how {
        Ok(0) => json!({"metadata": {}, "status": "Success"}),
        Ok(code) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Err(error) => {
            let text = format!("error executing command in container: {}", error_chain(&error));
            json!({
                "metadata": {},
                "status": "Failure",
                "message": format!("Internal error occurred: {text}"),
                "reason": "InternalError",
                "details": {"causes": [{"message": text}]},
                "code": 500,
            })
        }
    }
}

/// Passes the client's input to the command until the client disconnects.
async fn hear(
    from_client: &mut SplitStream<Socket>,
    stdin: Option<OwnedFd>,
    terminal: Option<OwnedFd>,
) -> io::Result<()> {
    let mut stdin = stdin.map(|fd| Sender::from_file_unchecked(fd.into())).transpose()?;
    while let Some(message) = from_client.next().await {
        let Message::Binary(message) = message.map_err(io::Error::other)? else { continue };
        match message.split_first() {
            Some((&STDIN, words)) => {
                if let Some(pipe) = &mut stdin
                    && pipe.write_all(words).await.is_err()
                {
                    stdin = None;
                }
            }
            Some((&CLOSE, [STDIN])) => stdin = None,
            Some((&RESIZE, size)) => {
                if let (Some(terminal), Some(size)) = (&terminal, winsize(size)) {
                    // Fails if stdout is not a terminal, which has no size.
                    let _ = tcsetwinsize(terminal, size);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn winsize(json: &[u8]) -> Option<Winsize> {
    let size: Value = serde_json::from_slice(json).ok()?;
    let of = |name: &str| size.get(name)?.as_u64()?.try_into().ok();
    Some(Winsize { ws_col: of("Width")?, ws_row: of("Height")?, ws_xpixel: 0, ws_ypixel: 0 })
}

/// The read end of a command's output.
struct OutputEnd {
    pipe: Receiver,
    block: Vec<u8>,
    /// How many bytes of an exited command are still in the pipe: a slow client gets them too.
    unread: u64,
}

impl OutputEnd {
    fn new(fd: OwnedFd) -> io::Result<Self> {
        let pipe = Receiver::from_file_unchecked(fd.into())?;
        Ok(Self { pipe, block: vec![0; MAX_OUTPUT_BYTES], unread: 0 })
    }

    fn note_exit(&mut self) {
        self.unread = ioctl_fionread(&self.pipe).unwrap_or(0);
    }
}

fn all_read(sources: [&Option<OutputEnd>; 2]) -> bool {
    sources.into_iter().flatten().all(|source| source.unread == 0)
}

/// Reads the next block; `None` at the end, which a terminal reports as an error. Pending if there is no source.
/// Cancel-safe.
async fn next(source: &mut Option<OutputEnd>) -> Option<&[u8]> {
    let Some(OutputEnd { pipe, block, unread }) = source else {
        return std::future::pending().await;
    };
    match pipe.read(block).await {
        Ok(read @ 1..) => {
            *unread = unread.saturating_sub(read as u64);
            Some(&block[..read])
        }
        _ => None,
    }
}

/// Sends messages to the client.
struct Teller(SplitSink<Socket, Message>);

impl Teller {
    async fn tell(&mut self, channel: u8, words: &[u8]) -> io::Result<()> {
        let message = [&[channel], words].concat();
        timeout(WRITE_TIMEOUT, self.0.send(Message::binary(message)))
            .await?
            .map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::unix::pipe::pipe;

    use super::*;

    #[tokio::test]
    async fn what_a_command_has_written_is_waited_for_and_what_others_add_is_not() {
        let (mut says, reads) = pipe().unwrap();
        let mut source = Some(OutputEnd::new(reads.into_nonblocking_fd().unwrap()).unwrap());
        says.write_all(b"last words").await.unwrap();
        source.iter_mut().for_each(OutputEnd::note_exit);
        assert!(!all_read([&source, &None]));
        says.write_all(b" and more").await.unwrap();
        assert_eq!(next(&mut source).await, Some(&b"last words and more"[..]));
        assert!(all_read([&source, &None]));
    }
}
