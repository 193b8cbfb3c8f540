//! How soon the first pod is requested to stop, with the run's record written to a real disk before that.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use winddown_shared::testing::{FakeInhibitor, FakeKiller};
use winddown_shared::{Pod, WallClock};
use winddown_shutdown::{
    BootClock, FileError, Policy, ProgressPhase, ProgressSender, RecordFile, RecordStore,
    ReportStore, RunRecord, ShutdownController, ShutdownParts,
};

/// How long a run waits for a disk before it requests the first pod to stop without a record.
const PATIENCE: Duration = Duration::from_millis(250);

/// A file on a real disk, with when the first record was stored there and how many pods it had.
struct Watched(RecordFile, OnceLock<(Instant, usize)>);

impl RecordStore for Watched {
    fn write(&self, record: &RunRecord) -> Result<(), FileError> {
        self.0.write(record)?;
        self.1.get_or_init(|| (Instant::now(), record.report.pods().count()));
        Ok(())
    }

    fn read(&self) -> Result<Option<RunRecord>, FileError> {
        self.0.read()
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

fn pod(name: &str) -> Pod {
    let mut object = api::Pod::default();
    object.metadata.name = Some(name.into());
    object.metadata.namespace = Some("default".into());
    object.metadata.uid = Some(name.into());
    Pod::new(object).unwrap()
}

/// The time from the signal to the first request.
async fn first_request(pods: usize) -> Duration {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let killer = FakeKiller::with((0..pods).map(|i| pod(&format!("pod-{i}"))));
    let login = FakeInhibitor::holding(Duration::from_secs(40));
    let progress = ProgressSender::new();
    let policy = Policy::from_periods(Duration::from_secs(30), Duration::from_secs(10)).unwrap();
    let file = Arc::new(Watched(RecordFile::in_directory(directory.path()), OnceLock::new()));
    let mut parts = ShutdownParts::new(
        Arc::new(killer.clone()),
        Arc::new(login.clone()),
        policy,
        WallClock::fixed("2026-11-20T03:44:00Z".parse().unwrap()),
        BootClock::new(Duration::default),
        "boot",
    );
    parts.reports = Arc::new(ReportStore::new(directory.path()));
    parts.records = vec![Arc::clone(&file) as Arc<dyn RecordStore>];
    parts.progress = progress.clone();
    let controller = ShutdownController::new(parts);
    let running = tokio::spawn(controller.run(CancellationToken::new()));
    tokio::task::yield_now().await;
    let signal = Instant::now();
    login.prepare();
    let mut steps = progress.subscribe();
    let released = steps.wait_for(|progress| progress.phase == ProgressPhase::Released);
    timeout(Duration::from_secs(60), released).await.unwrap().unwrap();
    running.abort();
    let calls = killer.calls();
    assert_eq!(calls.len(), pods);
    let first = calls.iter().map(|call| call.at).min().unwrap();
    match file.1.get() {
        Some((kept, of)) if *kept <= first => assert_eq!(*of, pods),
        // A busy disk may take longer than a run waits for it.
        kept => assert!(first - signal >= PATIENCE, "{kept:?}, and {first:?} the first is asked"),
    }
    first - signal
}

// The time is printed, not asserted, because the machine may be busy.
#[tokio::test(flavor = "multi_thread")]
async fn the_record_is_on_disk_before_the_first_pod_is_asked() {
    for pods in [10, 100, 1000] {
        let mut times = Vec::new();
        for _ in 0..9 {
            times.push(first_request(pods).await);
        }
        times.sort_unstable();
        println!("{pods} pods: signal to first request {:?} (median of 9)", times[4]);
    }
}
