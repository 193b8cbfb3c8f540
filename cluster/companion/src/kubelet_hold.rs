//! Keeps the kubelet stopped while pods are stopped without it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use winddown_shared::{Backoff, Mutex};

use super::local_node::KubeletHost;

/// The wait after a failed attempt to hold the kubelet, before the next one.
const HOLD_AGAIN: Duration = Duration::from_secs(1);

/// Whether the kubelet is kept stopped.
///
/// A kubelet restarts the containers of a pod that it was not asked to stop. Before such a pod is stopped
/// through the container runtime, the kubelet's own service is stopped; it is started again if the
/// shutdown is cancelled. A kubelet that exits by itself while the node goes down is kept from coming back halfway
/// through. If the kubelet is not a service of its own (k3s), or may not be stopped yet, it keeps running, and what it
/// restarts is stopped again.
#[derive(Debug, Default)]
pub(super) struct KubeletHold {
    wanted: watch::Sender<bool>,
    state: watch::Sender<KubeletHoldState>,
    /// Whether the kubelet had exited before it was held.
    was_gone: AtomicBool,
    /// Why it cannot be held, as last logged.
    obstacle: Mutex<Option<Arc<str>>>,
}

/// Whether the kubelet is kept stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum KubeletHoldState {
    #[default]
    Free,
    /// It is not held, and a shutdown's first look has not shown it to be gone.
    Seen,
    /// Since then.
    Held(Instant),
    Impossible,
}

// === impl KubeletHoldState ===

impl KubeletHoldState {
    fn held_at(self) -> Option<Instant> {
        match self {
            Self::Held(since) => Some(since),
            Self::Free | Self::Seen | Self::Impossible => None,
        }
    }

    fn is_decided(self) -> bool {
        matches!(self, Self::Held(_) | Self::Impossible)
    }
}

// === impl KubeletHold ===

impl KubeletHold {
    pub(super) fn is_held(&self) -> bool {
        self.held_at().is_some()
    }

    /// Since when the kubelet has been held, if it is.
    pub(super) fn held_at(&self) -> Option<Instant> {
        self.state.borrow().held_at()
    }

    /// Changes when the kubelet is held, and when it is not any more.
    pub(super) fn watch(&self) -> watch::Receiver<KubeletHoldState> {
        self.state.subscribe()
    }

    /// Whether the kubelet is held because it exited by itself.
    pub(super) fn was_gone(&self) -> bool {
        self.was_gone.load(Ordering::Relaxed)
    }

    /// Resolves when the kubelet is held. Cancel-safe.
    pub(super) async fn held(&self) {
        // The senders live as long as `self`.
        let _ = self.state.subscribe().wait_for(|state| state.held_at().is_some()).await;
    }

    /// Resolves when it is known whether the kubelet ran as the shutdown began. Cancel-safe.
    pub(super) async fn seen(&self) {
        // The senders live as long as `self`.
        let _ = self.state.subscribe().wait_for(|state| *state != KubeletHoldState::Free).await;
    }

    /// Has the kubelet held. Resolves when that is done, has turned out to be impossible, or is no longer wanted
    /// because the node stays up.
    pub(super) async fn hold(&self) {
        self.wanted.send_if_modified(|wanted| !std::mem::replace(wanted, true));
        let (mut wanted, mut state) = (self.wanted.subscribe(), self.state.subscribe());
        // The senders live as long as `self`.
        tokio::select! {
            _ = state.wait_for(|state| state.is_decided()) => {}
            _ = wanted.wait_for(|wanted| !*wanted) => {}
        };
    }

