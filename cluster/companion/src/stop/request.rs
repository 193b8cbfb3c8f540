//! How far the stop of one pod has come.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use winddown_shared::display::in_seconds;
use winddown_shared::{Grace, LateRemark, Mutex, StoppedContainers};

use crate::api_outage::patience;

/// How long after its request the kubelet learns of a deletion, and so how much later it kills.
const KUBELET_LAG: Duration = Duration::from_millis(500);
/// How long containers that winddown stops beside the kubelet may take to be killed, on a busy machine.
const OWN_KILL_LAG: Duration = Duration::from_secs(2);

/// When the pod was asked to stop, and how.
#[derive(Debug, Default)]
pub(crate) struct StopRequest {
    asked: watch::Sender<StopProgress>,
    /// Remarks for users, in order.
    remarks: Mutex<Vec<String>>,
    /// What the API server said when it first refused to delete the pod.
    refusal: Mutex<Option<String>>,
    /// What becomes of the pod when it has stopped.
    pub(super) afterwards: LateRemark,
}

/// What was asked of whom.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StopProgress {
    /// When the API server accepted a request.
    pub(super) accepted: Option<Instant>,
    /// When the API server told the pod's end to those that watch its pods, as the kubelet does.
    pub(super) told: Option<Instant>,
    /// When the API server was first asked to delete the pod, whatever else may object.
    pub(super) deleting: Option<Instant>,
    /// When the first eviction was sent since the API server last answered one.
    pub(super) unanswered: Option<Instant>,
    /// When the container runtime was first asked to stop the containers.
    pub(super) stopping: Option<Instant>,
    /// When that was first done because the kubelet does not.
    pub(super) instead: Option<Instant>,
    /// Whether the container runtime has answered such a request.
    pub(super) is_instead: bool,
    /// Whether winddown runs the pod's hooks, and the kubelet, which would run them too, is not held.
    pub(super) runs_hooks: bool,
    /// Whether the time is over in which a stop waits for the API server to accept a deletion, and to tell an end.
    pub(super) is_late: bool,
    /// Whether it refuses to delete this pod, as its newest answer says, and not for want of a right.
    pub(super) is_denied: bool,
    /// Whether the kubelet was told a later end than that of the grace period.
    pub(super) is_untold: bool,
    /// Whether just the time for the stop signal is left of the grace period.
    pub(super) is_last_call: bool,
    /// Whether the grace period is over, and a kubelet that was told would have ended the pod; if it was told a later
    /// end, whether just the time for the stop signal is left.
    pub(super) is_over: bool,
}

impl StopProgress {
    /// Whether the kubelet can be relied on to learn of the pod's end. One that runs hooks may have learnt of it as soon as
    /// it is accepted; of any other it has to have been told, before it sees an exit and starts the container again.
    pub(super) fn reaches_kubelet(&self, has_hooks: bool) -> bool {
        self.told.is_some() || (has_hooks && self.accepted.is_some())
    }

    /// Since when the API server could have accepted the end, as far as nothing else objects.
    fn open_since(&self) -> Option<Instant> {
        self.deleting.into_iter().chain(self.accepted).chain(self.unanswered).min()
    }

    /// Whether anyone was asked to stop the containers.
    pub(super) fn is_asked(&self) -> bool {
        self.accepted.is_some() || self.stopping.is_some()
    }

    /// When the containers were first asked to stop, as far as that can be known here. A kubelet runs their hooks before,
    /// which the grace period includes; it may begin as soon as the request is accepted.
    pub(super) fn signalled_at(&self, has_hooks: bool) -> Option<Instant> {
        let by_kubelet = self.told.filter(|_| !has_hooks).or(self.accepted);
        by_kubelet.into_iter().chain(self.stopping).min()
    }
}

impl StopRequest {
    /// What has been asked so far.
    pub(super) fn now(&self) -> StopProgress {
        *self.asked.borrow()
    }

    pub(super) fn watch(&self) -> watch::Receiver<StopProgress> {
        self.asked.subscribe()
    }

    /// Resolves when that is so. Cancel-safe.
    pub(super) async fn until(&self, is_so: impl FnMut(&StopProgress) -> bool) {
        // The sender lives as long as `self`.
        let _ = self.asked.subscribe().wait_for(is_so).await;
    }

    /// Records that the API server has accepted a request. The first time counts.
    pub(super) fn accepted(&self) {
        self.first(|asked| &mut asked.accepted);
    }

    /// Records that the API server has told the pod's end.
    pub(super) fn told(&self) {
        self.first(|asked| &mut asked.told);
    }

    /// Records that the API server is asked to delete the pod. The first time counts.
    pub(super) fn deleting(&self) {
        self.first(|asked| &mut asked.deleting);
    }

    /// Records that the containers are stopped through the container runtime. The first time counts.
    pub(super) fn stopping(&self) {
        self.first(|asked| &mut asked.stopping);
    }

    /// Records that they are stopped instead of by the kubelet. Returns whether this is the first time.
    pub(super) fn instead(&self) -> bool {
        self.first(|asked| &mut asked.instead)
    }

    /// Records that the container runtime has answered such a request.
    pub(super) fn stopped_instead(&self) {
        self.asked.send_modify(|asked| asked.is_instead = true);
    }

