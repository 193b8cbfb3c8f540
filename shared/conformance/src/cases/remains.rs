//! What is left of a pod: `clean_pod`, `forget_pod`, and pods that are not known.

use winddown_shared::{Grace, PodUid, Runtime as _};

use crate::promise::ensure;
use crate::steps::{
    AMPLE_GRACE, Step, bounded, clean, end, exit_of, forget, listed, running, status, stop,
};
use crate::{PodBehaviour, RuntimeUnderTest};

pub(super) async fn unknown<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, uid) = (subject.open().await, PodUid::new("a-pod-of-no-one"));
    let status = bounded("pod_status", runtime.pod_status(&uid)).await?;
    ensure!(status.containers.is_empty(), "an unknown pod has {:?}", status.containers);
    let stopped =
        bounded("stop_pod", runtime.stop_pod(&uid, None, Grace::fixed(AMPLE_GRACE))).await?;
    ensure!(stopped.containers.is_empty(), "nothing ran, and stop_pod tells {stopped:?}");
    clean(&runtime, &uid).await?;
    forget(&runtime, &uid).await
}

pub(super) async fn listed_until_forgotten<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = running(subject, PodBehaviour::UntilStopped).await?;
    let found = listed(&runtime, &pod).await?;
    let Some(found) = found else { return Err("the pod runs and is not listed".to_owned()) };
    ensure!(found.running, "the pod runs, and is listed as stopped");
    let names = (&*found.namespace, &*found.name);
    let wanted = (&**pod.namespace(), &**pod.name());
    ensure!(names == wanted, "the pod is {wanted:?}, and is listed as {names:?}");
    stop(&runtime, &pod, AMPLE_GRACE).await?;
    let found = listed(&runtime, &pod).await?;
    ensure!(found.is_some(), "the pod was stopped and not forgotten, and is not listed");
    Ok(())
}

pub(super) async fn kept_by_clean_up<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = running(subject, PodBehaviour::UntilStopped).await?;
    stop(&runtime, &pod, AMPLE_GRACE).await?;
    clean(&runtime, pod.uid()).await?;
    let found = status(&runtime, pod.uid()).await?;
    ensure!(exit_of(&found).is_some(), "after clean_pod the status is {:?}", found.containers);
    Ok(())
}

pub(super) async fn cleaned_twice<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = running(subject, PodBehaviour::UntilStopped).await?;
    stop(&runtime, &pod, AMPLE_GRACE).await?;
    for _ in 0..2 {
        clean(&runtime, pod.uid()).await?;
    }
    Ok(())
}

pub(super) async fn forgotten<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = running(subject, PodBehaviour::UntilStopped).await?;
    stop(&runtime, &pod, AMPLE_GRACE).await?;
    clean(&runtime, pod.uid()).await?;
    for _ in 0..2 {
        forget(&runtime, pod.uid()).await?;
    }
    let found = status(&runtime, pod.uid()).await?.containers;
    ensure!(found.is_empty(), "it was forgotten, and pod_status has {found:?}");
    ensure!(listed(&runtime, &pod).await?.is_none(), "it was forgotten, and is listed");
    drop(runtime);
    let runtime = subject.open().await;
    ensure!(
        listed(&runtime, &pod).await?.is_none(),
        "it was forgotten, and the next agent finds it"
    );
    Ok(())
}

pub(super) async fn not_while_it_runs<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod) = running(subject, PodBehaviour::UntilStopped).await?;
    let refused = bounded("forget_pod", runtime.forget_pod(pod.uid())).await.is_err();
    end(&runtime, &pod).await;
    ensure!(refused, "the pod runs, and forget_pod succeeds: nothing would stop it any more");
    Ok(())
}
