//! An agent that dies at each of its writes, and the one after it.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tokio_util::sync::CancellationToken;
use winddown_shared::PodUid;

use super::agent::{Agent, Onlooker, until};
use super::cut::Cut;
use super::{has_final_status, phase_of, with_grace};
use crate::RealApi;
use crate::in_memory::InMemory;

/// Between two times of death.
const STEP: Duration = Duration::from_millis(25);
/// As many as in an agent's life here, and one: three that run, two that have ended, one removal. A
/// deletion that is observed before the end can be one more.
const WRITES: usize = 7;
const PODS: [&str; 3] = ["goes", "fails", "stays"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_dies_before_or_after_any_write_is_followed_by_one_that_finishes() {
    let Some(api) = RealApi::get().await else { return };
    let space = "pods-cut";
    api.namespace(space).await;
    let cuts = (0..WRITES).flat_map(|write| [true, false].map(|before| Cut { write, before }));
    let lives = cuts.map(async |cut: Cut| {
        let node = format!("cut-{}-{}", cut.write, if cut.before { "before" } else { "after" });
        let (mortal, dead) = cut.into_client(api.node(&node).await.client());
        two_lives(api, space, &node, mortal, dead).await
    });
    let died = count(lives).await;
    println!("died at {died} of {} writes", 2 * WRITES);
    // The first of its pods to run, and all before its last write, is always written.
    assert!(died >= WRITES, "{died}");
    api.remove(space, "none").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_dies_at_any_time_is_followed_by_one_that_finishes() {
    let Some(api) = RealApi::get().await else { return };
    let space = "pods-timed";
    api.namespace(space).await;
    let lives = (0..20u64).map(async |step| {
        let node = format!("timed-{step}");
        let (client, dead) = (api.node(&node).await.client(), CancellationToken::new());
        let (clock, life) = (dead.clone(), STEP * u32::try_from(step).unwrap());
        tokio::spawn(async move {
            tokio::time::sleep(life).await;
            clock.cancel();
        });
        two_lives(api, space, &node, client, dead).await
    });
    println!("died {} times of 20 within its work", count(lives).await);
    api.remove(space, "none").await;
}

/// Four at a time: how many were true.
async fn count(lives: impl Iterator<Item = impl Future<Output = bool>>) -> usize {
    let mut lives = stream::iter(lives).buffer_unordered(4);
    let mut count = 0;
    while let Some(died) = lives.next().await {
        count += usize::from(died);
    }
    count
}

/// One agent until its death, and the next. Whether the first one died.
async fn two_lives(
    api: &RealApi,
    space: &str,
    node: &str,
    mortal: kube::Client,
    dead: CancellationToken,
) -> bool {
    let name = |pod: &str| format!("{node}-{pod}");
    let onlooker = Onlooker::new(api, space, node).await;
    let (memory, spool) = (InMemory::default(), tempfile::tempdir().unwrap());
    let first = Agent::start(mortal, node, &memory, spool.path());

    let life = async {
        onlooker.until_phases("Running", PODS.len()).await;
        memory.exit(&name("fails"), 3);
        onlooker.pods.delete(&name("goes"), &with_grace(600)).await.unwrap();
        onlooker.gone(&name("goes")).await;
        onlooker.until_phase(&name("fails"), "Failed").await;
    };
    for pod in PODS {
        api.pod(space, &name(pod), node).await;
    }
    let died = tokio::select! {
        () = dead.cancelled() => true,
        () = life => false,
    };
    first.kill().await;

    // Whatever had not happened happens while no agent is there.
    let goes = onlooker.pods.get_opt(&name("goes")).await.unwrap();
    if goes.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()) {
        onlooker.pods.delete(&name("goes"), &with_grace(600)).await.unwrap();
    }
    if memory.pod(&name("fails")).is_some() {
        memory.exit(&name("fails"), 3);
    }
    let client = api.node(node).await.client();
    let second = Agent::start(client, node, &memory, spool.path());
    let runs = || memory.pod(&name("fails")).is_some_and(|pod| memory.has_created(pod.uid()));
    until("it was made", async || runs()).await;
    memory.exit(&name("fails"), 3);

    let last = onlooker.gone(&name("goes")).await;
    if memory.has_created(&PodUid::new(last.metadata.uid.clone().unwrap())) {
        has_final_status(&last);
    }
    let failed = onlooker.until_phase(&name("fails"), "Failed").await;
    let ended = failed.status.unwrap().container_statuses.unwrap().remove(0).state.unwrap();
    assert_eq!(ended.terminated.unwrap().exit_code, 3, "{node}");
    onlooker.until_phase(&name("stays"), "Running").await;
    assert!(memory.runtime.runs(memory.pod(&name("stays")).unwrap().uid()), "{node}");
    assert!(memory.graces(&name("stays")).is_empty(), "{node}");

    for pod in ["fails", "stays"] {
        onlooker.pods.delete(&name(pod), &with_grace(600)).await.unwrap();
        let last = onlooker.gone(&name(pod)).await;
        assert!(["Succeeded", "Failed"].contains(&phase_of(&last)), "{node}: {last:?}");
    }
    until("the node forgets them", async || memory.pods().is_empty()).await;
    let stats = || second.outbox.stats();
    until("all is said", async || stats().unacknowledged == 0 && stats().spool.files == 0).await;
    assert!(memory.created().iter().all(|&times| times == 1), "{node}");
    second.kill().await;
    died
}
