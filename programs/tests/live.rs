//! `winddown status --watch` on a real terminal: what it shows, what it sends, and that it restores
//! the terminal.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step is a failed test")]

mod bed;
mod nodes;
mod picture;
mod recording;

use std::process::Command;
use std::time::Duration;

use bed::{Agent, Tty};
use nix::sys::signal::Signal;
use winddown_control::api::{PodState, Status};
use winddown_render::{Scene, live};

const SIZES: [(u16, u16); 3] = [(80, 24), (40, 10), (200, 50)];

/// Masks numbers that count down, because they depend on the time.
fn masked(text: &str) -> String {
    let mut masked: Vec<char> = text.chars().collect();
    for end in 2..masked.len() {
        let two = masked[end - 2..end].iter().all(|c| c.is_ascii_digit() || *c == 'N');
        if masked[end] == 's' && two {
            masked[end - 2..end].fill('N');
        }
    }
    masked.into_iter().collect()
}

fn watching(
    status: &Status,
    size: (u16, u16),
    set: &[(&str, &str)],
) -> (tempfile::TempDir, Agent, Tty) {
    let folder = tempfile::tempdir().unwrap();
    let mut agent = Agent::new(folder.path());
    let tty = Tty::start(&agent.socket, size, set);
    agent.answer();
    agent.say(status);
    (folder, agent, tty)
}

#[test]
fn a_node_at_rest_going_down_drained_or_short_of_memory_fits_every_terminal() {
    let nodes = [
        ("idle", nodes::idle()),
        ("shutdown", nodes::going_down()),
        ("drain", nodes::draining()),
        ("pressure", nodes::short()),
    ];
    for (name, status) in nodes {
        for (columns, rows) in SIZES {
            let (_folder, _agent, mut tty) = watching(&status, (columns, rows), &[]);
            let text = tty.until(name, |text| text.contains("edge-7"));
            insta::assert_snapshot!(format!("{name}_{columns}x{rows}"), masked(&text));
        }
    }
}

#[test]
fn without_an_agent_it_says_so_waits_and_finds_the_one_that_comes() {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    // The path is on the screen, so it must have the same length everywhere.
    let socket = std::path::Path::new("/tmp/winddown-live-nobody/none.sock");
    for (columns, rows) in SIZES {
        let mut tty = Tty::start(socket, (columns, rows), &[]);
        let text = tty.until("no agent", |text| text.contains("NO ANSWER"));
        insta::assert_snapshot!(format!("no_agent_{columns}x{rows}"), text);
        tty.press("q");
        assert_eq!(tty.ended().code(), Some(4), "nobody ever answered");
    }
    let socket = folder.path().join("winddown.sock");
    let mut tty = Tty::start(&socket, (80, 24), &[]);
    tty.until("no agent", |text| text.contains("NO ANSWER"));
    let mut agent = Agent::new(folder.path());
    agent.answer();
    agent.say(&nodes::idle());
    tty.until("the agent", |text| text.contains("edge-7") && !text.contains("NO ANSWER"));
    agent.hang_up();
    tty.until("gone again", |text| text.contains("NO ANSWER since 12:00:00 UTC"));
    agent.answer();
    agent.say(&nodes::idle());
    tty.until("back again", |text| !text.contains("NO ANSWER"));
    tty.press("q");
    assert_eq!(tty.ended().code(), Some(0));
}

#[test]
fn a_change_sends_what_is_different_and_a_node_at_rest_sends_nothing() {
    let mut status = nodes::idle();
    let (_folder, mut agent, mut tty) = watching(&status, (80, 24), &[]);
    tty.until("the node", |text| text.contains("edge-7"));
    let whole = std::mem::take(&mut tty.sent).len();
    assert!(tty.is_quiet(Duration::from_millis(2500)), "{:?}", String::from_utf8_lossy(&tty.sent));
    if let Some(pod) = status.pods.get_mut(3) {
        pod.restarts = 7;
    }
    agent.say(&status);
    tty.until("the change", |text| text.contains("7  08:48:00"));
    let sent = String::from_utf8(std::mem::take(&mut tty.sent)).unwrap();
    assert!(sent.len() < 200 && sent.len() < whole / 8, "{} of {whole}: {sent:?}", sent.len());
    assert!(!sent.contains("\x1b[2J"), "it was cleared: {sent:?}");
}

#[test]
fn what_is_left_is_counted_down_between_the_agents_pictures() {
    let (_folder, _agent, mut tty) = watching(&nodes::going_down(), (80, 24), &[]);
    let seconds = |text: &str, from: std::ops::RangeInclusive<u32>| {
        from.clone().any(|left| text.contains(&format!("Terminating         {left}s")))
    };
    tty.until("the beginning", |text| seconds(text, 20..=35));
    tty.until("less", |text| seconds(text, 10..=33));
    tty.until("the shutdown's time", |text| {
        text.contains("at most ") && !text.contains("50s left")
    });
}

