#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::*;

fn pod(uid: &str) -> Pod {
    let text = |text: &str| Some(text.to_owned());
    let (name, namespace) = (text("web"), text("default"));
    let metadata = ObjectMeta { name, namespace, uid: text(uid), ..ObjectMeta::default() };
    Pod::new(api::Pod { metadata, ..api::Pod::default() }).unwrap()
}

fn of_boot(parent: &Path, boot: &str) -> KeptPods {
    at(parent, boot, (0, 0))
}

/// Of an agent so many seconds after the boot, for how many of which the machine was suspended.
fn at(parent: &Path, boot: &str, (since_boot, suspended): (u64, u64)) -> KeptPods {
    let [since_boot, suspended] = [since_boot, suspended].map(Duration::from_secs);
    let clock = BootClock::new(move || since_boot).with_suspended(move || suspended);
    KeptPods::of_boot(parent, (boot, &clock), MemoryRoom::default())
}

async fn keep(kept: &KeptPods, uid: &str) {
    kept.keep(pod(uid)).await.unwrap();
}

/// The UIDs that an agent of this boot finds, and whether the records are complete.
fn found(parent: &Path, boot: &str) -> (Vec<String>, bool) {
    let found = of_boot(parent, boot).load();
    let mut uids: Vec<_> = found.pods.iter().map(|pod| pod.uid().to_string()).collect();
    uids.sort();
    (uids, found.complete)
}

#[tokio::test]
async fn the_next_agent_of_the_boot_finds_what_was_kept_and_only_root_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let kept = of_boot(dir.path(), "b1");
    assert_eq!(found(dir.path(), "b1"), (vec![], false), "the API was never listed");
    for uid in ["u1", "u2", "u3"] {
        keep(&kept, uid).await;
    }
    kept.remove(&PodUid::new("u2")).await;
    assert_eq!(found(dir.path(), "b1"), (vec!["u1".into(), "u3".into()], false));
    kept.all_known().await;
    assert_eq!(found(dir.path(), "b1"), (vec!["u1".into(), "u3".into()], true));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir.path().join("b1")), 0o700);
    assert_eq!(mode(&dir.path().join("b1/u1.json")), 0o600);
}

#[tokio::test]
async fn a_pod_that_is_deleted_has_the_rest_of_its_grace_which_stands_still_during_a_suspension() {
    let dir = tempfile::tempdir().unwrap();
    let mut object = pod("u1").object().clone();
    object.metadata.deletion_timestamp = Some(Time("2026-11-20T12:00:00Z".parse().unwrap()));
    object.metadata.deletion_grace_period_seconds = Some(600);
    at(dir.path(), "b1", (100, 10)).keep(Pod::new(object).unwrap()).await.unwrap();
    for (now, left) in [((100, 10), 600), ((690, 10), 10), ((1290, 610), 10), ((9000, 10), 0)] {
        let found = at(dir.path(), "b1", now).load().pods;
        assert_eq!(found[0].metadata.deletion_grace_period_seconds, Some(left), "{now:?}");
    }
}

#[tokio::test]
async fn after_a_boot_nothing_of_before_is_found_or_left() {
    let dir = tempfile::tempdir().unwrap();
    keep(&of_boot(dir.path(), "b1"), "u1").await;
    assert_eq!(found(dir.path(), "b2"), (vec![], false), "what starts again has volumes");
    assert!(!dir.path().join("b1").exists());
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_missed_by_every_agent_until_the_api_has_said_what_runs() {
    let dir = tempfile::tempdir().unwrap();
    let kept = of_boot(dir.path(), "b1");
    keep(&kept, "u1").await;
    std::fs::write(dir.path().join("b1/u2.json"), "{\"metadata\": ").unwrap();
    // The temporary file of an interrupted write is ignored.
    std::fs::write(dir.path().join("b1/u3.new"), "{").unwrap();
    for agent in 1..=3 {
        assert_eq!(found(dir.path(), "b1"), (vec!["u1".into()], false), "agent {agent}");
    }
    kept.all_known().await;
    assert_eq!(found(dir.path(), "b1"), (vec!["u1".into()], true));
}

#[tokio::test]
async fn a_uid_that_is_no_file_name_is_written_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let kept = of_boot(dir.path(), "b1");
    for uid in ["../u1", "a/b", ".", &"u".repeat(201)] {
        keep(&kept, uid).await;
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_directory_that_cannot_be_read_is_not_taken_for_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("b1"), "a file").unwrap();
    assert_eq!(found(dir.path(), "b1"), (vec![], false));
}

