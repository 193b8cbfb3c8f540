//! A runtime that goes away and comes back: it is noticed without anybody asking.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};
use winddown_cri::CriRuntime;
use winddown_runtimes_tests::Fault;
use winddown_shared::{Grace, Runtime as _, error_chain};

use crate::bed::{eventually, is_running, run, secs, sync_until};
use crate::faults::{calls, polite};
use crate::stage::Stage as _;
use crate::stages::Fake;

#[tokio::test]
async fn the_end_of_the_connection_is_noticed_at_once_and_so_is_its_return() {
    let mut stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let mut health = runtime.health();
    timeout(secs(10), health.wait_for(|h| h.is_well())).await.unwrap().unwrap();
    for epoch in 2..5 {
        stage.cri.kill();
        // Nobody calls, and the next look is 15 s away.
        let gone = timeout(secs(12), health.wait_for(|h| !h.reachable)).await;
        let said = gone.unwrap().unwrap().trouble().unwrap();
        assert!(said.starts_with("does not answer: "), "{said}");
        stage.cri.resume();
        let back = timeout(secs(12), health.wait_for(|h| h.is_well())).await;
        assert_eq!(back.unwrap().unwrap().epoch, epoch);
    }
}

#[tokio::test]
async fn a_pod_that_failed_while_the_runtime_was_away_is_looked_at_when_it_is_back() {
    let mut stage = Fake::set().await;
    let runtime = stage.open_now().await;
    run(&runtime, &polite("first")).await;
    let late = polite("late");
    stage.cri.kill();
    let error = runtime.sync_pod(&late).await.unwrap_err();
    assert!(error_chain(&error).contains("fake.sock"), "{}", error_chain(&error));
    let mut changes = runtime.changes();
    stage.cri.resume();
    // The workers would wait out their back-off otherwise.
    loop {
        let changed = timeout(secs(5), changes.recv()).await.unwrap().unwrap();
        if changed == *late.uid() {
            break;
        }
    }
    run(&runtime, &late).await;
}

#[tokio::test]
async fn pods_that_wait_for_a_runtime_that_hangs_at_the_start_wait_once() {
    let stage = Fake::set().await;
    stage.cri.script("ListContainers", 100, Fault::Hang);
    let mut config = stage.config();
    config.times.ask = Duration::from_millis(500);
    let runtime = CriRuntime::open(config).await.unwrap();
    let began = Instant::now();
    let pods: Vec<_> = (0..20).map(|n| polite(&format!("web-{n}"))).collect();
    let asked = join_all(pods.iter().map(|pod| runtime.pod_status(pod.uid()))).await;
    assert!(asked.iter().all(Result::is_err));
    // One after the other they would wait for ten.
    assert!(began.elapsed() < secs(9), "{:?}", began.elapsed());
}

#[tokio::test]
async fn ids_begin_with_the_runtimes_name_also_of_a_runtime_that_told_it_late() {
    let stage = Fake::set().await;
    let first = stage.open_now().await;
    let web = polite("web");
    run(&first, &web).await;
    let id = first.pod_status(web.uid()).await.unwrap().containers.remove(0).id;
    drop(first);
    stage.cri.script("Version", 2, Fault::Error("not yet"));
    let next = CriRuntime::open(stage.config()).await.unwrap();
    // Unknown is not said to be something else.
    let told = loop {
        if let Ok(status) = next.pod_status(web.uid()).await {
            break status.containers[0].id.clone();
        }
    };
    assert_eq!(told, id);
}

#[tokio::test]
async fn while_two_listings_are_under_way_no_container_that_runs_counts_as_ended() {
    let stage = Fake::set().await;
    let first = stage.open_now().await;
    let web = polite("web");
    run(&first, &web).await;
    drop(first);
    // The second has nothing new to ask about while the first still asks.
    stage.cri.script("ContainerStatus", 100, Fault::Slow(Duration::from_millis(300)));
    let mut config = stage.config();
    // Listings wait for each other, and a busy machine is no silent runtime.
    config.times.ask = secs(60);
    let next = CriRuntime::open(config).await.unwrap();
    let asked = (0..20).map(async |n| {
        sleep(Duration::from_millis(10 * n)).await;
        next.list_pods().await.unwrap()
    });
    for listed in join_all(asked).await {
        assert_eq!((listed.len(), listed[0].running), (1, true));
    }
}

#[tokio::test]
async fn a_container_that_is_only_listed_as_running_is_ended_in_its_grace() {
    let stage = Fake::set().await;
    let first = stage.open_now().await;
    let web = polite("web");
    run(&first, &web).await;
    drop(first);
    stage.cri.script("ContainerStatus", 100_000, Fault::Error("too busy"));
    let next = stage.open_now().await;
    let listed = next.list_pods().await.unwrap();
    assert_eq!((listed.len(), listed[0].running), (1, true));
    let stop = next.stop_pod(web.uid(), Some(&web), Grace::fixed(secs(20)));
    let heal = async {
        eventually("it is asked to terminate", || !calls(&stage, "StopContainer").is_empty()).await;
        stage.cri.heal();
    };
    let (stopped, ()) = tokio::join!(stop, heal);
    let stopped = stopped.unwrap();
    assert_eq!((stopped.containers.len(), stopped.forced()), (1, false));
}

#[tokio::test]
async fn a_container_whose_state_the_runtime_lost_is_ended_and_started_again() {
    let stage = Fake::set().await;
    let runtime = stage.open_now().await;
    let web = polite("web");
    run(&runtime, &web).await;
    stage.cri.lose_states();
    runtime.list_pods().await.unwrap();
    sync_until(&runtime, &web, |c| c[0].restart_count == 1 && is_running(&c[0])).await;
    assert_eq!(stage.cri.running(), ["web/main#1"]);
    assert_eq!(calls(&stage, "StopContainer"), ["StopContainer main 30"]);
}
