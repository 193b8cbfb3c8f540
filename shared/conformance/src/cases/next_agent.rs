//! The next agent, and a runtime that does not answer.

use winddown_shared::Runtime as _;

use crate::promise::ensure;
use crate::steps::{Step, bounded, end, is_running, listed, nothing_runs, status, until_running};
use crate::{PodBehaviour, RuntimeUnderTest};

pub(super) async fn finds<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = (subject.open().await, subject.pod("web", PodBehaviour::UntilStopped));
    let before = until_running(subject, &runtime, &pod).await?;
    drop(runtime);
    let runtime = subject.open().await;
    if !S::PODS_OUTLIVE_THE_AGENT {
        return nothing_runs(&runtime, &pod).await;
    }
    let found = listed(&runtime, &pod).await?;
    let Some(found) = found else { return Err("the pod runs on, and is not listed".to_owned()) };
    ensure!(found.running, "the pod runs on, and is listed as stopped");
    let after = bounded("sync_pod", runtime.sync_pod(&pod)).await?.status.containers;
    let [after] = &after[..] else { return Err(format!("one container is shown as {after:?}")) };
    let is_same = is_running(after) && after.id == before.id;
    ensure!(is_same, "the container ran as {before:?}, and the next agent has {after:?}");
    end(&runtime, &pod).await;
    Ok(())
}

pub(super) async fn is_away<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = (subject.open().await, subject.pod("web", PodBehaviour::UntilStopped));
    until_running(subject, &runtime, &pod).await?;
    status(&runtime, pod.uid()).await?;
    if !subject.cut_off().await {
        end(&runtime, &pod).await;
        return Ok(());
    }
    if let Ok(pods) = bounded("list_pods", runtime.list_pods()).await {
        let found = pods.iter().any(|listed| listed.uid == *pod.uid());
        ensure!(found, "the runtime cannot be reached, and list_pods says that nothing runs");
    }
    if let Ok(now) = bounded("pod_status", runtime.pod_status(pod.uid())).await {
        ensure!(now.any_running(), "the runtime cannot be reached, and pod_status has {now:?}");
    }
    Ok(())
}
