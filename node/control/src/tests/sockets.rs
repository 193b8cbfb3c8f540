//! The socket's file: its mode, leftovers of earlier agents, and other agents.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{serve, serve_for, until};
use crate::api::Status;
use crate::fake::FakeAgent;
use crate::{Client, ClientError, ControlSocket, Limits, Server, SocketError};

#[tokio::test]
async fn the_socket_is_for_its_owner_and_leaves_nothing_else_behind() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run/winddown.sock");
    let socket = ControlSocket::bind(&path, None).await.unwrap();
    let facts = std::fs::symlink_metadata(&path).unwrap();
    assert!(facts.file_type().is_socket());
    assert_eq!(facts.permissions().mode() & 0o7777, 0o600);
    let mut names: Vec<_> = std::fs::read_dir(directory.path().join("run"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["winddown.sock", "winddown.sock.lock"]);
    drop(socket);
    assert!(!path.exists(), "the socket is removed");
}

#[tokio::test]
async fn only_a_configured_group_may_connect_and_it_is_never_roots() {
    let name = "only_a_configured_group_may_connect_and_it_is_never_roots";
    if !rustix::process::geteuid().is_root() {
        return skip(name, "only root can give a file to a group");
    }
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s");
    for (group, gid, mode) in [(None, 0, 0o600), (Some(0), 0, 0o600), (Some(4242), 4242, 0o660)] {
        let socket = ControlSocket::bind(&path, group).await.unwrap();
        let facts = std::fs::symlink_metadata(&path).unwrap();
        assert_eq!(facts.permissions().mode() & 0o7777, mode, "{group:?}");
        assert_eq!(facts.gid(), gid, "{group:?}");
        drop(socket);
    }
}

/// The credentials that `runAsUser` without `runAsGroup` used to give a pod: root's group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_with_roots_group_and_another_user_may_not_connect_nor_change_anything() {
    let name = "a_process_with_roots_group_and_another_user_may_not_connect_nor_change_anything";
    let Some(perl) = perl_as_root(name) else { return };
    for group in [None, Some(0)] {
        let running = serve_for(group).await;
        let_in(running.path.parent().unwrap(), 0o755);
        let refused = ask(perl, "0 0", &running.path, LOOK).await;
        assert!(refused.contains("Permission denied"), "{group:?}: {refused}");
        // The mode is one barrier; if the socket is opened up by hand, the credentials are the other.
        let_in(&running.path, 0o660);
        for request in [KILL, GIVE_NOTICE, WITHDRAW] {
            let refused = ask(perl, "0 0 65534", &running.path, request).await;
            assert!(refused.starts_with("HTTP/1.1 403"), "{group:?}: {refused}");
        }
        assert!(running.agent.kills.lock().is_empty());
    }
}

#[tokio::test]
async fn what_a_link_at_the_locks_place_leads_to_is_neither_made_nor_touched() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s");
    let victim = directory.path().join("victim");
    symlink(&victim, directory.path().join("s.lock")).unwrap();
    for there in [false, true] {
        if there {
            std::fs::write(&victim, "precious").unwrap();
        }
        let error = ControlSocket::bind(&path, None).await.unwrap_err();
        assert!(matches!(error, SocketError::Io { step: "lock", .. }), "{error:?}");
        assert!(!path.exists());
        assert_eq!(victim.exists(), there);
    }
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
}

#[tokio::test(start_paused = true)]
async fn a_full_accept_queue_is_waited_for_as_long_as_an_answer() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s");
    let socket = tokio::net::UnixSocket::new_stream().unwrap();
    socket.bind(&path).unwrap();
    let _listener = socket.listen(1).unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = tokio::net::UnixStream::connect(&path).await {
        waiting.push(stream);
    }
    let error = Client::new(&path).status().await.unwrap_err();
    assert!(error.to_string().ends_with("within 10s"), "{error}");
}

#[tokio::test]
async fn a_socket_that_somebody_removes_is_made_again_for_the_same_users() {
    let running = serve(Limits::default()).await;
    let mode = |path: &Path| std::fs::metadata(path).map(|facts| facts.mode() & 0o7777);
    for _ in 0..3 {
        std::fs::remove_file(&running.path).unwrap();
        until("the socket to be back", || running.path.exists()).await;
        assert_eq!(mode(&running.path).unwrap(), 0o600);
        assert!(running.get("/v1/status").await.starts_with("HTTP/1.1 200"));
    }
    std::fs::remove_dir_all(running.path.parent().unwrap()).unwrap();
    until("the directory to be back", || running.path.exists()).await;
    assert!(running.get("/v1/status").await.starts_with("HTTP/1.1 200"));
    running.stop.cancel();
    running.task.await.unwrap();
    assert!(!running.path.exists(), "the last one is removed as the first would have been");
}

