#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::os::unix::fs::PermissionsExt;

use winddown_shared::PodUid;

use super::*;

fn call() -> HookCall {
    let pod = PodRef { namespace: "shop".into(), name: "web".into(), uid: PodUid::new("u1") };
    HookCall { pod, cause: "memory.available", message: "The node was low.".into() }
}

async fn shell(script: &str, timeout: Duration) -> EvictionHookRun {
    let command = ["/bin/sh", "-c", script].map(str::to_owned).into();
    HookCommand.run(Arc::new(HookRule { command, timeout }), call()).await
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_command_is_told_the_pod_and_what_it_writes_is_kept() {
    let script = "echo $WINDDOWN_POD_NAMESPACE/$WINDDOWN_POD_NAME $WINDDOWN_POD_UID $WINDDOWN_SIGNAL; \
                  echo \"$WINDDOWN_MESSAGE\" >&2";
    let ran = shell(script, LONG).await;
    assert_eq!(
        (ran.error, &*ran.output),
        (None, "shop/web u1 memory.available\nThe node was low.")
    );
}

#[tokio::test]
async fn one_that_fails_or_is_missing_says_so() {
    let ran = shell("echo no room; exit 3", LONG).await;
    assert_eq!(ran.error.as_deref(), Some("it failed: exit status: 3"));
    assert_eq!(ran.output, "no room");
    for command in [vec!["/nonexistent".to_owned()], Vec::new()] {
        let ran = HookCommand.run(Arc::new(HookRule { command, timeout: LONG }), call()).await;
        assert!(ran.error.unwrap().starts_with("it could not be run: "));
    }
}

#[tokio::test]
async fn one_that_others_may_write_is_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let (program, ran) = (dir.path().join("hook"), dir.path().join("ran"));
    std::fs::write(&program, format!("#!/bin/sh\n: >{}\n", ran.display())).unwrap();
    let run = async |mode| {
        std::fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
        let command = vec![program.display().to_string()];
        HookCommand.run(Arc::new(HookRule { command, timeout: LONG }), call()).await.error
    };
    let error = run(0o777).await.unwrap();
    assert!(error.contains("hook: every user may write to it, so it is not run"), "{error}");
    assert!(error.contains(": chmod go-w /"), "{error}");
    assert!(!ran.exists());
    assert_eq!(run(0o755).await, None);
    assert!(ran.exists());
}

#[tokio::test]
async fn one_that_takes_too_long_is_killed() {
    let ran = shell("sleep 600", Duration::from_millis(1)).await;
    assert_eq!(ran.error.as_deref(), Some("it was killed after 1ms"));
}

#[tokio::test]
async fn what_one_has_started_ends_with_it_and_holds_nothing_up() {
    let ran = shell("sleep 600 & echo $!", LONG).await;
    assert!(ran.error.is_none() && ran.took_ms < 50_000, "{ran:?}");
    is_gone(&ran.output).await;
}

#[tokio::test]
async fn one_that_is_no_longer_waited_for_ends_with_what_it_has_started() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let script = format!("sleep 600 & echo $! >{0}.new && mv {0}.new {0}; wait", file.display());
    let mut run = Box::pin(shell(&script, LONG));
    while !file.exists() {
        assert!((&mut run).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    drop(run);
    is_gone(std::fs::read_to_string(file).unwrap().trim()).await;
}

#[tokio::test]
async fn of_much_output_the_beginning_is_kept() {
    let ran = shell("yes | head -c 1000000", LONG).await;
    assert_eq!(ran.error, None);
    assert_eq!(ran.output.len(), MAX_OUTPUT_BYTES - 1, "without the end of the last line");
}

async fn is_gone(pid: &str) {
    assert!(!pid.is_empty());
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Nothing here reaps a zombie.
    while !state().is_empty() && !state().contains(") Z") {
        tokio::task::yield_now().await;
    }
}
