//! Asks the API server to stop a pod: first an eviction, then a deletion, and another deletion whenever the grace
//! period becomes shorter than the one that was sent, unless that costs hooks while the node goes down: then winddown stops
//! the containers itself.

use super::*;
use crate::api_outage::patience;
use winddown_api_client::node_pods::RefusedRequest;
use winddown_api_client::refusal::{self, Refusal};
use winddown_shared::{Retries, Retry, seconds_up};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the last eviction may take to be answered.
const LAST_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Added before rounding down to the API's whole seconds, to make up for time that has just passed.
const ON_THE_WAY: Duration = Duration::from_millis(250);
/// A shortened grace period is sent only if it is shorter by at least this.
const WORTH_TELLING: Duration = Duration::from_secs(1);

/// What to do after an eviction was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskStep {
    /// Nothing: the pod does not exist.
    Gone,
    /// Retry, because the server refused: not before this time, if it says so.
    Refused(Option<Duration>),
    /// Retry, because a policy or a webhook refused: while the node stays up, until it agrees.
    Denied,
    /// Retry, because the server did not answer, or not for good.
    Unanswered,
    /// Delete the pod: evictions do not work here.
    Delete,
}

pub(super) fn after_refusal(refused: &RefusedRequest) -> AskStep {
    match refused.refusal {
        refusal if refusal.is_gone() => AskStep::Gone,
        _ if refused.is_denied() => AskStep::Denied,
        // What it needs fails, such as its storage.
        Refusal::Busy { after: None } if fails(refused) => AskStep::Unanswered,
        // A disruption budget refused, or the server is busy.
        Refusal::Busy { after } => AskStep::Refused(after),
        Refusal::NoAnswer | Refusal::Conflict => AskStep::Unanswered,
        _ => AskStep::Delete,
    }
}

/// How long the API server is asked to consent to a pod's eviction.
struct EvictionAttempts {
    /// When it is asked for the last time.
    deadline: Instant,
    /// Whether a policy refuses, as the newest answer says.
    is_denied: bool,
    refusals: Retries,
    silences: Retries,
}

/// What is said of a pod that the API server never evicts.
const SEVERAL_BUDGETS: &str = "the API server evicts no pod that more than one disruption budget selects, and it was \
                               deleted without consent";

/// What is said of a pod whose eviction was refused for too long.
const DELETED: &str = ", and it was deleted without consent";

/// Says of a pod that it is deleted because its eviction is refused for good.
fn give_up(pod: &Pod, refused: &RefusedRequest, request: &StopRequest) -> Option<Instant> {
    let remark = match &refused.source {
        Some(kube::Error::Api(status)) if refusal::has_several_budgets(status) => {
            SEVERAL_BUDGETS.to_owned()
        }
        _ => {
            let why = why_refused(refused);
            format!("its eviction was refused, and it was deleted without consent: {why}")
        }
    };
    tracing::warn!(pod = %pod.pod_ref(), "{remark}");
    request.remark(remark);
    None
}

/// Whether the request has no answer. A conflict is one.
fn is_silence(step: AskStep, refused: &RefusedRequest) -> bool {
    step == AskStep::Unanswered && refused.refusal != Refusal::Conflict
}

/// Whether the API server says that it fails (5xx).
fn fails(refused: &RefusedRequest) -> bool {
    matches!(&refused.source, Some(kube::Error::Api(status)) if status.code >= 500)
}

fn why_refused(refused: &RefusedRequest) -> String {
    refused.source.as_ref().map_or_else(|| refused.to_string(), refusal::text)
}

fn log_refusal(pod: &Pod, refused: &RefusedRequest, deadline: Option<Instant>) {
    let why = why_refused(refused);
    let Some(deadline) = deadline else {
        return tracing::warn!(pod = %pod.pod_ref(), "eviction refused, asking until it is allowed: {why}");
    };
    tracing::info!(
        pod = %pod.pod_ref(),
        "eviction refused, deleting in {} s: {why}",
        deadline.saturating_duration_since(Instant::now()).as_secs()
    );
}

