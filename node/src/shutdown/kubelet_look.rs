//! Looks at the kubelet of this node when somebody asks for the status or the metrics.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};

use winddown_control::protection::{AgentRole, KubeletFacts, KubeletPresence};

/// How long a look is good for. Who follows a shutdown asks ten times a second.
const KUBELET_LOOK_MAX_AGE: Duration = Duration::from_secs(1);
/// How long a look may take: it reads files, and the disk may hang.
const KUBELET_LOOK_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) type Look = Box<dyn Fn() -> BoxFuture<'static, KubeletFacts> + Send + Sync>;

/// The kubelet of this node, as it was when the agent last looked.
pub(super) struct LastKubeletLook {
    look: Option<Look>,
    found: watch::Sender<KubeletFacts>,
    /// When the last look ended. Held while one is made, so that all who ask meanwhile wait for that one.
    last: Mutex<Option<Instant>>,
}

// === impl LastKubeletLook ===

impl LastKubeletLook {
    /// Without a `look`, an agent that runs its own pods takes the node to have no kubelet.
    pub(super) fn new(look: Option<Look>, role: AgentRole) -> Self {
        let presence = match (&look, role) {
            (None, AgentRole::Runtime) => Some(KubeletPresence::Absent),
            _ => None,
        };
        let found = watch::Sender::new(KubeletFacts { presence, ..KubeletFacts::default() });
        Self { look, found, last: Mutex::default() }
    }

    pub(super) fn found(&self) -> watch::Receiver<KubeletFacts> {
        self.found.subscribe()
    }

    /// Looks again unless the last look is still fresh. Nothing is known of a kubelet when the look takes too long.
    /// Cancel-safe.
    pub(super) async fn refresh(&self) {
        let Some(look) = &self.look else { return };
        let mut last = self.last.lock().await;
        if last.is_some_and(|last| last.elapsed() < KUBELET_LOOK_MAX_AGE) {
            return;
        }
        let found = timeout(KUBELET_LOOK_TIMEOUT, look()).await.unwrap_or_default();
        *last = Some(Instant::now());
        self.found.send_if_modified(|old| std::mem::replace(old, found) != found);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_who_ask_at_once_cost_one_look_and_a_look_that_hangs_leaves_the_kubelet_unknown() {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        let look = LastKubeletLook::new(
            Some(Box::new(move || {
                let hangs = counted.fetch_add(1, Ordering::SeqCst) > 0;
                Box::pin(async move {
                    if hangs {
                        std::future::pending::<()>().await;
                    }
                    let presence = Some(KubeletPresence::Runs);
                    KubeletFacts { presence, ..KubeletFacts::default() }
                })
            })),
            AgentRole::Runtime,
        );
        assert_eq!(look.found().borrow().presence, None, "nobody has looked yet");
        join_all((0..100).map(|_| look.refresh())).await;
        assert_eq!(looks.load(Ordering::SeqCst), 1);
        assert_eq!(look.found().borrow().presence, Some(KubeletPresence::Runs));
        tokio::time::advance(KUBELET_LOOK_MAX_AGE).await;
        look.refresh().await;
        assert_eq!(looks.load(Ordering::SeqCst), 2);
        assert_eq!(
            look.found().borrow().presence,
            None,
            "what was there before is not taken for now"
        );
    }
}
