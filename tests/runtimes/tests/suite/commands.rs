//! Commands that clients run beside containers of the host.

use std::io::Write as _;
use std::os::fd::OwnedFd;

use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::time::{Instant, timeout};
use winddown_runtimes::{CommandStream, PodStream, PodStreams, Stdio, StreamRequest};
use winddown_shared::{Pod, PodUid, error_chain};

use crate::bed::{PATIENCE, POLITE, eventually, pod, secs, stop};
use crate::stage::Stage;

/// Hands the names of all scenarios to a macro.
macro_rules! command_scenarios {
    ($then:ident $($words:ident)*) => {
        $then! { $($words)* =>
            a_command_runs_as_its_container_does_and_tells_its_exit_code
            a_command_has_a_terminal_if_it_is_to_have_one
            a_command_ends_with_its_client_and_its_container_and_holds_up_no_stop
            what_a_program_of_the_host_has_no_streams_for_is_refused_by_name
        }
    };
}
pub(crate) use command_scenarios;

const ALL: Stdio = Stdio { stdin: true, stdout: true, stderr: true, tty: false };

async fn prepare(
    runtime: &impl PodStreams,
    of: &Pod,
    argv: &[&str],
    stdio: Stdio,
) -> CommandStream {
    let command = argv.iter().map(|&word| word.to_owned()).collect();
    let wanted = StreamRequest::Exec { container: "main".to_owned(), command, stdio };
    let command = match runtime.open(of.uid(), wanted).await.unwrap() {
        Some(PodStream::Command(command)) => Some(command),
        _ => None,
    };
    command.unwrap()
}

fn reader(fd: Option<OwnedFd>) -> Receiver {
    Receiver::from_file_unchecked(fd.unwrap().into()).unwrap()
}

/// All that is said; a terminal ends with an error.
async fn all(mut from: Receiver) -> String {
    let mut text = Vec::new();
    let _ = timeout(PATIENCE, from.read_to_end(&mut text)).await.unwrap();
    String::from_utf8(text).unwrap()
}

/// What is said until a line has come to its end.
async fn line(from: &mut Receiver) -> String {
    let mut text = String::new();
    while !text.ends_with('\n') {
        text.push(timeout(PATIENCE, from.read_u8()).await.unwrap().unwrap().into());
    }
    text.trim_end().to_owned()
}

/// A pod whose container runs.
async fn web<S: Stage>(stage: &S, runtime: &S::Runtime) -> Pod {
    let mut main = stage.container("main", POLITE);
    main["env"] = json!([{"name": "MARK", "value": "mine"}]);
    main["workingDir"] = json!("/etc");
    let web = pod("web", &json!({"restartPolicy": "Never", "containers": [main]}));
    stage.up(runtime, &web).await;
    web
}

pub(crate) async fn a_command_runs_as_its_container_does_and_tells_its_exit_code<S>(stage: &S)
where
    S: Stage<Runtime: PodStreams>,
{
    let runtime = stage.open().await;
    let web = web(stage, &runtime).await;
    let script = "cat; echo $MARK $PWD; echo err >&2; exit 7";
    let CommandStream { stdin, stdout, stderr, exit } =
        prepare(&runtime, &web, &["/bin/sh", "-c", script], ALL).await;
    let exit = tokio::spawn(exit);
    std::fs::File::from(stdin.unwrap()).write_all(b"some words\n").unwrap();
    assert_eq!(all(reader(stdout)).await, "some words\nmine /etc\n");
    assert_eq!(all(reader(stderr)).await, "err\n");
    assert_eq!(timeout(PATIENCE, exit).await.unwrap().unwrap().unwrap(), 7);

    let CommandStream { stdin: _stdin, stderr, exit, .. } =
        prepare(&runtime, &web, &["/bin/nothing"], ALL).await;
    assert_eq!(timeout(PATIENCE, exit).await.unwrap().unwrap(), 128);
    let said = all(reader(stderr)).await;
    assert!(said.starts_with("cannot run /bin/nothing: No such file"), "{said}");
    // Nothing is run before a client has come.
    let file = stage.gates().join("made");
    drop(prepare(&runtime, &web, &["/bin/touch", file.to_str().unwrap()], ALL).await);
    stop(&runtime, &web, 20).await;
    assert!(!file.exists());
}