/// The socket on which other programs delay a shutdown is kept like the agent's own.
#[tokio::test]
async fn a_kept_socket_takes_clients_again_wherever_it_was_removed() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("of/control.sock");
    let mut socket = ControlSocket::bind(&path, None).await.unwrap().keep();
    for gone in [&*path, path.parent().unwrap()] {
        let removed =
            if gone.is_dir() { std::fs::remove_dir_all(gone) } else { std::fs::remove_file(gone) };
        removed.unwrap();
        let client = async {
            until("the socket to be back", || path.exists()).await;
            tokio::net::UnixStream::connect(&path).await.unwrap()
        };
        let (taken, _client) = tokio::join!(socket.accept(), client);
        taken.unwrap();
    }
    drop(socket);
    assert!(!path.exists());
}

#[tokio::test]
async fn what_took_the_sockets_place_is_left_alone() {
    let running = serve(Limits::default()).await;
    std::fs::write(running.path.with_extension("new"), "somebody's").unwrap();
    std::fs::rename(running.path.with_extension("new"), &running.path).unwrap();
    std::fs::write(running.path.with_extension("event"), "").unwrap();
    running.stop.cancel();
    running.task.await.unwrap();
    assert_eq!(std::fs::read_to_string(&running.path).unwrap(), "somebody's");
}

#[test]
fn what_is_no_socket_makes_way_and_is_kept() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("winddown.sock");
    assert_eq!(ControlSocket::make_way(&path).unwrap(), None, "nothing is there");
    std::fs::write(&path, "hi").unwrap();
    let aside = ControlSocket::make_way(&path).unwrap().unwrap();
    assert_eq!((path.exists(), std::fs::read_to_string(aside).unwrap()), (false, "hi".to_owned()));
    std::fs::create_dir(&path).unwrap();
    assert!(ControlSocket::make_way(&path).unwrap().unwrap().is_dir() && !path.exists());
    symlink("/nonexistent", &path).unwrap();
    assert!(ControlSocket::make_way(&path).unwrap().unwrap().is_symlink() && !path.is_symlink());
    drop(UnixListener::bind(&path).unwrap());
    assert_eq!(ControlSocket::make_way(&path).unwrap(), None, "a socket is judged as it is bound");
}

#[tokio::test]
async fn a_dead_agents_socket_is_replaced_and_a_living_ones_is_not() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("winddown.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "std leaves the file behind, as kill -9 does");
    let first = ControlSocket::bind(&path, None).await.unwrap();

    let error = ControlSocket::bind(&path, None).await.unwrap_err();
    assert!(matches!(error, SocketError::InUse { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        format!(
            "{}: another agent listens here; stop it first, or choose another socket",
            path.display()
        )
    );
    drop(first);
    ControlSocket::bind(&path, None).await.expect("free again");
}

#[tokio::test]
async fn a_living_program_that_knows_no_lock_keeps_its_socket() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("winddown.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let error = ControlSocket::bind(&path, None).await.unwrap_err();
    assert!(matches!(error, SocketError::InUse { .. }), "{error:?}");
    drop(listener);
}

#[tokio::test]
async fn what_is_not_a_socket_is_not_touched() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let link = directory.path().join("link");
    symlink(&file, &link).unwrap();
    for path in [&file, &link, &directory.path().to_owned()] {
        let error = ControlSocket::bind(path, None).await.unwrap_err();
        assert!(matches!(error, SocketError::NotASocket { .. }), "{path:?}: {error:?}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
}

#[tokio::test]
async fn a_path_that_is_too_long_or_cannot_be_made_is_named() {
    let directory = TempDir::new().unwrap();
    let long = directory.path().join("x".repeat(120));
    let error = ControlSocket::bind(&long, None).await.unwrap_err().to_string();
    assert!(error.contains("the path of a socket has at most 107 bytes, this one has"), "{error}");
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = ControlSocket::bind(&file.join("s"), None).await.unwrap_err().to_string();
    let name = file.display();
    assert_eq!(error, format!("{name}: cannot make the directory of the control socket"));
}

#[tokio::test]
async fn a_successors_socket_is_not_removed() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("winddown.sock");
    let socket = ControlSocket::bind(&path, None).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    let successor = UnixListener::bind(&path).unwrap();
    drop(socket);
    assert!(path.exists());
    drop(successor);
}

#[tokio::test]
async fn a_client_says_whether_the_agent_was_never_there_or_is_gone() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("winddown.sock");
    let error = Client::new(&path).status().await.unwrap_err();
    assert!(matches!(error, ClientError::Missing { .. }), "{error:?}");
    assert!(error.hint().contains("systemctl status winddown"), "{}", error.hint());
    drop(UnixListener::bind(&path).unwrap());
    let error = Client::new(&path).status().await.unwrap_err();
    assert!(matches!(error, ClientError::NotListening { .. }), "{error:?}");
}

#[tokio::test]
async fn a_path_that_is_no_sockets_is_told_from_an_agent_that_does_not_run() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    for (path, found) in [(directory.path(), "a directory"), (&file, "a file")] {
        let error = Client::new(path).status().await.unwrap_err();
        let ClientError::NotASocket { what, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*what, found);
        assert!(error.hint().contains("controlSocket"), "{}", error.hint());
    }
}

