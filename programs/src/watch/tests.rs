use super::*;
use crate::tests::Sink;
use winddown_control::api::NodeStatus;

fn picture(revision: u64) -> Status {
    let node = NodeStatus { name: format!("edge-{revision}"), ..NodeStatus::default() };
    Status { time: "2026-11-20T12:00:00Z".parse().unwrap(), node, ..Status::default() }
}

fn watch(form: OutputFormat) -> String {
    let sink = Sink::default();
    let mut out = Output::plain(sink.clone(), std::io::sink());
    let mut printer = Printer { form, last: None };
    for revision in 1..=2 {
        printer.print(picture(revision), &mut out).unwrap();
    }
    sink.text()
}

#[test]
fn a_pipe_gets_one_json_object_per_line_or_one_yaml_document_per_change() {
    let text = watch(OutputFormat::Json);
    let read: Vec<Status> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read, [picture(1), picture(2)]);
    let text = watch(OutputFormat::Yaml);
    assert_eq!(text.matches("---\n").count(), 2, "{text}");
    let text = watch(OutputFormat::Text);
    assert!(!text.contains('\x1b'), "{text:?}");
}

/// Set in the process that panics.
const PANIC: &str = "WINDDOWN_TEST_PANIC_ON_A_TERMINAL";

#[test]
fn a_panic_gives_the_terminal_back_before_it_is_told() {
    if std::env::var_os(PANIC).is_some() {
        let mut terminal = terminal::Terminal::take(true).unwrap();
        let drawn = winddown_render::Span { text: "drawn".to_owned(), ..Default::default() };
        terminal.draw(|_, _| vec![vec![drawn]]).unwrap();
        panic!("as the test wants it");
    }
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
    use std::io::Read;
    use std::process::Command;

    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let slave = std::fs::OpenOptions::new().read(true).write(true).open(name).unwrap();
    let size = Winsize { ws_col: 80, ws_row: 24, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&slave, size).unwrap();
    let before = tcgetattr(&slave).unwrap().local_modes;
    let mut child = Command::new("setsid")
        .arg("--ctty")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("watch::tests::a_panic_gives_the_terminal_back_before_it_is_told")
        .env(PANIC, "1")
        .env("TERM", "xterm-256color")
        .stdin(slave.try_clone().unwrap())
        .stdout(slave.try_clone().unwrap())
        .stderr(slave.try_clone().unwrap())
        .spawn()
        .unwrap();
    let mut reader = std::fs::File::from(master);
    let printer = std::thread::spawn(move || {
        let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
        // A closed terminal is an error, not an end of file.
        while let Ok(read @ 1..) = reader.read(&mut bytes) {
            all.extend_from_slice(&bytes[..read]);
        }
        String::from_utf8_lossy(&all).into_owned()
    });
    assert!(!child.wait().unwrap().success());
    assert_eq!(tcgetattr(&slave).unwrap().local_modes, before, "still raw");
    drop(slave);
    let printer = printer.join().unwrap();
    let drawn = printer.find("drawn").expect("drawn");
    let back = printer.find("\x1b[?1049l").expect("the usual screen");
    let panic = printer.find("as the test wants it").expect("the panic");
    assert!(drawn < back && back < panic, "{printer:?}");
    assert!(printer[..panic].contains("\x1b[?25h"), "the cursor is hidden: {printer:?}");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_hangs_is_shown_as_gone_within_seconds() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let client = Client::new(&socket);
    let line = serde_json::to_string(&Envelope::new(&picture(1))).unwrap();
    // It answers the first request, and nothing after that.
    let agent = async {
        let (mut first, _) = listener.accept().await.unwrap();
        let _ = first.read(&mut [0; 4096]).await.unwrap();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
        first.write_all(format!("{head}{line}\n").as_bytes()).await.unwrap();
        let _second = listener.accept().await.unwrap();
        std::future::pending::<()>().await;
    };
    let watching = async {
        let first = client.watch().await;
        let mut heard = feed::listen(&client, first);
        assert!(matches!(heard.recv().await, Some(feed::FeedEvent::Status(_))));
        let gone = heard.recv().await;
        assert!(matches!(gone, Some(feed::FeedEvent::Gone(ClientError::Silent { .. }))));
    };
    tokio::select! {
        () = agent => {}
        done = tokio::time::timeout(Duration::from_secs(60), watching) => done.unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_answer_for_now_is_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let client = Client::new(&socket);
    let asked_twice = async {
        let first = listener.accept().await.unwrap();
        let second = listener.accept().await.unwrap();
        drop((first, second));
    };
    tokio::select! {
        () = asked_twice => {}
        ended = reconnect(&client) => panic!("{:?}", ended.err()),
    }
}