/// What refused an eviction: the budget that the API server names, the policy in its own words, or the server itself if
/// it is busy.
fn who_refused(refused: &RefusedRequest) -> String {
    if refused.is_denied() {
        return format!("the API server ({})", why_refused(refused));
    }
    let Some(kube::Error::Api(status)) = &refused.source else { return "the API server".into() };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let mut named = causes.filter(|cause| cause.reason == "DisruptionBudget").map(|cause| {
        let words = cause.message.strip_prefix("The disruption budget ");
        words.and_then(|words| words.split(' ').next())
    });
    match named.next() {
        Some(Some(name)) => format!("the disruption budget {name}"),
        Some(None) => "its disruption budget".into(),
        None => "the API server".into(),
    }
}

/// A grace period in the API's whole seconds. Zero would remove the object before the kubelet has stopped the pod.
fn whole(left: Duration) -> Duration {
    Duration::from_secs((left + ON_THE_WAY).as_secs().max(1))
}

/// Waits for the answer to a request that is sent now; the wait for a free slot, which says nothing about the API
/// server, is over.
pub(super) async fn answer<T>(
    request: impl Future<Output = Result<T, RefusedRequest>>,
    until: Instant,
    what: &'static str,
) -> Result<T, RefusedRequest> {
    RefusedRequest::within(until.saturating_duration_since(Instant::now()), what, request).await
}

// === impl EvictionAttempts ===

impl EvictionAttempts {
    fn until(deadline: Instant) -> Self {
        let (refusals, silences) = (Retry::BUDGET.delays(), Retry::EVICTION.delays());
        Self { deadline, is_denied: false, refusals, silences }
    }

    /// Whether the pod stays until a policy agrees, and has its whole grace then. `kubectl drain` asks budgets so.
    fn is_kept(&self, is_going_down: bool) -> bool {
        self.is_denied && !is_going_down
    }

    /// How long to wait before the next eviction; `None` if no other is sent.
    fn after(&mut self, step: AskStep, is_going_down: bool, now: Instant) -> Option<Duration> {
        self.is_denied = step == AskStep::Denied || (self.is_denied && step == AskStep::Unanswered);
        if self.is_kept(is_going_down) {
            self.deadline = self.deadline.max(now + 2 * REQUEST_TIMEOUT);
        }
        let (retries, asked) = match step {
            AskStep::Gone | AskStep::Delete => return None,
            AskStep::Refused(asked) => (&mut self.refusals, asked),
            AskStep::Denied => (&mut self.refusals, None),
            AskStep::Unanswered => (&mut self.silences, None),
        };
        // The last attempt is made exactly at the deadline.
        retries.after(asked, self.deadline.saturating_duration_since(now))
    }
}

// === impl StopCore ===

impl<A: EndPods, N: KubeletHost> StopCore<A, N> {
    /// Makes all necessary requests, but none while winddown runs hooks that a kubelet that learns of them would run too.
    /// Never returns: another task notices that the pod is gone.
    pub(super) async fn ask(&self, pod: &Pod, grace: &Grace, request: &StopRequest) -> Infallible {
        loop {
            request.until(|asked| !asked.runs_hooks).await;
            tokio::select! {
                biased;
                () = request.until(|asked| asked.runs_hooks) => {}
                never = self.make_requests(pod, grace.clone(), request) => match never {},
            }
        }
    }

    async fn make_requests(
        &self,
        pod: &Pod,
        mut grace: Grace,
        request: &StopRequest,
    ) -> Infallible {
        if self.known.look(pod.uid()).is_none_or(|view| view.gone)
            || facts::has_ended(pod)
            || self.stops_as_found(pod.uid())
        {
            return pending().await;
        }
        if facts::has_completed(pod) {
            request.accepted();
            return pending().await;
        }
        let mut ends = self.deletion_ends(pod);
        let begun = Instant::now();
        if ends.is_none() {
            ends = self.responders_end(pod, &mut grace, request).await;
        }
        let spent = begun.elapsed();
        if ends.is_none() {
            let is_evicted = self.is_evicted_first(pod).await;
            if is_evicted {
                ends = self.evict(pod, &mut grace, spent, request).await;
            }
        }
        let mut going_down = self.config.going_down.clone();
        loop {
            going_down.mark_unchanged();
            if ends.is_some() {
                request.accepted();
            }
            let would_end = Instant::now() + self.told(pod, &grace);
            let is_sooner = ends.is_none_or(|ends| would_end + WORTH_TELLING <= ends);
            // A kubelet that learns of a shorter grace period cuts the hooks that it runs, and begins them again.
            let costs_hooks = ends.is_some() && facts::has_pre_stop(pod);
            let is_untold = is_sooner && costs_hooks && self.is_going_down();
            request.untold(is_untold);
            if is_sooner && !is_untold {
                ends = Some(self.delete(pod, &grace, request).await);
                continue;
            }
            tokio::select! {
                () = grace.changed() => {}
                Ok(()) = going_down.changed() => {}
            }
        }
    }

