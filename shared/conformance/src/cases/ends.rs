//! Pods that end by themselves.

use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::sleep;
use winddown_shared::Runtime as _;

use crate::promise::ensure;
use crate::steps::{
    KILL_TIMEOUT, Step, bounded, end, eventually, exit_of, patience, status, until_exited,
};
use crate::{PodBehaviour, RuntimeUnderTest};

pub(super) async fn with_code<S: RuntimeUnderTest>(subject: &S) -> Step {
    let runtime = subject.open().await;
    for code in [0, 7] {
        let pod = subject.pod(&format!("job-{code}"), PodBehaviour::Exits(code));
        eventually("sync_pod", || runtime.sync_pod(&pod)).await?;
        let exit = until_exited(&runtime, &pod).await?;
        let shown = exit.exit_code;
        ensure!(shown == code, "the container exited with {code}, and {shown} is shown");
    }
    Ok(())
}

pub(super) async fn with_times<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = (subject.open().await, subject.pod("job", PodBehaviour::Exits(4)));
    eventually("sync_pod", || runtime.sync_pod(&pod)).await?;
    let exit = until_exited(&runtime, &pod).await?;
    let (Some(started), Some(finished)) = (exit.started_at, exit.finished_at) else {
        return Err(format!("the container has exited, and is shown without both times: {exit:?}"));
    };
    ensure!(started <= finished, "the container started at {started} and exited at {finished}");
    Ok(())
}

pub(super) async fn announced<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = (subject.open().await, subject.pod("job", PodBehaviour::Exits(3)));
    let mut changes = runtime.changes();
    eventually("sync_pod", || runtime.sync_pod(&pod)).await?;
    if exit_of(&status(&runtime, pod.uid()).await?).is_none() {
        // What the start announced is not the exit.
        while !matches!(changes.try_recv(), Err(TryRecvError::Empty | TryRecvError::Closed)) {}
    }
    let told = async {
        loop {
            match changes.recv().await {
                Ok(uid) if uid != *pod.uid() => {}
                Ok(_) | Err(RecvError::Lagged(_)) => {
                    if exit_of(&status(&runtime, pod.uid()).await?).is_some() {
                        return Ok(());
                    }
                }
                Err(RecvError::Closed) => return Err("the channel is closed".to_owned()),
            }
        }
    };
    let silent = async {
        until_exited(&runtime, &pod).await?;
        sleep(KILL_TIMEOUT).await;
        Err(format!("the container has exited, and {KILL_TIMEOUT:?} later it is not announced"))
    };
    tokio::select! {
        biased;
        told = told => told,
        silent = silent => silent,
    }
}

pub(super) async fn for_good<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = (subject.open().await, subject.pod("job", PodBehaviour::Exits(5)));
    eventually("sync_pod", || runtime.sync_pod(&pod)).await?;
    until_exited(&runtime, &pod).await?;
    let stays = async |when: &str| {
        let synced = bounded("sync_pod", runtime.sync_pod(&pod)).await?;
        let found = &synced.status.containers;
        ensure!(
            exit_of(&synced.status).is_some(),
            "its policy is Never, it has exited, and {when} sync_pod says {found:?}"
        );
        Ok(synced.again_in)
    };
    // A runtime that means to restart it may say when.
    let again_in = stays("then").await?.unwrap_or(KILL_TIMEOUT / 10);
    sleep(again_in.min(patience())).await;
    stays("later").await?;
    end(&runtime, &pod).await;
    stays("after a stop").await.map(drop)
}