#[tokio::test]
async fn links_in_place_of_kept_pods_reach_no_other_file() {
    use std::os::unix::fs::symlink;

    let dir = tempfile::tempdir().unwrap();
    let kept = of_boot(dir.path(), "b1");
    keep(&kept, "u1").await;
    let victim = dir.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    for name in ["u1.json", "u1.new"] {
        let _ = std::fs::remove_file(dir.path().join("b1").join(name));
        symlink(&victim, dir.path().join("b1").join(name)).unwrap();
    }
    keep(&kept, "u1").await;
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    kept.all_known().await;
    assert_eq!(found(dir.path(), "b1"), (vec!["u1".into()], true));
    // A link to an endless file is not read for ever.
    std::fs::remove_file(dir.path().join("b1/u1.json")).unwrap();
    symlink("/dev/zero", dir.path().join("b1/u1.json")).unwrap();
    assert_eq!(found(dir.path(), "b1"), (vec![], false));
}

#[tokio::test]
async fn a_pod_that_finds_no_room_in_memory_has_no_record_and_none_is_missing() {
    // `/run` is such a file system, and tests may not write there.
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        println!(
            "SKIPPED: a_pod_that_finds_no_room_in_memory_has_no_record_and_none_is_missing: no /dev/shm"
        );
        assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "skipped: no /dev/shm");
        return;
    };
    let room = MemoryRoom::default();
    let clock = BootClock::new(Duration::default);
    let kept = KeptPods::of_boot(dir.path(), ("b1", &clock), room.clone());
    kept.all_known().await;
    let others = PodUid::new("others");
    room.note_record(&others, u64::MAX / 4);
    let refused = kept.keep(pod("u1")).await.unwrap_err().to_string();
    assert!(refused.starts_with("no room"), "{refused}");
    assert_eq!(found(dir.path(), "b1"), (vec![], true));
    kept.remove(&others).await;
    keep(&kept, "u1").await;
    assert_eq!(found(dir.path(), "b1"), (vec!["u1".into()], true));
}

#[tokio::test]
async fn a_pod_with_as_many_variables_as_it_may_have_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut object = pod("u1").object().clone();
    let value = Some("x".repeat(MOST_BYTES_OF_VARIABLES));
    let env = vec![api::EnvVar { name: "V".into(), value, value_from: None }];
    let container = api::Container { env: Some(env), ..api::Container::default() };
    object.spec = Some(api::PodSpec { containers: vec![container], ..api::PodSpec::default() });
    let kept = of_boot(dir.path(), "b1");
    kept.all_known().await;
    kept.keep(Pod::new(object).unwrap()).await.unwrap();
    assert_eq!(found(dir.path(), "b1"), (vec!["u1".into()], true));
}

#[tokio::test]
async fn what_could_not_be_kept_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let kept = of_boot(dir.path(), "b1");
    kept.all_known().await;
    assert_eq!(found(dir.path(), "b1"), (vec![], true));
    std::fs::create_dir(dir.path().join("b1/u1.json")).unwrap();
    keep(&kept, "u1").await;
    std::fs::remove_dir(dir.path().join("b1/u1.json")).unwrap();
    assert_eq!(found(dir.path(), "b1"), (vec![], false));
    kept.all_known().await;
    assert_eq!(found(dir.path(), "b1"), (vec![], false));
}

#[test]
fn no_agent_takes_the_records_for_complete_while_one_cannot_be_written() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.max_blocking_threads(1).build().unwrap().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let kept = of_boot(dir.path(), "b1");
        let first = Arc::clone(&kept.0.writing).lock_owned().await;
        let keeping = tokio::spawn({
            let kept = kept.clone();
            async move { keep(&kept, "no/name").await }
        });
        tokio::task::yield_now().await;
        let mut second = std::pin::pin!(Arc::clone(&kept.0.writing).lock_owned());
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        let second = second.await;
        // The write has failed, and the mark is not removed yet.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        tokio::task::yield_now().await;
        let knowing = tokio::spawn({
            let kept = kept.clone();
            async move { kept.all_known().await }
        });
        tokio::task::yield_now().await;
        drop(second);
        keeping.await.unwrap();
        knowing.await.unwrap();
        assert_eq!(found(dir.path(), "b1"), (vec![], false));
    });
}
