//! A fake agent that records what it is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::{mpsc, watch};
use winddown_shared::Mutex;

use crate::api::{
    Check, ConfigView, DrainEvent, DrainRequest, ErrorCode, EvictionPlan, Health, KillAnswer,
    KillBody, LogQuery, NodeStatus, NoticeBody, PodStatus, PreemptionCase, PreemptionPlan,
    PressureStatus, ReleaseAnswer, ReportEntry, ReportList, ShutdownPlan, StartPlan, Status,
    WithdrawAnswer,
};
use crate::{ActApi, ApiError, HealthApi, LogBlocks, PlanApi, ReportApi, StatusApi};

pub(super) struct FakeAgent {
    changes: watch::Sender<u64>,
    asked_to_watch: AtomicUsize,
    /// Whether the node has changed and nothing has said so.
    pub(super) unseen: AtomicBool,
    /// The size of a log, if it is larger than what it says.
    pub(super) log_bytes: AtomicUsize,
    pub(super) status: Mutex<Status>,
    pub(super) ready: Mutex<Health>,
    pub(super) kills: Mutex<Vec<String>>,
    /// Held by every kill of a pod named `stuck`: such a kill is never answered.
    pub(super) stuck: Arc<()>,
    pub(super) notice: Mutex<Option<NoticeBody>>,
    pub(super) drains: Mutex<Vec<mpsc::UnboundedSender<DrainEvent>>>,
}

impl FakeAgent {
    pub(super) fn new() -> Self {
        let node = NodeStatus { name: "edge-1".to_owned(), ..NodeStatus::default() };
        let mut status = Status { node, ..Status::default() };
        for name in ["web-edge-1", "stuck"] {
            status.pods.push(PodStatus {
                namespace: "default".to_owned(),
                name: name.to_owned(),
                uid: format!("uid-{name}"),
                ..PodStatus::default()
            });
        }
        Self {
            changes: watch::Sender::new(0),
            asked_to_watch: AtomicUsize::new(0),
            unseen: AtomicBool::new(false),
            log_bytes: AtomicUsize::new(0),
            status: Mutex::new(status),
            ready: Mutex::default(),
            kills: Mutex::default(),
            stuck: Arc::default(),
            notice: Mutex::default(),
            drains: Mutex::default(),
        }
    }
}

impl FakeAgent {
    /// Changes the node and notifies the watchers.
    pub(super) fn change(&self, change: impl FnOnce(&mut Status)) {
        let mut status = self.status.lock();
        change(&mut status);
        status.revision += 1;
        let revision = status.revision;
        drop(status);
        self.changes.send_replace(revision);
    }
}

#[cfg(test)]
impl FakeAgent {
    /// How often a watch was started.
    pub(super) fn asked_to_watch(&self) -> usize {
        self.asked_to_watch.load(Ordering::SeqCst)
    }

    /// The number of open watches.
    pub(super) fn watchers(&self) -> usize {
        self.changes.receiver_count()
    }
}

impl StatusApi for FakeAgent {
    async fn refresh(&self) {
        if self.unseen.swap(false, Ordering::SeqCst) {
            self.change(|status| status.node.uptime_seconds += 1);
        }
    }

    fn status(&self) -> Status {
        self.status.lock().clone()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.asked_to_watch.fetch_add(1, Ordering::SeqCst);
        self.changes.subscribe()
    }

    fn config(&self) -> ConfigView {
        ConfigView { file: "/c.yaml".to_owned(), yaml: "a: 1\n".to_owned(), warnings: Vec::new() }
    }

    fn metrics(&self) -> String {
        "winddown_inhibitor_held 1\n# EOF\n".to_owned()
    }
}

impl HealthApi for FakeAgent {
    fn health(&self) -> Health {
        Health { checks: vec![Check::passed("control-loop")] }
    }

    fn readiness(&self) -> Health {
        self.ready.lock().clone()
    }
}

impl PlanApi for FakeAgent {
    async fn shutdown_plan(&self, within: Option<Duration>) -> ShutdownPlan {
        ShutdownPlan {
            requested_seconds: within.map_or(40.0, |within| within.as_secs_f64()),
            ..Default::default()
        }
    }

    fn start_plan(&self) -> Result<StartPlan, ApiError> {
        Ok(StartPlan { group_timeout_seconds: 30.0, ..Default::default() })
    }

    fn preemption_plan(
        &self,
        manifest: Option<&[u8]>,
        strategy: Option<&str>,
    ) -> Result<PreemptionPlan, ApiError> {
        let strategy = strategy.unwrap_or("distance");
        if !["distance", "minimal"].contains(&strategy) {
            return Err(ApiError::new(
                ErrorCode::BadRequest,
                "strategy: there is no such strategy",
            ));
        }
        let mut plan = PreemptionPlan { strategy: strategy.to_owned(), ..Default::default() };
        let named = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        plan.pod = manifest.map(|text| PreemptionCase { pod: named(text), ..Default::default() });
        match &plan.pod {
            Some(case) if case.pod.is_empty() => {
                Err(ApiError::new(ErrorCode::BadRequest, "manifest: the file is empty"))
            }
            _ => Ok(plan),
        }
    }