#[test]
fn the_picture_follows_the_size_of_the_terminal() {
    let (_folder, _agent, mut tty) = watching(&nodes::idle(), (80, 24), &[]);
    let before = tty.until("80x24", |text| text.contains("LAST DECISIONS"));
    tty.resize(40, 10);
    tty.until("40x10", |text| text.contains("edge-7") && !text.contains("LAST DECISIONS"));
    for (columns, rows) in [(1, 1), (3, 2), (12, 4), (500, 3), (80, 24)] {
        tty.sent.clear();
        tty.resize(columns, rows);
        tty.until("any size", |_| true);
    }
    assert_eq!(tty.until("80x24 again", |text| text.contains("LAST DECISIONS")), before);
    tty.press("q");
    tty.ended();
}

#[test]
fn a_key_is_not_lost_while_the_terminal_is_resized() {
    let (_folder, _agent, mut tty) = watching(&nodes::idle(), (60, 12), &[]);
    // Before that there is nothing to scroll.
    tty.until("the pods", |text| text.contains("batch/report-builder"));
    for turn in 0..200 {
        tty.resize(60, 13 - turn % 2);
        tty.press("\x1b[F");
        tty.until("the last", |text| text.contains("session-cache"));
        tty.resize(60, 12 + turn % 2);
        tty.press("\x1b[H");
        tty.until("the first", |text| text.contains("batch/report-builder"));
    }
}

#[test]
fn the_pods_that_do_not_fit_are_scrolled_to() {
    let (_folder, _agent, mut tty) = watching(&nodes::idle(), (60, 12), &[]);
    tty.until("the first", |text| {
        text.contains("batch/report-builder") && text.contains("more below")
    });
    tty.press("\x1b[6~\x1b[6~\x1b[6~");
    tty.until("the last", |text| text.contains("session-cache") && text.contains("more above"));
    tty.press("\x1b[H");
    tty.until("the first again", |text| text.contains("batch/report-builder"));
}

#[test]
fn keys_filter_and_sort_the_pods_and_explain_themselves() {
    for size in SIZES {
        let name = |screen: &str| format!("{screen}_{}x{}", size.0, size.1);
        let (_folder, _agent, mut tty) = watching(&nodes::idle(), size, &[]);
        tty.until("the node", |text| text.contains("edge-7"));
        tty.press("/shop");
        tty.until("typed", |text| text.contains("/shop_"));
        tty.press("\rs");
        let filtered = tty.until("the filter", |text| text.contains("/shop (4 of 9), by name"));
        insta::assert_snapshot!(name("filter"), masked(&filtered));
        tty.press("?");
        let help = tty.until("the help", |text| text.contains("KEYS"));
        insta::assert_snapshot!(name("help"), help);
        tty.press("\x1b");
        tty.until("no help", |text| text.contains("/shop (4 of 9)"));
        tty.press("\x1b");
        tty.until("no filter", |text| !text.contains("/shop (") && text.contains("by name"));
        tty.press("\x1b");
        tty.until("no order", |text| !text.contains("by name"));
        tty.press("\x1b");
        assert_eq!(tty.ended().code(), Some(0));
    }
}

#[test]
fn the_terminal_is_given_back_whatever_ends_the_watch() {
    for (how, key, signal) in [
        ("q", "q", None),
        ("Ctrl-C", "\x03", None),
        ("Esc", "\x1b", None),
        ("SIGTERM", "", Some(Signal::SIGTERM)),
        ("SIGINT", "", Some(Signal::SIGINT)),
        ("SIGHUP", "", Some(Signal::SIGHUP)),
    ] {
        let (_folder, _agent, mut tty) = watching(&nodes::going_down(), (80, 24), &[]);
        tty.until(how, |text| text.contains("edge-7"));
        assert!(tty.screen.screen().alternate_screen() && tty.screen.screen().hide_cursor());
        match signal {
            Some(signal) => tty.signal(signal),
            None => tty.press(key),
        }
        assert_eq!(tty.ended().code(), Some(0), "{how}");
    }
}

