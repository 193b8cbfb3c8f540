//! Tests of HTTP/2: what it is offered for, how bodies end, and what bounds it.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::client::TlsStream;

use super::clients::Client;
use super::logs::{append, new_log};
use super::streams::{SOON, api_server, upgrade};
use super::{Bench, Cluster, client};
use crate::connection::MOST_WAITING;
use crate::places::MAX_ANSWERED_CLIENTS;
use crate::server::converse;

const LOG: &str = "/containerLogs/ns/web/main";
/// What a client sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
/// The flag of a stream's last frame, and of an acknowledgement.
const END: u8 = 1;
const NO_ERROR: u32 = 0;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

/// A frame of HTTP/2.
#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// A client that sends and reads frames, as no library would.
struct Frames {
    stream: TlsStream<TcpStream>,
    next: u32,
}

impl Frame {
    fn is_end(&self) -> bool {
        self.flags & END == END
    }

    /// The code of an error, which is at the end of a RST_STREAM and after the last stream of a GOAWAY.
    fn code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

impl Frames {
    async fn open(client: &Client) -> Self {
        let mut stream = client.speaking(&[b"h2"]).connect().await.unwrap();
        stream.write_all(PREFACE).await.unwrap();
        let mut frames = Self { stream, next: 1 };
        frames.send(SETTINGS, 0, 0, &[]).await;
        frames
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.stream.write_all(&frame(kind, flags, stream, payload)).await.unwrap();
    }

    /// Sends a `GET` request and returns its stream.
    async fn get(&mut self, path: &str, token: Option<&str>) -> u32 {
        let stream = self.next;
        self.next += 2;
        self.send(HEADERS, 5, stream, &head(path, token)).await;
        stream
    }

    /// The next frame that is no setting and no ping; `None` at the end of the connection.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await.ok()?;
            let number =
                |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all << 8 | u32::from(*byte));
            let mut payload = vec![0; number(&head[..3]) as usize];
            self.stream.read_exact(&mut payload).await.ok()?;
            let (kind, flags, stream) = (head[3], head[4], number(&head[5..]));
            match kind {
                SETTINGS | PING if flags & END == 0 => {
                    let echo = if kind == PING { payload } else { Vec::new() };
                    self.send(kind, END, 0, &echo).await;
                }
                SETTINGS | PING => {}
                _ => return Some(Frame { kind, flags, stream, payload }),
            }
        }
    }

    /// The next frame of this kind.
    async fn next_of(&mut self, kind: u8) -> Frame {
        let found = async {
            loop {
                let frame = self.next().await.expect("the connection goes on");
                if frame.kind == kind {
                    return frame;
                }
            }
        };
        timeout(SOON, found).await.unwrap()
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    bytes.extend_from_slice(payload);
    bytes
}

/// The head of a `GET` request: `:method` and `:scheme` by their place in the table of names, the rest spelled out.
fn head(path: &str, token: Option<&str>) -> Vec<u8> {
    let word = |text: &str| [&length(text.len()), text.as_bytes()].concat();
    let mut head = [&[0x82, 0x87, 0x04][..], &word(path)].concat();
    if let Some(token) = token {
        head.push(0x00);
        head.extend(word("authorization"));
        head.extend(word(&format!("Bearer {token}")));
    }
    head
}

/// A length as HPACK has it: in the last seven bits of a byte, or what is more than they hold in bytes of seven bits.
fn length(length: usize) -> Vec<u8> {
    let low = |bits: usize| u8::try_from(bits % 128).unwrap();
    let Some(mut left) = length.checked_sub(127) else { return vec![low(length)] };
    let mut bytes = vec![127];
    while left >= 128 {
        bytes.push(low(left) | 128);
        left /= 128;
    }
    bytes.push(low(left));
    bytes
}

/// Opens a connection as a library does.
pub(super) async fn requests(client: &Client) -> SendRequest<Empty<Bytes>> {
    let stream = client.speaking(&[b"h2"]).connect().await.unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("https://localhost{path}")).body(Empty::new()).unwrap()
}

pub(super) async fn answered(sender: &mut SendRequest<Empty<Bytes>>, path: &str) -> (u16, String) {
    let answer = timeout(SOON, sender.send_request(get(path))).await.unwrap().unwrap();
    let status = answer.status().as_u16();
    let body = timeout(SOON, answer.into_body().collect()).await.unwrap().unwrap();
    (status, String::from_utf8_lossy(&body.to_bytes()).into_owned())
}

