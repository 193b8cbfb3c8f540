//! Pods that crash and are restarted.

use winddown_shared::ContainerState;

use crate::RuntimeUnderTest;
use crate::promise::ensure;
use crate::steps::{Step, crash, end, patience};

/// The exit code of the pods that crash.
const CODE: i32 = 6;

pub(super) async fn restarted<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod, crash) = crash(subject, CODE).await?;
    end(&runtime, &pod).await;
    let last = crash.meanwhile.last();
    ensure!(
        crash.restarted.is_some(),
        "its policy is Always, and {:?} after it crashed it does not run: {last:?}",
        patience()
    );
    Ok(())
}

pub(super) async fn counted<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod, crash) = crash(subject, CODE).await?;
    end(&runtime, &pod).await;
    // Whether it is restarted is the subject of another case.
    let Some(now) = crash.restarted else { return Ok(()) };
    let (count, code) = (now.restart_count, now.last_exit.as_ref().map(|exit| exit.exit_code));
    ensure!(count > 0, "the container was restarted, and its restart_count is {count}");
    ensure!(code == Some(CODE), "the container had exited with {CODE}, and last_exit has {code:?}");
    Ok(())
}

pub(super) async fn waits<S: RuntimeUnderTest>(subject: &S) -> Step {
    let (runtime, pod, crash) = crash(subject, CODE).await?;
    end(&runtime, &pod).await;
    let is_exited = |one: &_| matches!(one, ContainerState::Exited(_));
    // A backoff may be over between the sync and its answer, but not twice.
    let mut states = crash.meanwhile.windows(2);
    let for_good = states.find(|two| two.iter().all(|one| is_exited(&one.state)));
    ensure!(for_good.is_none(), "the container will be restarted, and is shown as {for_good:?}");
    let without =
        crash.meanwhile.iter().find(|one| one.last_exit.is_none() && !is_exited(&one.state));
    ensure!(
        without.is_none(),
        "the container waits to be restarted without last_exit: {without:?}"
    );
    Ok(())
}