#[test]
fn a_watch_in_the_background_waits_for_the_terminal_and_can_be_ended() {
    let folder = tempfile::tempdir().unwrap();
    let mut agent = Agent::new(folder.path());
    // What a shell's `kill %1` sends to a stopped job.
    let script = r#"set -m
        "$@" &
        until ps -o stat= -p $! | grep -q T; do sleep 0.02; done
        kill -TERM %1
        kill -CONT %1
        # For dash, a job that stops has ended, with 128 and SIGTTOU.
        state=150
        while [ $state = 150 ]; do sleep 0.02; wait $!; state=$?; done
        echo "ended: $state""#;
    let mut tty = Tty::start_by(&["sh", "-c", script, "sh"], &agent.socket, SIZES[0], &[]);
    agent.answer();
    agent.say(&nodes::idle());
    tty.until_line("ended: 143");
    assert!(tty.ended().success());
}

#[test]
fn an_answer_that_cannot_be_used_ends_the_watch_with_an_error_on_the_usual_screen() {
    let folder = tempfile::tempdir().unwrap();
    let mut agent = Agent::new(folder.path());
    let mut tty = Tty::start(&agent.socket, (80, 24), &[]);
    agent.answer();
    agent.say(&nodes::idle());
    tty.until("the node", |text| text.contains("edge-7"));
    agent.say_nonsense();
    assert_eq!(tty.ended().code(), Some(1));
    assert!(tty.text().contains("error:"), "{}", tty.text());
}

#[test]
fn colour_is_for_those_who_want_it() {
    let colors = |set: &[(&str, &str)]| {
        let (_folder, _agent, mut tty) = watching(&nodes::going_down(), (80, 24), set);
        tty.until("the node", |text| text.contains("edge-7"));
        let screen = tty.screen.screen();
        let cells =
            (0..24).flat_map(|row| (0..80).filter_map(move |column| screen.cell(row, column)));
        cells.filter(|cell| cell.fgcolor() != vt100::Color::Default).count()
    };
    assert!(colors(&[]) > 0);
    assert_eq!(colors(&[("NO_COLOR", "1")]), 0);
}

#[test]
fn a_dumb_terminal_and_a_pipe_get_plain_lines() {
    let folder = tempfile::tempdir().unwrap();
    let mut agent = Agent::new(folder.path());
    let mut child = Command::new(env!("CARGO_BIN_EXE_winddown"))
        .args(["status", "--watch"])
        .env("WINDDOWN_SOCKET", &agent.socket)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    agent.answer();
    let mut status = nodes::idle();
    agent.say(&status);
    if let Some(pod) = status.pods.first_mut() {
        pod.state = PodState::Terminating;
    }
    agent.say(&status);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let last = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("Terminating")));
    let wanted = "2026-11-20T12:00:00Z pod batch/report-builder-8d116ece-6cad4 Terminating";
    assert!(last.unwrap().unwrap().starts_with(wanted));
    // Close the pipe as `head` does. Nothing more happens on the node.
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(0));

    let (_folder, _agent, mut tty) = watching(&nodes::idle(), (80, 24), &[("TERM", "dumb")]);
    tty.until_line("2026-11-20T12:00:00Z lock held");
    assert!(!tty.sent.contains(&0x1b), "{:?}", String::from_utf8_lossy(&tty.sent));
}

/// Compares a picture of the documentation with the current drawing. `WINDDOWN_BLESS=1` updates it.
fn compare(picture: &str, drawn: &str) {
    let path = root().join("docs/img").join(picture);
    if std::env::var_os("WINDDOWN_BLESS").is_some() {
        std::fs::write(&path, drawn).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == drawn, "docs/img/{picture} is out of date: WINDDOWN_BLESS=1 draws it anew");
}

fn root() -> &'static std::path::Path {
    std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Reads a file that `make pages PICTURES=1` recorded of a real run.
fn kept(name: &str) -> Vec<u8> {
    std::fs::read(root().join("programs/tests/live").join(name)).unwrap()
}

#[test]
fn the_screens_of_the_documentation_are_up_to_date() {
    for (name, title) in [
        ("idle", "winddown status --watch on a node at rest"),
        ("shutdown", "winddown status --watch while the node goes down"),
        ("pressure", "winddown status --watch while memory is short"),
    ] {
        let status: Status = serde_json::from_slice(&kept(&format!("{name}.json"))).unwrap();
        let scene = Scene { status: Some(&status), blocks: true, ..Scene::default() };
        let drawn = picture::draw(title, &live(&scene, 100, 24).lines, 100);
        compare(&format!("live-{name}.svg"), &drawn);
    }
}

#[test]
fn the_recording_of_the_readme_is_up_to_date() {
    let (sent, timing) = (kept("demo.sent"), String::from_utf8(kept("demo.timing")).unwrap());
    let film = recording::film("A rehearsal: winddown drill", &sent, &timing, (110, 34));
    assert!(film.len() < 150_000, "{} bytes", film.len());
    compare("demo.svg", &film);
}