    /// Whether an eviction may differ from a deletion, because of a budget or the pod's controller.
    async fn is_evicted_first(&self, pod: &Pod) -> bool {
        !self.is_going_down()
            || !facts::is_replaced_alike(pod)
            || self.budgets.may_object(&self.api, pod, |answer| self.note_answer(answer)).await
    }

    /// When the grace period of an accepted deletion is over.
    pub(super) fn deletion_ends(&self, pod: &Pod) -> Option<Instant> {
        let newest = self.known.look(pod.uid()).map(|view| view.pod);
        let left =
            facts::deletion_left(newest.as_ref().unwrap_or(pod), self.config.api_clock.now())?;
        Some(Instant::now() + left)
    }

    /// Evicts the pod. Returns when its grace period is over; `None` if the pod has to be deleted instead. `spent`: how
    /// much of the time for consent has already passed.
    async fn evict(
        &self,
        pod: &Pod,
        grace: &mut Grace,
        spent: Duration,
        request: &StopRequest,
    ) -> Option<Instant> {
        let mut turn = self.turns.acquire().await;
        let (begun, whole) = (Instant::now(), self.told(pod, grace));
        let time = self.config.consent(grace.remaining()).saturating_sub(spent);
        let mut attempts = EvictionAttempts::until(begun + time);
        let mut refused_by: Option<String> = None;
        loop {
            let is_kept = attempts.is_kept(self.is_going_down());
            let told = if is_kept { whole } else { self.told(pod, grace) };
            let sent = Instant::now();
            let latest = attempts.deadline.max(sent + LAST_ANSWER_TIMEOUT);
            let until = latest.min(sent + self.answer_time(grace));
            let answer = self.evict_once(pod, told, until).await;
            drop(turn);
            let Err(refused) = answer else {
                request.remark_refusals(refused_by.as_deref(), sent - begun, "");
                if is_kept {
                    *grace = grace.clone().at_least(told);
                }
                return Some(sent + told);
            };
            let step = after_refusal(&refused);
            request.unanswered(is_silence(step, &refused).then_some(sent));
            match step {
                AskStep::Gone => return self.vanished(pod).await,
                AskStep::Delete => return give_up(pod, &refused, request),
                AskStep::Refused(_) | AskStep::Denied | AskStep::Unanswered => {}
            }
            let is_going_down = self.is_going_down();
            let again = attempts.after(step, is_going_down, Instant::now());
            if refused_by.is_none() && step != AskStep::Unanswered {
                refused_by = Some(who_refused(&refused));
                let deadline = Some(attempts.deadline).filter(|_| !attempts.is_kept(is_going_down));
                log_refusal(pod, &refused, deadline);
            }
            if let Some(ends) = self.deletion_ends(pod) {
                return Some(ends);
            }
            let Some(delay) = again else {
                request.remark_refusals(refused_by.as_deref(), begun.elapsed(), DELETED);
                return None;
            };
            self.pause(delay, grace, &mut attempts.deadline).await;
            turn = self.turns.acquire().await;
        }
    }

    async fn evict_once(
        &self,
        pod: &Pod,
        grace: Duration,
        until: Instant,
    ) -> Result<(), RefusedRequest> {
        let sent = Instant::now();
        let answer = answer(self.api.evict(pod.pod_ref(), grace), until, "evict the pod").await;
        match &answer {
            Ok(()) => self.outage.worked(),
            Err(refused) => self.note(refused, sent),
        }
        answer
    }