    /// Holds the kubelet when requested, and starts it again when the node stays up. One that an earlier agent stopped is
    /// held from the start, and one that does not run as a shutdown begins, since then: what the API server accepts from
    /// then on, no kubelet learns of. One that may not be stopped is held as soon as it may be.
    pub(super) async fn keep<N: KubeletHost>(
        &self,
        node: &N,
        mut going_down: watch::Receiver<bool>,
        mut may_stop: watch::Receiver<bool>,
    ) {
        let (mut wanted, begun) = (self.wanted.subscribe(), Instant::now());
        if node.is_kubelet_stopped().await {
            // Whatever the API server has accepted since, no kubelet has learnt of it.
            self.state.send_replace(KubeletHoldState::Held(begun));
        }
        let mut down_since = begun;
        loop {
            let state = *self.state.borrow();
            let is_down = *going_down.borrow();
            let is_new = is_down && state == KubeletHoldState::Free;
            let may = *may_stop.borrow_and_update();
            let is_needed = is_down && !is_new && may && state.held_at().is_none();
            tokio::select! {
                Ok(()) = wanted.changed() => {
                    let is_wanted = *wanted.borrow_and_update();
                    match is_wanted {
                        // The stop that wants it may have waited while the shutdown was cancelled.
                        true if !*going_down.borrow() => drop(self.wanted.send_replace(false)),
                        // It has exited, or an earlier agent has stopped it.
                        true if state.held_at().is_some() => {}
                        true if may => self.hold_back(node, Instant::now()).await,
                        true => self.must_not_hold(),
                        false => {}
                    }
                }
                Ok(()) = may_stop.changed() => {
                    if *may_stop.borrow() && *wanted.borrow() {
                        self.hold_back(node, Instant::now()).await;
                    }
                }
                Ok(()) = going_down.changed() => {
                    down_since = Instant::now();
                    if !*going_down.borrow_and_update() {
                        self.let_go(node, &mut going_down).await;
                    }
                }
                is_absent = node.is_kubelet_absent(), if is_new => match is_absent && may {
                    true => self.hold_gone(node, down_since).await,
                    false => drop(self.state.send_replace(KubeletHoldState::Seen)),
                },
                () = sleep(HOLD_AGAIN), if is_needed && state == KubeletHoldState::Impossible => {
                    self.hold_back(node, Instant::now()).await;
                }
                () = node.kubelet_ended(), if is_needed && state != KubeletHoldState::Impossible => {
                    self.hold_gone(node, Instant::now()).await;
                }
                // The sender of `going_down` is gone: the kubelet stays stopped.
                else => return,
            }
        }
    }

    /// Keeps a kubelet that has not run since then from coming back.
    async fn hold_gone<N: KubeletHost>(&self, node: &N, since: Instant) {
        tracing::warn!("no kubelet runs while the node shuts down");
        self.was_gone.store(true, Ordering::Relaxed);
        self.hold_back(node, since).await;
    }

    /// Leaves the kubelet running, which may not be stopped.
    fn must_not_hold(&self) {
        tracing::info!(
            "the kubelet keeps running until the machine itself goes down, because only it could start this agent \
             again; what it restarts is terminated again"
        );
        self.state.send_replace(KubeletHoldState::Impossible);
    }

    async fn hold_back<N: KubeletHost>(&self, node: &N, since: Instant) {
        let state = match node.stop_kubelet().await {
            Ok(()) => {
                tracing::info!("stopped the kubelet so that it does not restart containers");
                KubeletHoldState::Held(self.held_at().unwrap_or(since))
            }
            Err(error) => {
                let known = self.obstacle.lock().replace(Arc::clone(&error.why));
                if known.is_none_or(|known| known != error.why) {
                    tracing::warn!(
                        "cannot stop the kubelet, which may restart containers; they will be terminated again: {error}"
                    );
                }
                KubeletHoldState::Impossible
            }
        };
        // Pods that wait look again at each change.
        self.state.send_if_modified(|known| std::mem::replace(known, state) != state);
    }

    /// Starts the kubelet if this agent or an earlier one stopped it.
    async fn let_go<N: KubeletHost>(&self, node: &N, going_down: &mut watch::Receiver<bool>) {
        // First, so that a request of the next shutdown is not lost while the kubelet starts.
        self.wanted.send_replace(false);
        // Nor must that take the kubelet for held, which may run any moment now.
        self.state.send_replace(KubeletHoldState::Seen);
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        while let Err(why) = node.start_kubelet().await {
            tracing::error!(
                "the kubelet was stopped for the shutdown and cannot be started again: {why}"
            );
            tokio::select! {
                () = sleep(backoff.next_delay()) => {}
                // The node goes down after all.
                _ = going_down.wait_for(|is_down| *is_down) => return,
            }
        }
        self.was_gone.store(false, Ordering::Relaxed);
        *self.obstacle.lock() = None;
        self.state.send_replace(KubeletHoldState::Free);
    }
}