/// Opens a log that goes on, and reads its first line.
async fn follows(sender: &mut SendRequest<Empty<Bytes>>) -> Incoming {
    let path = format!("{LOG}?follow=true");
    let answer = timeout(SOON, sender.send_request(get(&path))).await.unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    let mut body = answer.into_body();
    assert_eq!(line(&mut body).await, "one\n");
    body
}

async fn line(body: &mut Incoming) -> String {
    let frame = timeout(SOON, body.frame()).await.unwrap().unwrap().unwrap();
    String::from_utf8_lossy(&frame.into_data().unwrap()).into_owned()
}

#[tokio::test]
async fn what_is_no_upgrade_is_served_over_http_2_and_an_upgrade_over_http_1_1() {
    let bench = Bench::new();
    bench.pod(Ok(0));
    append(&mut new_log(&bench.log("0.log")), "one");
    let known = api_server(&bench).await;
    let mut sender = requests(&known).await;
    for (path, wanted) in [
        ("/healthz", (200, "ok".to_owned())),
        (LOG, (200, "one\n".to_owned())),
        ("/nothing", (404, "there is no such path\n".to_owned())),
    ] {
        assert_eq!(answered(&mut sender, path).await, wanted, "{path}");
    }
    let exec = "/exec/ns/web/main?command=sh&output=1";
    assert_eq!(
        answered(&mut sender, exec).await.0,
        501,
        "as over HTTP/1.1: no runtime has streams here"
    );
    for protocols in [&[][..], &[&b"http/1.1"[..]]] {
        let old = known.speaking(protocols);
        assert_eq!(old.get("/healthz", None).await.unwrap(), (200, "ok".to_owned()));
        let answer = old.raw(upgrade("POST", exec).as_bytes()).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 501 "), "{answer}");
    }
    assert!(known.speaking(&[b"h3"]).connect().await.is_err(), "a protocol that is not spoken");
}

#[tokio::test]
async fn over_http_2_the_end_of_a_body_is_a_frame_of_its_own() {
    let bench = Bench::new();
    bench.pod(Ok(0));
    let mut log = new_log(&bench.log("0.log"));
    (0..5000).for_each(|n| append(&mut log, &format!("line {n}")));
    let known = api_server(&bench).await;
    for path in ["/healthz", "/pods", "/nothing", LOG] {
        let queries: &[&str] = match path {
            LOG => &["", "?tailLines=1", "?limitBytes=6", "?limitBytes=0", "?tailLines=3000"],
            _ => &[""],
        };
        for query in queries {
            let mut frames = Frames::open(&known).await;
            let stream = frames.get(&format!("{path}{query}"), None).await;
            let mut lengths = Vec::new();
            loop {
                let frame = frames.next_of(DATA).await;
                assert_eq!(frame.stream, stream);
                lengths.push(frame.payload.len());
                if frame.is_end() {
                    break;
                }
            }
            let end = lengths.pop();
            assert_eq!(end, Some(0), "{path}{query}: the end came with data");
            assert!(lengths.iter().all(|length| *length > 0), "{path}{query}: {lengths:?}");
        }
    }
}

#[tokio::test]
async fn over_http_1_1_the_end_of_a_log_is_written_apart_from_its_data() {
    /// The end of a chunked body, the type of its record and the tag of the cipher.
    const END_ALONE: usize = 5 + 1 + 16;
    let bench = Bench::new();
    bench.pod(Ok(0));
    append(&mut new_log(&bench.log("0.log")), "line");
    let known = api_server(&bench).await;
    for query in ["", "?tailLines=1", "?limitBytes=2", "?limitBytes=5"] {
        let (near, mut far) = duplex(1 << 20);
        let request = format!("GET {LOG}{query} HTTP/1.1\r\nHost: n\r\n\r\n");
        let mut server = TcpStream::connect(("127.0.0.1", known.port)).await.unwrap();
        let carried = async {
            let mut sent = Vec::new();
            carry(&mut far, &mut server, &mut sent).await;
            sent
        };
        let asked = async {
            let mut stream = known.connect_over(near).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            assert!(answer.ends_with(b"\r\n0\r\n\r\n"), "{}", String::from_utf8_lossy(&answer));
        };
        let (sent, ()) = timeout(SOON, async { tokio::join!(carried, asked) }).await.unwrap();
        let lengths = records(&sent);
        assert!(lengths.contains(&END_ALONE), "{query}: {lengths:?}");
    }
}