    /// Waits for this long, or until the grace period is shortened, which leaves less time for consent. Cancel-safe.
    pub(super) async fn pause(&self, delay: Duration, grace: &mut Grace, deadline: &mut Instant) {
        tokio::select! {
            () = sleep(delay) => {}
            () = grace.changed() => {
                let consent = self.config.consent(grace.remaining());
                *deadline = (*deadline).min(Instant::now() + consent);
            }
        }
    }

    /// Deletes the pod. Returns when its grace period is over.
    async fn delete(&self, pod: &Pod, grace: &Grace, request: &StopRequest) -> Instant {
        let mut retries = Retry::DELETION.backoff();
        loop {
            let turn = self.turns.acquire().await;
            request.deleting();
            let left = self.told(pod, grace);
            let now = Instant::now();
            let deleted = self.api.delete(pod.pod_ref(), left);
            let until = now + self.answer_time(grace);
            let answer = answer(deleted, until, "delete the pod").await;
            drop(turn);
            let refused = match answer {
                Ok(()) => {
                    self.outage.worked();
                    request.denied(false);
                    return now + left;
                }
                Err(refused) => refused,
            };
            if refused.refusal.is_gone() {
                return self.vanished(pod).await;
            }
            self.note(&refused, now);
            request.denied(refused.is_denied());
            let (pod_ref, why) = (pod.pod_ref(), why_refused(&refused));
            if refused.refusal != Refusal::NoAnswer && request.deletion_refused(&why) {
                tracing::warn!(pod = %pod_ref, "cannot delete the pod, retrying: {why}");
            } else {
                tracing::debug!(pod = %pod_ref, error = refusal::chain(&refused), "the pod is not deleted yet");
            }
            sleep(retries.after_failure(refused.refusal.retry_after())).await;
        }
    }

    /// The grace period that the API server is told.
    fn told(&self, pod: &Pod, grace: &Grace) -> Duration {
        let left = grace.remaining();
        // Such a pod's containers are killed on time by winddown itself, and must not be by the kubelet before.
        let is_killed_on_time = self.is_going_down() && !facts::has_pre_stop(pod);
        if is_killed_on_time { Duration::from_secs(seconds_up(left).max(1)) } else { whole(left) }
    }

    /// Maximum duration of one request. While the node goes down, a server that does not answer must be noticed before
    /// the pod loses its grace period.
    pub(super) fn answer_time(&self, grace: &Grace) -> Duration {
        if self.is_going_down() {
            patience(grace.remaining()).min(REQUEST_TIMEOUT)
        } else {
            REQUEST_TIMEOUT
        }
    }

    /// Records the failure of a request that was sent at that time.
    pub(super) fn note(&self, refused: &RefusedRequest, sent: Instant) {
        match refused.refusal {
            Refusal::NoAnswer => self.outage.failed(sent),
            _ => self.outage.worked(),
        }
    }

    /// Records the answer to a request that was sent just now.
    pub(super) fn note_answer(&self, answer: Result<(), &RefusedRequest>) {
        match answer {
            Ok(()) => self.outage.worked(),
            Err(refused) => self.note(refused, Instant::now()),
        }
    }

