//! Stores reports, and keeps those that the disk refuses until it takes them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;
use winddown_shared::{Backoff, Mutex, error_chain};

use crate::{ReportSink, ShutdownReport};

/// Between attempts to store a report.
const STORE_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// The reports that are not stored yet, of each run the newest. A disk that was full may have room later, and the agent may
/// live for weeks: so they are retried until they are stored or the agent exits.
#[derive(Clone)]
pub struct UnstoredReports(Arc<ReportKeeper>);

struct ReportKeeper {
    sink: Arc<dyn ReportSink>,
    waiting: Mutex<WaitingReports>,
    /// Writes follow one another, or an older report of a run could replace a newer one.
    turn: tokio::sync::Mutex<()>,
    problem: watch::Sender<Option<String>>,
}

#[derive(Default)]
struct WaitingReports {
    reports: Vec<Arc<ShutdownReport>>,
    is_retried: bool,
}

impl UnstoredReports {
    /// None yet. Reports are stored in `sink`.
    pub fn new(sink: Arc<dyn ReportSink>) -> Self {
        let (waiting, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Self(Arc::new(ReportKeeper { sink, waiting, turn, problem: watch::Sender::default() }))
    }

    /// Why the last attempt did not store all of them; none if it did.
    pub fn problem(&self) -> watch::Receiver<Option<String>> {
        self.0.problem.subscribe()
    }

    /// Stores `report` in place of an earlier one of its run, also if the returned task is dropped: a disk may hang, and a
    /// write goes on.
    ///
    /// # Errors
    /// The task returns why it was not stored. It is retried in the background.
    pub fn store(&self, report: ShutdownReport) -> JoinHandle<Result<(), String>> {
        {
            let mut waiting = self.0.waiting.lock();
            waiting.reports.retain(|other| other.id() != report.id());
            waiting.reports.push(Arc::new(report));
        }
        let this = self.clone();
        tokio::spawn(async move {
            let stored = this.attempt().await;
            if stored.is_err() && !std::mem::replace(&mut this.0.waiting.lock().is_retried, true) {
                tokio::spawn(this.retry());
            }
            stored
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.waiting.lock().reports.is_empty()
    }

    /// Tries once to store each report. Spawn this: a disk may hang, and a write goes on.
    ///
    /// # Errors
    /// Returns why a report is not stored.
    pub(crate) async fn attempt(&self) -> Result<(), String> {
        let _turn = self.0.turn.lock().await;
        let reports = self.0.waiting.lock().reports.clone();
        let mut stored = Ok(());
        for report in reports {
            let (sink, written) = (Arc::clone(&self.0.sink), Arc::clone(&report));
            match spawn_blocking(move || sink.keep(&written)).await {
                Ok(Ok(())) => {
                    self.0.waiting.lock().reports.retain(|other| !Arc::ptr_eq(other, &report));
                }
                Ok(Err(error)) => stored = Err(error_chain(&error)),
                Err(_) => stored = Err("the attempt panicked, which is a bug".to_owned()),
            }
        }
        self.0.problem.send_replace(stored.clone().err());
        stored
    }

    async fn retry(self) {
        let mut backoff = STORE_BACKOFF;
        loop {
            sleep(backoff.next_delay()).await;
            let _ = self.attempt().await;
            let mut waiting = self.0.waiting.lock();
            if waiting.reports.is_empty() {
                waiting.is_retried = false;
                tracing::info!("the report is stored now");
                return;
            }
        }
    }
}