pub(crate) async fn a_command_has_a_terminal_if_it_is_to_have_one<S>(stage: &S)
where
    S: Stage<Runtime: PodStreams>,
{
    let runtime = stage.open().await;
    let web = web(stage, &runtime).await;
    let script = "test -t 0 && test -t 1 && test -t 2 && echo $TERM >&2; read x; echo got $x";
    let stdio = Stdio { stderr: false, tty: true, ..ALL };
    let CommandStream { stdin, stdout, stderr, exit } =
        prepare(&runtime, &web, &["/bin/sh", "-c", script], stdio).await;
    assert!(stderr.is_none());
    let exit = tokio::spawn(exit);
    let mut from = reader(stdout);
    assert_eq!(line(&mut from).await, "xterm");
    std::fs::File::from(stdin.unwrap()).write_all(b"it\r").unwrap();
    assert_eq!(all(from).await, "it\r\ngot it\r\n");
    assert_eq!(timeout(PATIENCE, exit).await.unwrap().unwrap().unwrap(), 0);
    stop(&runtime, &web, 20).await;
}

/// What only a leader of a session has, which the stand-in for the service manager does not make.
pub(crate) async fn a_terminal_controls_its_command<S>(stage: &S)
where
    S: Stage<Runtime: PodStreams>,
{
    let runtime = stage.open().await;
    let web = web(stage, &runtime).await;
    let script = "trap 'exit 9' INT; echo up > /dev/tty; while :; do sleep 0.05; done";
    let stdio = Stdio { stderr: false, tty: true, ..ALL };
    let CommandStream { stdin, stdout, exit, .. } =
        prepare(&runtime, &web, &["/bin/sh", "-c", script], stdio).await;
    let exit = tokio::spawn(exit);
    let (mut from, mut to) = (reader(stdout), std::fs::File::from(stdin.unwrap()));
    assert_eq!(line(&mut from).await, "up");
    to.write_all(b"\x03").unwrap();
    assert_eq!(timeout(PATIENCE, exit).await.unwrap().unwrap().unwrap(), 9);
    stop(&runtime, &web, 20).await;
}

pub(crate) async fn a_command_ends_with_its_client_and_its_container_and_holds_up_no_stop<S>(
    stage: &S,
) where
    S: Stage<Runtime: PodStreams>,
{
    let runtime = stage.open().await;
    let web = web(stage, &runtime).await;
    let stubborn = ["/bin/sh", "-c", "trap '' TERM HUP; echo $$; while :; do sleep 1; done"];
    let begin = || async {
        let CommandStream { stdin, stdout, exit, .. } =
            prepare(&runtime, &web, &stubborn, ALL).await;
        let (exit, mut from) = (tokio::spawn(exit), reader(stdout));
        let pid = line(&mut from).await;
        (exit, std::path::PathBuf::from("/proc").join(pid), (stdin, from))
    };
    let (exit, process, _streams) = begin().await;
    exit.abort();
    eventually("the command ends with its client", || !process.exists()).await;

    let (exit, process, _streams) = begin().await;
    let began = Instant::now();
    assert!(!stop(&runtime, &web, 30).await.forced());
    assert!(began.elapsed() < secs(20), "{:?}", began.elapsed());
    assert_eq!(timeout(PATIENCE, exit).await.unwrap().unwrap().unwrap(), 137);
    eventually("the command ends with its container", || !process.exists()).await;
    let wanted =
        StreamRequest::Exec { container: "main".to_owned(), command: Vec::new(), stdio: ALL };
    assert!(runtime.open(web.uid(), wanted).await.unwrap().is_none());
}

pub(crate) async fn what_a_program_of_the_host_has_no_streams_for_is_refused_by_name<S>(stage: &S)
where
    S: Stage<Runtime: PodStreams>,
{
    let runtime = stage.open().await;
    let attach = StreamRequest::Attach { container: "main".to_owned(), stdio: ALL };
    for wanted in [attach, StreamRequest::PortForward { ports: vec![80] }] {
        let error = error_chain(&runtime.open(&PodUid::new("u"), wanted).await.unwrap_err());
        assert!(error.contains("no attach and no port-forward"), "{error}");
    }
}