#[tokio::test]
async fn an_agent_that_dies_in_the_middle_of_an_answer_is_gone_and_not_misunderstood() {
    for answer in [
        "",
        "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"apiVersion\":",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"api",
    ] {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            use std::io::Write;
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let error = Client::new(&path).status().await.unwrap_err();
        assert!(error.is_gone(), "{answer:?}: {error:?}");
        server.join().unwrap();
    }
}

#[tokio::test]
async fn an_answer_without_end_is_given_up() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        use std::io::Write;
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).unwrap();
            let head = "HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            while stream.write_all(&[b' '; 1 << 20]).is_ok() {}
        }
    });
    let client = Client::new(&path);
    let whole = client.status().await.unwrap_err();
    let line = client.watch().await.unwrap().next::<Status>().await.unwrap_err();
    for error in [whole, line] {
        let ClientError::Io { source, .. } = error else { panic!("{error:?}") };
        assert_eq!(source.to_string(), "the answer is longer than 64 MiB");
    }
    // Its connections are closed meanwhile.
    tokio::task::spawn_blocking(|| server.join().unwrap()).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_is_not_understood_names_both_versions() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 4096];
        let _ = stream.read(&mut head).unwrap();
        let answer = "HTTP/1.1 200 OK\r\nwinddown-version: 9.9\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let error = Client::new(&path).status().await.unwrap_err();
    let own = env!("CARGO_PKG_VERSION");
    assert_eq!(
        error.to_string(),
        format!("cannot parse the agent's answer (agent 9.9, this command {own})")
    );
    assert!(error.hint().contains("systemctl restart winddown"));
    server.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_else_may_not_connect_and_when_let_in_by_hand_may_only_look() {
    let name = "somebody_else_may_not_connect_and_when_let_in_by_hand_may_only_look";
    let Some(perl) = perl_as_root(name) else { return };
    let running = serve(Limits::default()).await;
    let_in(running.path.parent().unwrap(), 0o755);
    let socket = running.path.clone();
    let ask = |request| ask(perl, "65534 65534", &socket, request);
    let refused = ask(LOOK).await;
    assert!(refused.contains("Permission denied"), "{refused}");

    let_in(&running.path, 0o666);
    let seen = ask(LOOK).await;
    assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");
    let refused = ask(KILL).await;
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    assert!(
        refused.contains("controlSocketGroup in the configuration gives a group access"),
        "{refused}"
    );
    assert!(running.agent.kills.lock().is_empty());
    for request in [GIVE_NOTICE, WITHDRAW] {
        let refused = ask(request).await;
        assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    }
    assert!(running.agent.notice.lock().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_of_the_sockets_group_may_change_the_node() {
    let name = "a_member_of_the_sockets_group_may_change_the_node";
    let Some(perl) = perl_as_root(name) else { return };
    let directory = TempDir::new().unwrap();
    let_in(directory.path(), 0o755);
    let path = directory.path().join("s");
    let socket = ControlSocket::bind(&path, Some(4242)).await.unwrap();
    let agent = Arc::new(FakeAgent::new());
    let stop = CancellationToken::new();
    let server = Server::new(Arc::clone(&agent), Limits::default(), stop.clone());
    let task = tokio::spawn(server.serve(socket));
    // The first group is the primary one; membership is in the supplementary ones.
    let done = ask(perl, "65534 65534 4242", &path, KILL).await;
    assert!(done.starts_with("HTTP/1.1 200"), "{done}");
    assert_eq!(*agent.kills.lock(), ["default/web-edge-1 None"]);
    stop.cancel();
    task.await.unwrap();
}

const GIVE_NOTICE: &str = "POST /v1/notice HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n";
const WITHDRAW: &str = "DELETE /v1/notice HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n";
const KILL: &str = "POST /v1/pods/default/web-edge-1/kill HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n";
const LOOK: &str = "GET /v1/status HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n";

fn let_in(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Sends a request as user 65534 with these groups, primary group first; only root can change its user.
async fn ask(
    perl: &'static str,
    groups: &'static str,
    socket: &Path,
    request: &'static str,
) -> String {
    let primary = groups.split(' ').next().unwrap();
    let script = format!(
        "use Socket; use POSIX (); $) = '{groups}'; POSIX::setgid({primary}); POSIX::setuid(65534); \
         socket(S, PF_UNIX, SOCK_STREAM, 0); \
         connect(S, sockaddr_un('{}')) or do {{ print $!; exit }}; \
         syswrite(S, \"{request}\"); print while <S>;",
        socket.display()
    );
    let run = move || Command::new(perl).args(["-e", &script]).stdin(Stdio::null()).output();
    let output = tokio::task::spawn_blocking(run).await.unwrap().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn perl_as_root(test: &str) -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        skip(test, "only root can become somebody else");
        return None;
    }
    let found = ["/usr/bin/perl", "/bin/perl"].into_iter().find(|perl| Path::new(perl).exists());
    if found.is_none() {
        skip(test, "perl is missing (apt package perl-base)");
    }
    found
}

fn skip(test: &str, why: &str) {
    assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{test} must not be skipped: {why}");
    println!("SKIPPED: {test}: {why}");
}