    /// Handles a pod that the API server no longer has, before the watch reports it.
    async fn vanished<T>(&self, pod: &Pod) -> T {
        self.outage.worked();
        if self.known.gone(pod.uid()) {
            self.known.publish();
        }
        pending().await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(status: serde_json::Value) -> RefusedRequest {
        let status = serde_json::from_value(status).unwrap();
        RefusedRequest::of("evict the pod", kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn an_eviction_that_is_not_granted_is_asked_for_again_or_given_up() {
        let secs = Duration::from_secs;
        let right = r#"pods "a" is forbidden: User "n1" cannot create resource "pods/eviction" in API group """#;
        let terminating = json!({"causes": [{"reason": "NamespaceTerminating"}]});
        let hook = r#"admission webhook "db" denied the request: the primary cannot be moved"#;
        let down =
            r#"Internal error occurred: failed calling webhook "db": failed to call webhook: EOF"#;
        let several = "This pod has more than one PodDisruptionBudget";
        for (status, wanted) in [
            (json!({"code": 404, "reason": "NotFound"}), AskStep::Gone),
            (json!({"code": 422, "message": "UID in precondition"}), AskStep::Gone),
            (json!({"code": 429}), AskStep::Refused(None)),
            (
                json!({"code": 429, "details": {"retryAfterSeconds": 7}}),
                AskStep::Refused(Some(secs(7))),
            ),
            (json!({"code": 409, "reason": "Conflict"}), AskStep::Unanswered),
            (json!({"code": 401}), AskStep::Unanswered),
            (json!({"code": 403, "message": right}), AskStep::Delete),
            (json!({"code": 403, "details": terminating}), AskStep::Delete),
            (json!({"code": 405}), AskStep::Delete),
            (json!({"code": 422, "reason": "Invalid", "message": "a field"}), AskStep::Delete),
            (json!({"code": 500, "message": several}), AskStep::Delete),
            (json!({"code": 403, "message": hook}), AskStep::Denied),
            (json!({"code": 400, "message": hook}), AskStep::Denied),
            (json!({"code": 422, "reason": "Invalid", "message": hook}), AskStep::Denied),
            (json!({"code": 429, "message": hook}), AskStep::Denied),
            (json!({"code": 500, "message": hook}), AskStep::Denied),
            (json!({"code": 404, "reason": "NotFound", "message": hook}), AskStep::Denied),
            (json!({"code": 500, "message": down}), AskStep::Denied),
            (json!({"code": 500, "message": "etcdserver: request timed out"}), AskStep::Unanswered),
        ] {
            assert_eq!(after_refusal(&refused(status.clone())), wanted, "{status}");
        }
        let silent =
            RefusedRequest { what: "evict the pod", refusal: Refusal::NoAnswer, source: None };
        assert_eq!(after_refusal(&silent), AskStep::Unanswered);
    }

    #[test]
    fn a_pod_is_evicted_until_the_time_for_consent_is_over_and_longer_while_a_policy_keeps_it() {
        use AskStep::*;
        let (now, secs) = (Instant::now(), Duration::from_secs);
        let (up, down) = (false, true);
        for (was_denied, step, is_going_down, left, tenths, is_kept) in [
            (false, Refused(None), up, 10, Some(10), false),
            (false, Refused(Some(secs(4))), up, 10, Some(40), false),
            (false, Refused(Some(secs(20))), up, 10, Some(100), false),
            (false, Refused(None), up, 0, None, false),
            (false, Unanswered, up, 10, Some(1), false),
            (false, Unanswered, up, 0, None, false),
            (false, Denied, down, 10, Some(10), false),
            (false, Denied, down, 0, None, false),
            (false, Denied, up, 0, Some(10), true),
            (true, Unanswered, up, 0, Some(1), true),
            (true, Unanswered, down, 0, None, false),
            (true, Refused(None), up, 0, None, false),
            (false, Gone, up, 10, None, false),
            (false, Delete, up, 10, None, false),
        ] {
            let deadline = now + secs(left);
            let mut attempts =
                EvictionAttempts { is_denied: was_denied, ..EvictionAttempts::until(deadline) };
            let delay = attempts.after(step, is_going_down, now);
            let rounded = delay.map(|delay| delay.as_millis().div_ceil(100));
            assert_eq!(rounded, tenths, "{was_denied} {step:?} {is_going_down} {left}");
            assert_eq!(attempts.is_kept(is_going_down), is_kept, "{was_denied} {step:?} {left}");
            let wanted = if is_kept { deadline.max(now + secs(10)) } else { deadline };
            assert_eq!(attempts.deadline, wanted, "{was_denied} {step:?} {left}");
        }
    }

    #[test]
    fn a_grace_is_told_in_whole_seconds_and_never_as_zero() {
        for (left, wanted) in
            [(0, 1), (300, 1), (1600, 1), (29_740, 29), (29_990, 30), (30_000, 30)]
        {
            assert_eq!(whole(Duration::from_millis(left)), Duration::from_secs(wanted), "{left}");
        }
    }
}