/// Passes bytes on until both have ended, and keeps those of the server.
async fn carry(client: &mut DuplexStream, server: &mut TcpStream, sent: &mut Vec<u8>) {
    let (mut asks, mut hears) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            read = client.read(&mut asks) => match read {
                Ok(read @ 1..) => server.write_all(&asks[..read]).await.unwrap(),
                _ => return,
            },
            read = server.read(&mut hears) => match read {
                Ok(read @ 1..) => {
                    sent.extend_from_slice(&hears[..read]);
                    client.write_all(&hears[..read]).await.unwrap();
                }
                _ => return,
            },
        }
    }
}

/// The lengths of the TLS records of application data.
fn records(mut bytes: &[u8]) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let [kind, _, _, high, low, rest @ ..] = bytes {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if *kind == 23 {
            lengths.push(length);
        }
        bytes = rest.get(length..).unwrap_or_default();
    }
    lengths
}

#[tokio::test]
async fn requests_of_one_connection_are_answered_side_by_side() {
    let bench = Bench::new();
    bench.pod(Ok(0));
    let mut log = new_log(&bench.log("0.log"));
    append(&mut log, "one");
    let known = api_server(&bench).await;
    let mut sender = requests(&known).await;
    let mut followers = Vec::new();
    for _ in 0..100 {
        followers.push(follows(&mut sender).await);
    }
    // It takes nothing of what it asked for.
    append(&mut log, &"x".repeat(100_000));
    assert_eq!(answered(&mut sender, "/healthz").await.0, 200);
    assert_eq!(
        bench.context.places.free(),
        MAX_ANSWERED_CLIENTS - 100,
        "the first is in the place of its connection"
    );
}

#[tokio::test]
async fn a_body_that_is_not_read_holds_up_no_other_of_its_connection() {
    let bench = Bench::new();
    bench.pod(Ok(0));
    let mut log = new_log(&bench.log("0.log"));
    append(&mut log, "one");
    (0..5_000).for_each(|_| append(&mut log, &"x".repeat(1000)));
    let known = api_server(&bench).await;
    let mut sender = requests(&known).await;
    let stuck = timeout(SOON, sender.send_request(get(LOG))).await.unwrap().unwrap();
    assert_eq!(answered(&mut sender, "/healthz").await.0, 200);
    let (status, body) = answered(&mut sender, &format!("{LOG}?limitBytes=100000")).await;
    assert_eq!((status, body.len()), (200, 100_000));
    // What was kept back comes when it is read.
    let whole = timeout(SOON, stuck.into_body().collect()).await.unwrap().unwrap().to_bytes();
    assert_eq!(whole.len(), 4 + 5_000 * 1001);
}

#[tokio::test]
async fn each_answer_takes_a_place_until_its_body_has_ended_or_its_client_is_gone() {
    let bench = Bench::new();
    bench.pod(Ok(0));
    append(&mut new_log(&bench.log("0.log")), "one");
    let known = api_server(&bench).await;
    let places = &bench.context.places;
    let others = places.take(MAX_ANSWERED_CLIENTS - 2);
    let mut sender = requests(&known).await;
    let first = follows(&mut sender).await;
    let second = follows(&mut sender).await;
    assert_eq!(places.free(), 0);
    let (status, text) = answered(&mut sender, "/healthz").await;
    assert!(status == 503 && text.contains("try again later"), "{text}");
    drop(second);
    let answers = async {
        while answered(&mut sender, "/healthz").await.0 != 200 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, answers).await.unwrap();
    drop((first, sender));
    let freed = async {
        while places.free() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, freed).await.expect("the client is gone");
    drop(others);
}

#[tokio::test]
async fn who_is_refused_is_told_to_go_as_over_http_1_1() {
    let bench = Bench::new();
    let stranger = Client::new(&bench, None).await;
    for token in [None, Some("forged"), Some("good")] {
        let mut frames = Frames::open(&stranger).await;
        let stream = frames.get("/pods", token).await;
        let (mut said, mut goodbye) = (Vec::new(), None);
        while let Some(frame) = timeout(SOON, frames.next()).await.unwrap() {
            match frame.kind {
                DATA if frame.stream == stream => said.extend(frame.payload),
                GOAWAY => goodbye = Some(frame.code()),
                _ => {}
            }
        }
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said == "Unauthorized\n" || said.starts_with("Forbidden "), "{said}");
        assert_eq!(goodbye, Some(NO_ERROR), "{token:?}");
    }
    assert_eq!(bench.context.places.free(), MAX_ANSWERED_CLIENTS);
}

