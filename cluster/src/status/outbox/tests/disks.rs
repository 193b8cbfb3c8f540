//! What survives the machine.

use tempfile::TempDir;

use super::*;
use crate::status::spool::Spool;
use crate::status::spool::tests::faulty::{FaultyDisk, Mode};

/// The API is unreachable from before the pods terminate until after the boot.
#[tokio::test(start_paused = true)]
async fn statuses_that_could_not_be_sent_arrive_after_the_boot_and_nothing_is_doubled() {
    let home = TempDir::new().unwrap();
    let server = with(&["last", "leaving", "gone", "replaced"]);
    server.fault(down());
    let agent = Agent::start(&server, Some(home.path()));
    agent.outbox.submit(ended("last"));
    agent.outbox.submit(ended("gone"));
    agent.outbox.submit(ended("replaced"));
    agent.outbox.submit(says("leaving", json!({ "phase": "Running", "message": "going" })));
    assert_eq!(agent.flush(Duration::from_secs(5)).await, ["gone", "last", "leaving", "replaced"]);
    assert_eq!(agent.outbox.stats().spool.files, 4);
    agent.cut().await;

    server.lift_all();
    server.remove(&path("gone"));
    replace(&server, "replaced");
    let agent = Agent::start(&server, Some(home.path()));
    until(|| patched(&server).len() == 2).await;
    assert_eq!(phase(&server, "last"), "Failed");
    assert_eq!(
        there(&server, "leaving").status.as_ref().unwrap().message.as_deref(),
        Some("going")
    );
    assert_eq!(phase(&server, "replaced"), "Pending");
    until(|| std::fs::read_dir(home.path()).unwrap().count() == 0).await;
    agent.outbox.recalled().await;
    let last = agent.outbox.final_status(&PodUid::new("last")).expect("until the object is gone");
    assert_eq!(last.phase.as_deref(), Some("Failed"));
    agent.cut().await;

    let agent = Agent::start(&server, Some(home.path()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(patched(&server).len(), 2, "nothing is sent twice");
    agent.cut().await;
}

#[tokio::test(start_paused = true)]
async fn a_last_word_is_on_disk_before_it_is_sent() {
    let home = TempDir::new().unwrap();
    let server = with(&["a", "b"]);
    server.fault(Fault::on("*", "*").delay(Duration::from_secs(5)));
    let agent = Agent::start(&server, Some(home.path()));
    agent.outbox.submit(ended("a"));
    until(|| !server.requests().is_empty()).await;
    assert!(home.path().join("a.json").exists());
    agent.cut().await;

    server.lift_all();
    let agent = Agent::start(&server, Some(home.path()));
    agent.delivered("a").await;
    until(|| phase(&server, "a") == "Failed").await;
    until(|| !home.path().join("a.json").exists()).await;
    agent.cut().await;
}

#[tokio::test(start_paused = true)]
async fn a_last_word_waits_for_a_disk_that_hangs_and_not_for_long() {
    let home = TempDir::new().unwrap();
    let disk = Arc::new(FaultyDisk::new(Mode::Hang, 0..1));
    let config = config(None);
    let spool = Spool::on(disk.clone(), home.path(), 4096, config.wall.clone());
    let server = with(&["a", "b"]);
    let agent = Agent::of(&server, Outbox::with_spool(&config, Some(spool)));
    agent.outbox.submit(running("b"));
    agent.delivered("b").await;
    let before = server.requests().len();
    agent.outbox.submit(ended("a"));
    disk.until_hanging().await;
    tokio::task::yield_now().await;
    assert_eq!(server.requests().len(), before, "not before it is on disk");
    // A blocking call is under way, so that the paused clock has to be moved by hand.
    tokio::time::advance(Duration::from_millis(1100)).await;
    agent.delivered("a").await;
    assert_eq!(phase(&server, "a"), "Failed");
    disk.go_on();
    agent.cut().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_kept_does_not_replace_what_was_said_since() {
    let home = TempDir::new().unwrap();
    let server = with(&["a"]);
    server.fault(down());
    let agent = Agent::start(&server, Some(home.path()));
    agent.outbox.submit(says("a", json!({ "phase": "Running", "message": "old" })));
    agent.flush(Duration::from_secs(2)).await;
    agent.cut().await;
    server.lift_all();
    let (outbox, driver) = Outbox::new(&config(Some(home.path())));
    outbox.submit(says("a", json!({ "phase": "Running", "message": "new" })));
    let agent = Agent::of(&server, (outbox, driver));
    agent.delivered("a").await;
    agent.outbox.recalled().await;
    until(|| std::fs::read_dir(home.path()).unwrap().count() == 0).await;
    let messages: Vec<_> =
        patches(&server).into_iter().map(|patch| patch.body["status"]["message"].clone()).collect();
    assert_eq!(messages, ["new"]);
    agent.cut().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_kept_goes_first_and_what_is_newer_wins() {
    let home = TempDir::new().unwrap();
    let server = with(&["a", "b"]);
    server.fault(down());
    let agent = Agent::start(&server, Some(home.path()));
    agent.outbox.submit(says("a", json!({ "phase": "Running", "message": "old" })));
    agent.outbox.submit(says("b", json!({ "phase": "Running", "message": "old" })));
    agent.flush(Duration::from_secs(2)).await;
    agent.cut().await;
    server.lift_all();
    let (outbox, driver) =
        Outbox::new(&OutboxConfig { concurrency: 1, ..config(Some(home.path())) });
    outbox.submit(ended("b"));
    let agent = Agent::of(&server, (outbox, driver));
    until(|| patched(&server).len() == 2).await;
    assert_eq!(patched(&server), ["a", "b"]);
    assert_eq!(phase(&server, "b"), "Failed");
    until(|| std::fs::read_dir(home.path()).unwrap().count() == 0).await;
    agent.cut().await;
}

#[tokio::test(start_paused = true)]
async fn a_last_word_of_a_pod_that_has_not_ended_in_the_api_stays_until_the_pod_is_gone() {
    let home = TempDir::new().unwrap();
    let server = with(&["mirror"]);
    let agent = Agent::start(&server, Some(home.path()));
    // A static pod that is stopped and comes back has no terminal phase.
    agent.outbox.submit(StatusUpdate { last: true, ..running("mirror") });
    agent.delivered("mirror").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(home.path().join("mirror.json").exists());
    agent.outbox.gone(&PodUid::new("mirror"));
    until(|| !home.path().join("mirror.json").exists()).await;
    agent.cut().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_delays_no_status() {
    let home = TempDir::new().unwrap();
    let disk = Arc::new(FaultyDisk::new(Mode::Full, 0..usize::MAX));
    let config = config(None);
    let spool = Spool::on(disk, home.path(), 4096, config.wall.clone());
    let server = with(&["a", "b"]);
    let agent = Agent::of(&server, Outbox::with_spool(&config, Some(spool)));
    agent.outbox.submit(ended("a"));
    agent.delivered("a").await;
    assert_eq!(phase(&server, "a"), "Failed");
    server.fault(down());
    agent.outbox.submit(running("b"));
    assert_eq!(agent.flush(Duration::from_secs(2)).await, ["b"]);
    let spool = agent.outbox.stats().spool;
    assert_eq!((spool.files, spool.errors), (0, 2));
    agent.cut().await;
}

/// Cuts the power at every disk operation in turn, with the API unreachable. What was acknowledged
/// as kept arrives after the boot, and nothing wrong does.
#[tokio::test(start_paused = true)]
async fn power_may_go_at_any_moment_of_a_flush() {
    for moment in 0.. {
        let home = TempDir::new().unwrap();
        let disk = Arc::new(FaultyDisk::new(Mode::PowerCut, moment..moment + 1));
        let config = config(None);
        let spool = Spool::on(disk.clone(), home.path(), 4096, config.wall.clone());
        let server = with(&["a", "b", "c"]);
        server.fault(down());
        let agent = Agent::of(&server, Outbox::with_spool(&config, Some(spool.clone())));
        for name in ["a", "b"] {
            agent.outbox.submit(ended(name));
        }
        agent.outbox.submit(running("c"));
        agent.flush(Duration::from_secs(3)).await;
        let kept: Vec<&str> =
            ["a", "b", "c"].into_iter().filter(|name| spool.has(&PodUid::new(*name))).collect();
        agent.cut().await;

        server.lift_all();
        let agent = Agent::start(&server, Some(home.path()));
        for name in kept {
            until(|| phase(&server, name) != "Pending").await;
            let expected = if name == "c" { "Running" } else { "Failed" };
            assert_eq!(phase(&server, name), expected, "moment {moment}");
        }
        assert_eq!(agent.outbox.stats().spool.set_aside, 0);
        agent.cut().await;
        if !disk.was_hit() {
            assert!(moment >= 8, "every operation was hit");
            return;
        }
    }
}

/// Files are removed in real time, which the paused clock does not follow.
async fn until(mut holds: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        // Lets the writer threads continue.
        tokio::task::spawn_blocking(std::thread::yield_now).await.unwrap();
    }
    panic!("it never came to that");
}