    async fn eviction_plan(&self, signal: Option<&str>) -> Result<EvictionPlan, ApiError> {
        let conditions = vec!["MemoryPressure".to_owned()];
        let pressure = PressureStatus { conditions, ..Default::default() };
        let mut plan = EvictionPlan { pressure, ..Default::default() };
        plan.signal = signal.map(str::to_owned);
        Ok(plan)
    }
}

impl ActApi for FakeAgent {
    async fn kill(
        &self,
        namespace: &str,
        name: &str,
        body: KillBody,
    ) -> Result<KillAnswer, ApiError> {
        let mut pods = self.status().pods.into_iter();
        let known = pods.find(|pod| pod.namespace == namespace && pod.name == name);
        let Some(pod) = known.filter(|pod| body.uid.as_ref().is_none_or(|uid| *uid == pod.uid))
        else {
            let what = format!("pod {namespace}/{name} is not on this node");
            return Err(ApiError::new(ErrorCode::NotFound, what));
        };
        let asked = format!("{namespace}/{name} {:?}", body.grace_seconds);
        self.kills.lock().push(asked);
        if name == "stuck" {
            let _waits = Arc::clone(&self.stuck);
            std::future::pending::<()>().await;
        }
        Ok(KillAnswer {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: pod.uid,
            took_seconds: 1.5,
            ..KillAnswer::default()
        })
    }

    async fn release(&self, namespace: &str, name: &str) -> Result<ReleaseAnswer, ApiError> {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Ok(ReleaseAnswer { namespace, name, ..ReleaseAnswer::default() })
    }

    async fn drain(
        &self,
        request: DrainRequest,
    ) -> Result<mpsc::UnboundedReceiver<DrainEvent>, ApiError> {
        let mut drains = self.drains.lock();
        if !drains.is_empty() {
            let error = ApiError::new(ErrorCode::Conflict, "a drain is under way already");
            return Err(error.with_hint("`winddown status --watch` shows it"));
        }
        let (events, receiver) = mpsc::unbounded_channel();
        let seconds = request
            .timeout_seconds
            .map_or(40.0, |s| f64::from(u32::try_from(s).unwrap_or(u32::MAX)));
        let _ =
            events.send(DrainEvent::Started { groups: 1, pods: 2, seconds, pods_unknown: false });
        drains.push(events);
        Ok(receiver)
    }

    async fn give_notice(
        &self,
        body: NoticeBody,
    ) -> Result<mpsc::UnboundedReceiver<DrainEvent>, ApiError> {
        let seconds = body.in_seconds.unwrap_or_default();
        *self.notice.lock() = Some(body);
        self.drain(DrainRequest { timeout_seconds: Some(seconds), ..DrainRequest::default() }).await
    }

    async fn withdraw_notice(&self) -> WithdrawAnswer {
        let withdrawn = self.notice.lock().take().is_some();
        WithdrawAnswer { withdrawn, ..WithdrawAnswer::default() }
    }
}

impl ReportApi for FakeAgent {
    async fn reports(&self) -> Result<ReportList, ApiError> {
        let entry = ReportEntry { id: "r1".to_owned(), ..ReportEntry::default() };
        Ok(ReportList { reports: vec![entry], problems: Vec::new() })
    }

    async fn report(&self, id: &str) -> Result<serde_json::Value, ApiError> {
        match id {
            "r1" | "latest" => Ok(serde_json::json!({ "id": "r1", "outcome": "clean" })),
            id => Err(ApiError::new(ErrorCode::NotFound, format!("there is no report {id:?}"))),
        }
    }

    /// The log says what was asked for.
    async fn log(
        &self,
        namespace: &str,
        name: &str,
        query: LogQuery,
    ) -> Result<LogBlocks, ApiError> {
        if name == "starting" {
            tokio::time::sleep(LogQuery::START_TIMEOUT).await;
        }
        if name != "web-edge-1" {
            return Err(ApiError::new(ErrorCode::NotFound, format!("no pod {namespace}/{name}")));
        }
        let broken = std::io::Error::other("the disk is gone");
        let mut text = format!("{query:?}\n").into_bytes();
        // More than a socket's buffers hold.
        text.resize(text.len().max(self.log_bytes.load(Ordering::SeqCst)), b'.');
        let blocks = futures_util::stream::iter([Ok(text), Err(broken)]);
        // A container that is followed still runs.
        let more = futures_util::stream::pending().take(usize::from(query.follow));
        Ok(blocks.chain(more).boxed())
    }
}
