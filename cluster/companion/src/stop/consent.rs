//! The consents that stopping pods requires, for planners of a shutdown.

use super::*;
use winddown_api_client::node_pods::RefusedRequest;
use winddown_shared::EvictionConstraints;

impl<A: EndPods, N: KubeletHost> StopCore<A, N> {
    /// The consents for those pods that are stopped through the API server and need any.
    pub(crate) async fn consent(
        &self,
        pods: &[Pod],
    ) -> Result<Vec<(PodUid, EvictionConstraints)>, RuntimeError> {
        if !self.known.is_listed() {
            return Err(untold());
        }
        let asked: Vec<Pod> = pods.iter().filter(|pod| !pod.is_mirror()).cloned().collect();
        let note = |answer: Result<(), &RefusedRequest>| self.note_answer(answer);
        let budgets = self.budgets.counting(&self.api, &asked, note).await;
        let budgets = budgets.ok_or_else(untold)?;
        let has_responders = asked.iter().any(|pod| !facts::responders(pod).is_empty());
        let served = has_responders && self.serves_eviction_requests().await == Some(true);
        let consents = asked.iter().zip(budgets).map(|(pod, budgets)| {
            let responders = if served { facts::responders(pod) } else { Vec::new() };
            let responders = responders.into_iter().map(str::to_owned).collect();
            (pod.uid().clone(), EvictionConstraints { budgets, responders })
        });
        Ok(consents.filter(|(_, consent)| !consent.is_empty()).collect())
    }
}

fn untold() -> RuntimeError {
    let what = "the API server does not list the disruption budgets: `winddown doctor` says why";
    RuntimeError::Failed { what: what.to_owned(), source: None }
}
