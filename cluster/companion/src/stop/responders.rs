//! Asks a pod's eviction responders to stop it, if the API server serves `EvictionRequest`.

use super::asking::{AskStep, after_refusal, answer};
use super::*;
use crate::eviction_requests::Responding;
use winddown_api_client::refusal;
use winddown_shared::Retry;
use winddown_shared::display::in_seconds;

impl<A: EndPods, N: KubeletHost> StopCore<A, N> {
    /// Lets the pod's responders stop it, within the time for disruption budgets. Returns when the grace period of the
    /// resulting deletion is over; `None` if there are no responders, or they did not delete the pod.
    pub(super) async fn responders_end(
        &self,
        pod: &Pod,
        grace: &mut Grace,
        request: &StopRequest,
    ) -> Option<Instant> {
        let responders = facts::responders(pod);
        if responders.is_empty() {
            return None;
        }
        let begun = Instant::now();
        let why = match self.serves_eviction_requests().await {
            Some(false) => return None,
            None => "the API server does not say whether it serves eviction requests".to_owned(),
            Some(true) => match self.wait_for_responders(pod, grace).await {
                Ok(ends) => return Some(ends),
                Err(why) => why,
            },
        };
        let (names, waited) = (responders.join(", "), in_seconds(begun.elapsed()));
        tracing::info!(pod = %pod.pod_ref(), "not terminated by its eviction responders ({names}): {why}");
        request.remark(format!(
            "its eviction responders ({names}) did not terminate it in {waited}: {why}"
        ));
        None
    }

    /// Whether the API server serves eviction requests; `None` if it does not say.
    pub(super) async fn serves_eviction_requests(&self) -> Option<bool> {
        let asked = self.api.serves_eviction_requests();
        self.serves_requests
            .with_cached(asked, |answer| self.note_answer(answer), |served| served.copied())
            .await
    }

    /// Waits for the responders. Returns when the grace period of the resulting deletion is over, or why there is none.
    async fn wait_for_responders(&self, pod: &Pod, grace: &mut Grace) -> Result<Instant, String> {
        let mut deadline = Instant::now() + self.config.consent(grace.remaining());
        let mut news = self.known.news(pod.uid());
        let (mut is_asked, mut retries) = (false, Retry::RESPONDERS.delays());
        loop {
            let sent = Instant::now();
            let until = (sent + self.answer_time(grace)).min(deadline);
            let request = async {
                match is_asked {
                    true => self.api.responding(pod.pod_ref()).await,
                    false => {
                        self.api.request_eviction(pod.pod_ref()).await.map(|()| Responding::Pending)
                    }
                }
            };
            let mut after = None;
            match answer(request, until, "request the pod's eviction").await {
                Ok(became) => {
                    self.outage.worked();
                    is_asked = true;
                    if let Responding::Failed(why) = became {
                        return Err(why);
                    }
                }
                Err(refused) => {
                    self.note(&refused, sent);
                    after = match after_refusal(&refused) {
                        AskStep::Refused(asked) => asked,
                        AskStep::Unanswered => None,
                        AskStep::Gone | AskStep::Denied | AskStep::Delete => {
                            return Err(refusal::chain(&refused));
                        }
                    };
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let delay = retries.after(after, left);
            tokio::select! {
                () = self.pause(delay.unwrap_or_default(), grace, &mut deadline) => {}
                () = heard(&mut news) => {}
            }
            if let Some(ends) = self.deletion_ends(pod) {
                return Ok(ends);
            }
            if self
                .known
                .look(pod.uid())
                .is_none_or(|view| view.gone || facts::has_ended(&view.pod))
            {
                // Another task notices that the pod is gone.
                return pending().await;
            }
            if delay.is_none() || Instant::now() >= deadline {
                return Err("the time for it is over".to_owned());
            }
        }
    }
}