#[tokio::test]
async fn requests_that_come_before_the_client_is_known_are_judged_one_by_one_and_all_answered() {
    let bench = Bench::new();
    bench.pod(Ok(0));
    append(&mut new_log(&bench.log("0.log")), "one");
    let known = api_server(&bench).await;
    let sender = requests(&known).await;
    let all = (0..100).map(|_| {
        let mut sender = sender.clone();
        async move { answered(&mut sender, LOG).await }
    });
    for answer in futures_util::future::join_all(all).await {
        assert_eq!(answer, (200, "one\n".to_owned()));
    }
    let asked = bench.cluster.asked();
    assert_eq!(asked, ["api-server get log"], "the answer to the first is that to all");
}

#[tokio::test]
async fn a_client_without_a_certificate_has_few_requests_at_a_time() {
    let bench = Bench::new();
    bench.pod(Ok(0));
    append(&mut new_log(&bench.log("0.log")), "one");
    let stranger = Client::new(&bench, None).await;
    let mut frames = Frames::open(&stranger).await;
    for _ in 0..8 {
        let stream = frames.get(&format!("{LOG}?follow=true"), Some("good")).await;
        assert_eq!(frames.next_of(DATA).await.stream, stream);
    }
    let ninth = frames.get(LOG, Some("good")).await;
    let refused = frames.next_of(RESET).await;
    assert_eq!((refused.stream, refused.code()), (ninth, REFUSED_STREAM));
}

#[tokio::test]
async fn requests_that_wait_until_their_client_is_known_hold_little_memory() {
    let bench = Bench::with(Cluster { hangs: true, ..Cluster::default() });
    let outsider = client(&bench.authority, "outsider");
    let mut frames = Frames::open(&Client::new(&bench, Some(&outsider)).await).await;
    let path = format!("/{}", "x".repeat(16_000));
    let mut asked = Vec::new();
    for _ in 0..200 {
        asked.push(frames.get(&path, None).await);
    }
    let rest = &asked[MOST_WAITING as usize / path.len()..];
    let mut refused = Vec::new();
    while refused.len() < rest.len() {
        refused.push(frames.next_of(HEADERS).await.stream);
    }
    refused.sort_unstable();
    assert_eq!(refused, rest, "the first wait");
}

#[tokio::test]
async fn logs_that_are_open_leave_places_for_what_is_no_log() {
    let bench = Bench::new();
    bench.pod(Ok(0));
    append(&mut new_log(&bench.log("0.log")), "one");
    let known = api_server(&bench).await;
    let mut sender = requests(&known).await;
    let first = follows(&mut sender).await;
    let all_but_one = u32::try_from(crate::MAX_OPEN_LOGS - 1).unwrap();
    let _others = bench.context.logs.limits()[1].try_acquire_many(all_but_one).unwrap();
    for query in ["", "?follow=true"] {
        let (status, text) = answered(&mut sender, &format!("{LOG}{query}")).await;
        assert!(status == 503 && text.contains("try again later"), "{status} {text}");
    }
    assert_eq!(answered(&mut sender, "/healthz").await.0, 200);
    drop(first);
    let answers = async {
        while answered(&mut sender, LOG).await.0 != 200 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, answers).await.unwrap();
}

#[tokio::test]
async fn who_opens_and_resets_streams_in_a_flood_is_cut_off() {
    let bench = Bench::new();
    let known = api_server(&bench).await;
    let stranger = Client::of(known.port, &bench.authority, None);
    for flooding in [&stranger, &known] {
        let frames = Frames::open(flooding).await;
        let flood: Vec<u8> = (0..10_000)
            .flat_map(|n| {
                let stream = 2 * n + 1;
                let reset = frame(RESET, 0, stream, &8_u32.to_be_bytes());
                [frame(HEADERS, 5, stream, &head("/healthz", None)), reset].concat()
            })
            .collect();
        let (mut reads, mut writes) = tokio::io::split(frames.stream);
        let flooded = tokio::spawn(async move { writes.write_all(&flood).await });
        let mut heard = Vec::new();
        let _ = timeout(SOON, reads.read_to_end(&mut heard)).await.expect("it is cut off");
        let calm = ENHANCE_YOUR_CALM.to_be_bytes();
        assert!(heard.windows(4).any(|code| code == calm), "it is told why");
        let _ = flooded.await;
        assert_eq!(known.get("/healthz", None).await.unwrap().0, 200);
    }
    assert_eq!(bench.context.places.free(), MAX_ANSWERED_CLIENTS);
}

