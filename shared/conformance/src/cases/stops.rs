//! `stop_pod`.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use winddown_shared::{Grace, Runtime as _};

use crate::promise::ensure;
use crate::steps::{
    AMPLE_GRACE, KILL_TIMEOUT, Step, end, listed, nothing_runs, running, stop, stop_within,
};
use crate::{PodBehaviour, RuntimeUnderTest};

/// A grace that a container which ignores SIGTERM uses up.
const SHORT_GRACE: Duration = Duration::from_secs(2);

pub(super) async fn politely<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = running(subject, PodBehaviour::UntilStopped).await?;
    let stopped = stop(&runtime, &pod, AMPLE_GRACE).await?;
    let [one] = &stopped.containers[..] else {
        return Err(format!("one container ran, and stop_pod tells of {:?}", stopped.containers));
    };
    ensure!(!one.forced, "the container exits as soon as it gets SIGTERM, and was killed");
    let code = one.exit_code;
    ensure!(code == 0, "the container exits with 0 when it gets SIGTERM, and {code} is told");
    Ok(())
}

pub(super) async fn not_early<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = running(subject, PodBehaviour::IgnoresSigterm).await?;
    let grace = Grace::fixed(SHORT_GRACE);
    let began = Instant::now();
    let _ =
        timeout(SHORT_GRACE + KILL_TIMEOUT, runtime.stop_pod(pod.uid(), Some(&pod), grace)).await;
    let took = began.elapsed();
    ensure!(
        took >= SHORT_GRACE,
        "the grace is {SHORT_GRACE:?}, and the stop was over after {took:?}"
    );
    Ok(())
}

pub(super) async fn in_time<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = running(subject, PodBehaviour::IgnoresSigterm).await?;
    let stopped = stop(&runtime, &pod, SHORT_GRACE).await?;
    let was_killed = stopped.forced() && stopped.containers.iter().all(|one| one.exit_code == 137);
    ensure!(was_killed, "the container ignores SIGTERM, and stop_pod tells {stopped:?}");
    let found = nothing_runs(&runtime, &pod).await;
    found.map_err(|why| format!("the grace is over, and {why}"))
}

pub(super) async fn shortened<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = running(subject, PodBehaviour::IgnoresSigterm).await?;
    let (shorten, grace) = Grace::until(Instant::now() + 10 * AMPLE_GRACE);
    let shorten = async {
        sleep(Duration::from_millis(500)).await;
        shorten.shorten_to(Instant::now());
    };
    let (stopped, ()) = tokio::join!(stop_within(&runtime, &pod, grace, KILL_TIMEOUT), shorten);
    end(&runtime, &pod).await;
    stopped
        .map(drop)
        .map_err(|why| format!("the grace was shortened to nothing after 0.5 s: {why}"))
}

pub(super) async fn over<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = running(subject, PodBehaviour::UntilStopped).await?;
    stop(&runtime, &pod, AMPLE_GRACE).await?;
    let found = nothing_runs(&runtime, &pod).await;
    found.map_err(|why| format!("stop_pod has resolved, and {why}"))
}

pub(super) async fn prompt<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = running(subject, PodBehaviour::UntilStopped).await?;
    let began = Instant::now();
    let stopped = stop(&runtime, &pod, AMPLE_GRACE).await?;
    let took = began.elapsed();
    // Whether it got SIGTERM is the subject of another case.
    ensure!(
        stopped.forced() || took < AMPLE_GRACE / 2,
        "the container exits as soon as it gets SIGTERM, and the stop took {took:?} of {AMPLE_GRACE:?}"
    );
    Ok(())
}

pub(super) async fn repeated<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = running(subject, PodBehaviour::UntilStopped).await?;
    for _ in 0..3 {
        stop(&runtime, &pod, AMPLE_GRACE).await?;
    }
    Ok(())
}

pub(super) async fn by_uid<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (mut runtime, pod) = running(subject, PodBehaviour::UntilStopped).await?;
    if S::PODS_OUTLIVE_THE_AGENT {
        drop(runtime);
        runtime = subject.open().await;
    }
    let stopped = timeout(
        AMPLE_GRACE + KILL_TIMEOUT,
        runtime.stop_pod(pod.uid(), None, Grace::fixed(AMPLE_GRACE)),
    );
    match stopped.await {
        Ok(Ok(_)) => {
            let runs = listed(&runtime, &pod).await?.is_some_and(|listed| listed.running);
            ensure!(
                !runs,
                "stop_pod without the pod has resolved, and the pod is listed as running"
            );
            Ok(())
        }
        Ok(Err(error)) => Err(format!("stop_pod without the pod fails: {error}")),
        Err(_) => Err("stop_pod without the pod does not resolve".to_owned()),
    }
}

pub(super) async fn joined<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = running(subject, PodBehaviour::IgnoresSigterm).await?;
    let grace = Grace::fixed(SHORT_GRACE);
    let first = runtime.stop_pod(pod.uid(), Some(&pod), grace.clone());
    if timeout(SHORT_GRACE / 4, first).await.is_err() {
        let next = stop_within(&runtime, &pod, grace, SHORT_GRACE + KILL_TIMEOUT).await;
        next.map_err(|why| format!("a stop was dropped after {:?}; then {why}", SHORT_GRACE / 4))?;
    }
    Ok(())
}