    /// Records whether winddown runs the pod's hooks beside a kubelet that would run them too.
    pub(super) fn runs_hooks(&self, runs: bool) {
        self.asked.send_modify(|asked| asked.runs_hooks = runs);
    }

    /// Records when the time of the API server and of the kubelet is over. Never returns.
    pub(super) async fn keep_time(&self, mut grace: Grace) -> Infallible {
        let (mut rest, own) = (grace.clone(), grace.clone());
        let late = async {
            loop {
                let since = self.now().open_since();
                tokio::select! {
                    never = self.grow_late(since, &mut rest) => match never {},
                    () = self.until(|asked| asked.open_since() != since) => {}
                }
                self.asked.send_modify(|asked| asked.is_late = false);
            }
        };
        let over = async {
            loop {
                let (end, now) = (grace.kill_at(), self.now());
                let is_own = now.stopping.is_some();
                let last_call = end.checked_sub(Grace::SHORTEST).filter(|_| now.is_untold);
                let lag = if is_own { OWN_KILL_LAG } else { KUBELET_LAG };
                let is_other = |asked: &StopProgress| {
                    asked.is_untold != now.is_untold || asked.stopping.is_some() != is_own
                };
                tokio::select! {
                    () = sleep_until(last_call.unwrap_or(end + lag)) => break,
                    () = grace.changed() => {}
                    () = self.until(is_other) => {}
                }
            }
            self.asked.send_modify(|asked| asked.is_over = true);
        };
        tokio::join!(late, over, self.last_call(own));
        std::future::pending().await
    }

    /// Records when just the time for the stop signal is left.
    async fn last_call(&self, mut grace: Grace) {
        loop {
            let left = Grace::signal_time(grace.remaining());
            let at = grace.kill_at().checked_sub(left).unwrap_or_else(Instant::now);
            tokio::select! {
                () = sleep_until(at) => break,
                () = grace.changed() => {}
            }
        }
        self.asked.send_modify(|asked| asked.is_last_call = true);
    }

    /// Records when the time of an API server that could have accepted the end since then is over. Never returns.
    async fn grow_late(&self, since: Option<Instant>, rest: &mut Grace) -> Infallible {
        let Some(since) = since else { return std::future::pending().await };
        let mut late_at = since + patience(rest.kill_at().saturating_duration_since(since));
        loop {
            tokio::select! {
                () = sleep_until(late_at) => break,
                () = rest.changed() => {
                    late_at = late_at.min(Instant::now() + patience(rest.remaining()));
                }
            }
        }
        self.asked.send_modify(|asked| asked.is_late = true);
        std::future::pending().await
    }

    /// Records that an eviction that was sent then is not answered; with `None`, that the newest is.
    pub(super) fn unanswered(&self, sent: Option<Instant>) {
        self.asked.send_if_modified(|asked| {
            let since = sent.map(|sent| asked.unanswered.unwrap_or(sent));
            std::mem::replace(&mut asked.unanswered, since) != since
        });
    }

    /// Records whether the API server refuses to delete this pod.
    pub(super) fn denied(&self, is_denied: bool) {
        self.asked.send_modify(|asked| asked.is_denied = is_denied);
    }

    /// Records whether the kubelet was told a later end than that of the grace period.
    pub(super) fn untold(&self, is_untold: bool) {
        self.asked.send_modify(|asked| asked.is_untold = is_untold);
    }

    /// Records that the API server refused to delete the pod. Returns whether this is the first time.
    pub(super) fn deletion_refused(&self, text: &str) -> bool {
        let mut refusal = self.refusal.lock();
        let is_first = refusal.is_none();
        refusal.get_or_insert_with(|| text.to_owned());
        is_first
    }

    /// What the API server said when it first refused to delete the pod.
    pub(super) fn refusal(&self) -> Option<String> {
        self.refusal.lock().clone()
    }

    /// Adds a remark for users.
    pub(super) fn remark(&self, text: String) {
        self.remarks.lock().push(text);
    }

    /// Remarks who refused the pod's eviction for so long, if anyone did, and what was done `then`.
    pub(super) fn remark_refusals(&self, by: Option<&str>, time: Duration, then: &str) {
        if let Some(by) = by {
            self.remark(format!("{by} refused for {}{then}", in_seconds(time)));
        }
    }

    /// Remarks which preStop hooks did not run, and that the container runtime did not answer.
    pub(super) fn remark_stopped(&self, stopped: &StoppedContainers) {
        if stopped.without_runtime {
            self.remark(
                "the container runtime did not answer: the pod's processes were signalled without it"
                    .to_owned(),
            );
        }
        for (names, what) in [
            (&stopped.without_hook, "did not run"),
            (&stopped.hook_begun_before, "had begun before, and did not run again"),
        ] {
            if !names.is_empty() {
                self.remark(format!("the preStop hook of {} {what}", names.join(", ")));
            }
        }
    }

    pub(super) fn into_remark(self) -> Option<Arc<str>> {
        let remarks = self.remarks.into_inner();
        (!remarks.is_empty()).then(|| remarks.join("; ").into())
    }

    fn first(&self, field: impl FnOnce(&mut StopProgress) -> &mut Option<Instant>) -> bool {
        self.asked.send_if_modified(|asked| {
            let field = field(asked);
            let is_first = field.is_none();
            field.get_or_insert_with(Instant::now);
            is_first
        })
    }
}
