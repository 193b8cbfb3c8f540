//! `sync_pod`.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use winddown_shared::{Grace, Runtime as _};

use crate::promise::ensure;
use crate::steps::{
    AMPLE_GRACE, Step, bounded, end, is_running, listed, patience, running, status, stop,
    stop_within, until_running,
};
use crate::{PodBehaviour, RuntimeUnderTest};

pub(super) async fn answers<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = (subject.open().await, subject.pod("web", PodBehaviour::UntilStopped));
    let said = until_running(subject, &runtime, &pod).await?;
    let now = status(&runtime, pod.uid()).await?.containers;
    let Some(now) = now.first() else {
        return Err("pod_status has no container although sync_pod said that one runs".to_owned());
    };
    ensure!(is_running(now), "sync_pod said that the container runs, and pod_status has {now:?}");
    ensure!(now.id == said.id, "sync_pod said that {:?} runs, and it is {:?}", said.id, now.id);
    end(&runtime, &pod).await;
    Ok(())
}

pub(super) async fn once<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = (subject.open().await, subject.pod("web", PodBehaviour::UntilStopped));
    let first = until_running(subject, &runtime, &pod).await?;
    for _ in 0..3 {
        let now = bounded("sync_pod", runtime.sync_pod(&pod)).await?.status.containers;
        let [now] = &now[..] else { return Err(format!("one container is shown as {now:?}")) };
        let is_same = now.restart_count == first.restart_count && is_running(now);
        ensure!(is_same, "it ran as {first:?}, and after another sync_pod as {now:?}");
    }
    end(&runtime, &pod).await;
    Ok(())
}

pub(super) async fn dropped<S: RuntimeUnderTest>(subject: &S) -> Step {
    let runtime = subject.open().await;
    for (round, after) in [0, 1, 10, 40, 150].into_iter().enumerate() {
        let pod = subject.pod(&format!("web-{round}"), PodBehaviour::UntilStopped);
        let _ = timeout(Duration::from_millis(after), runtime.sync_pod(&pod)).await;
        // A stop that fails is tried again, as by the pod workers: a busy runtime may not answer in that second.
        let (grace, deadline) = (Grace::fixed(Duration::from_secs(1)), Instant::now() + patience());
        while let Err(why) = stop_within(&runtime, &pod, grace.clone(), AMPLE_GRACE).await {
            ensure!(Instant::now() < deadline, "{why}");
        }
        sleep(Duration::from_millis(300)).await;
        let runs = listed(&runtime, &pod).await?.is_some_and(|listed| listed.running);
        ensure!(
            !runs,
            "sync_pod was dropped after {after} ms, then the pod was stopped, and it runs"
        );
    }
    Ok(())
}

pub(super) async fn again<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = running(subject, PodBehaviour::UntilStopped).await?;
    for _ in 0..2 {
        stop(&runtime, &pod, AMPLE_GRACE).await?;
        let began = Instant::now();
        until_running(subject, &runtime, &pod).await?;
        let took = began.elapsed();
        ensure!(took < AMPLE_GRACE, "it took {took:?} until the pod ran again");
    }
    end(&runtime, &pod).await;
    Ok(())
}

pub(super) async fn in_parallel<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, slow) = running(subject, PodBehaviour::IgnoresSigterm).await?;
    let other = subject.pod("other", PodBehaviour::UntilStopped);
    let start = timeout(patience(), until_running(subject, &runtime, &other));
    tokio::pin!(start);
    let stop = runtime.stop_pod(slow.uid(), Some(&slow), Grace::fixed(5 * patience()));
    let started = tokio::select! {
        biased;
        _ = stop => start.await,
        started = &mut start => started,
    };
    end(&runtime, &slow).await;
    end(&runtime, &other).await;
    let waits = "a pod does not start while another one is stopping";
    started.map_err(|_| waits.to_owned())?.map(drop).map_err(|why| format!("{waits}: {why}"))
}