#[tokio::test]
async fn a_head_that_is_too_long_or_never_ends_is_refused() {
    let bench = Bench::new();
    let stranger = Client::new(&bench, None).await;
    let mut frames = Frames::open(&stranger).await;
    // HEADERS without their end, and continuations of it.
    let entry = [&[0x00, 1, b'x', 100][..], &[b'y'; 100]].concat();
    frames.send(HEADERS, 1, 1, &head("/", None)).await;
    let (mut reads, mut writes) = tokio::io::split(frames.stream);
    let flooded = tokio::spawn(async move {
        while writes.write_all(&frame(9, 0, 1, &entry.repeat(100))).await.is_ok() {}
    });
    let mut heard = Vec::new();
    let _ = timeout(SOON, reads.read_to_end(&mut heard)).await.expect("it is cut off");
    flooded.await.unwrap();
}

#[tokio::test]
async fn a_head_request_has_no_body_in_its_answer() {
    let bench = Bench::new();
    let known = api_server(&bench).await;
    let mut sender = requests(&known).await;
    let request = Request::head("https://localhost/healthz").body(Empty::new()).unwrap();
    let answer = timeout(SOON, sender.send_request(request)).await.unwrap().unwrap();
    assert!(answer.status() == 200 && answer.body().is_end_stream());
    assert_eq!(answered(&mut sender, "/healthz").await.0, 200, "the connection goes on");
}

#[tokio::test]
async fn a_body_and_trailers_of_a_request_are_read_by_none_and_stop_nothing() {
    let bench = Bench::new();
    let known = api_server(&bench).await;
    let mut frames = Frames::open(&known).await;
    // More than the window of a connection takes.
    for _ in 0..10 {
        let stream = frames.next;
        frames.next += 2;
        frames.send(HEADERS, 4, stream, &head("/healthz", None)).await;
        // The answer does not wait for the rest of the request.
        let mut answer = frames.next_of(DATA).await;
        while answer.stream != stream {
            answer = frames.next_of(DATA).await;
        }
        assert_eq!(answer.payload, b"ok");
        frames.send(DATA, 0, stream, &[0; 16_384]).await;
        frames.send(HEADERS, 5, stream, &[0x00, 1, b'x', 1, b'y']).await;
    }
    let stream = frames.get("/healthz", None).await;
    while frames.next_of(DATA).await.stream != stream {}
}

/// Starts a connection that speaks HTTP/2, in the clock of the test.
async fn in_memory(bench: &Bench, shown: Option<&str>) -> TlsStream<DuplexStream> {
    let (near, far) = duplex(65_536);
    let address = "192.0.2.1:1".parse().unwrap();
    let seat = bench.context.places.guests.take_slot(std::net::IpAddr::from([192, 0, 2, 1]));
    tokio::spawn(converse(Arc::clone(&bench.context), far, address, seat));
    let client = Client::of(0, &bench.authority, shown).speaking(&[b"h2"]);
    client.connect_over(near).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_over_http_2_is_cut_off() {
    let bench = Bench::new();
    for said in
        [&b""[..], b"PRI * HTTP/2.0\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"]
    {
        let mut stream = in_memory(&bench, None).await;
        stream.write_all(said).await.unwrap();
        let begun = Instant::now();
        let _ = stream.read_to_end(&mut Vec::new()).await;
        assert!(begun.elapsed() < Duration::from_secs(21), "{said:?}: {:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_refused_has_to_leave_also_if_it_takes_nothing_of_the_answer() {
    let bench = Bench::new();
    let mut stream = in_memory(&bench, None).await;
    // A window of no bytes for each stream.
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let asks = frame(HEADERS, 5, 1, &head("/pods", None));
    stream.write_all(&[PREFACE, &settings, &asks].concat()).await.unwrap();
    let mut heard = Vec::new();
    let left = timeout(Duration::from_secs(30), stream.read_to_end(&mut heard)).await;
    assert!(left.is_ok(), "it stays");
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_requests_is_closed_after_as_long_as_by_a_kubelet() {
    let bench = Bench::new();
    bench.pod(Ok(0));
    append(&mut new_log(&bench.log("0.log")), "one");
    let shown = client(&bench.authority, "api-server");
    let stream = in_memory(&bench, Some(&shown)).await;
    let (mut sender, connection) =
        handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let follower = follows(&mut sender).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!connection.is_finished(), "it is in use");
    drop(follower);
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(80)).await;
        assert_eq!(answered(&mut sender, "/healthz").await.0, 200);
    }
    let begun = Instant::now();
    let _ = timeout(Duration::from_secs(200), connection).await.expect("it is closed").unwrap();
    assert_eq!(begun.elapsed().as_secs(), 90);
}
