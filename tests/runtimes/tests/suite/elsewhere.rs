//! This program, started again in nodes with other containerds than this machine's, on control groups of
//! version 2: all that is asked of a real containerd here is asked of those.

use std::time::Duration;

use winddown_node_tests::{Flavour, Node, Suite, base_or_skip};

/// Where this program is in the node.
const SUITE: &str = "/opt/suite";
/// The tests that want a real containerd. They come with what its log says on failure.
const WANTED: [&str; 4] = ["on_containerd::", "real::", "held::", "stats::"];
/// More than all of them take, one after the other.
const LIMIT: Duration = Duration::from_secs(1800);

#[tokio::test]
async fn all_of_it_holds_on_containerd_1_7() {
    play("all_of_it_holds_on_containerd_1_7", Suite::Trixie, &["many::"]).await;
}

#[tokio::test]
async fn all_of_it_holds_on_containerd_2_1() {
    // When many sandboxes are removed at once, that one says now and then "ttrpc: closed" and has to be asked again.
    play("all_of_it_holds_on_containerd_2_1", Suite::Sid, &[]).await;
}

/// Plays what is wanted, and some more, in a node of that release.
async fn play(test: &str, suite: Suite, more: &[&str]) {
    let recipe = suite.with(Flavour::OwnKernelContainerd);
    let Some(base) = base_or_skip(test, recipe).await.unwrap() else { return };
    let node = Node::boot(&base).await.unwrap();
    // The tests start one of their own.
    node.run(&["systemctl", "stop", "containerd"]).await.unwrap();
    node.install(&std::env::current_exe().unwrap(), SUITE).unwrap();
    let version = node.run(&["containerd", "--version"]).await.unwrap();
    assert!(version.contains(&format!(" {}.", suite.containerd())), "{version}");
    let argv = [
        &["env", "WINDDOWN_NO_SKIP=1", "TMPDIR=/var/lib/containerd", SUITE, "--test-threads=1"],
        &WANTED[..],
        more,
    ]
    .concat();
    let output = node.exec(&argv, LIMIT).await.unwrap();
    let said = format!("{}{}", output.stdout, output.stderr);
    println!("{version}{said}");
    assert!(output.status.success(), "{}: {said}", output.status);
}
