//! This program, started again in nodes with other containerds than this machine's, on control groups of
//! version 2: all that is asked of a real containerd here is asked of those.

use std::time::Duration;

use winddown_node_tests::{Flavour, Node, Suite, base_or_skip};

/// Where this program is in the node.
const SUITE: &str = "/opt/suite";
/// The tests that want a real containerd. They come with what its log says on failure. Those of `streams` that type
/// `kubectl` are not among them: it is not in the node.
const WANTED: [&str; 7] = [
    "on_containerd::",
    "real::",
    "held::",
    "stats::",
    "many::",
    "streams::metrics_server",
    "streams::a_websocket",
];
/// More than all of them take, one after the other.
const LIMIT: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn all_of_it_holds_on_containerd_1_7() {
    play("all_of_it_holds_on_containerd_1_7", Suite::Trixie).await;
}

#[tokio::test]
async fn all_of_it_holds_on_containerd_2_1() {
    play("all_of_it_holds_on_containerd_2_1", Suite::Sid).await;
}

/// Plays what is wanted in a node of that release.
async fn play(test: &str, suite: Suite) {
    let recipe = suite.with(Flavour::OwnKernelContainerd);
    let Some(base) = base_or_skip(test, recipe).await.unwrap() else { return };
    let node = Node::boot(&base).await.unwrap();
    // The tests start one of their own.
    node.run(&["systemctl", "stop", "containerd"]).await.unwrap();
    node.install(&std::env::current_exe().unwrap(), SUITE).unwrap();
    let said = node.run(&["containerd", "--version"]).await.unwrap();
    let (has, wanted) = (version(&said), version(suite.containerd()));
    // Debian's next release moves on.
    let is_it = if suite == Suite::Sid { has >= wanted } else { has == wanted };
    assert!(is_it, "{said}");
    let argv = [
        &["env", "WINDDOWN_NO_SKIP=1", "TMPDIR=/var/lib/containerd", SUITE, "--test-threads=1"],
        &WANTED[..],
    ]
    .concat();
    let output = node.exec(&argv, LIMIT).await.unwrap();
    let said = format!("{said}{}{}", output.stdout, output.stderr);
    // Its results are part of this one, and are not counted on their own.
    println!("{}", said.replace("test result", "result in the node"));
    assert!(output.status.success(), "{}: {said}", output.status);
}

/// The first version in a text: its first two numbers.
fn version(text: &str) -> Option<(u32, u32)> {
    text.split_whitespace().find_map(|word| {
        let mut numbers = word.split('.').map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    })
}
