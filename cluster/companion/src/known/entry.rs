//! What is known of one pod.

use tokio::sync::watch;
use tokio::time::Instant;
use winddown_shared::Pod;

use crate::facts;
use crate::mirror::{Claim, ClaimVerdict};

/// A pod, and what has become of it.
#[derive(Debug)]
pub(super) struct KnownEntry {
    pub(super) newest: Pod,
    /// The object used for planning: the newest, unless it differs only in container states and no stopped pod runs
    /// again.
    pub(super) planned: Pod,
    /// That it mirrors another pod, as it says, and the answer.
    pub(super) claim: Option<(Claim, ClaimVerdict)>,
    /// Whether it is made of what the container runtime records, because the API server has not listed it yet.
    pub(super) found: bool,
    /// Whether the API server no longer has the pod. Its last state is kept until the pod is forgotten.
    pub(super) gone: bool,
    /// Whether the pod has ever been among the desired pods.
    pub(super) published: bool,
    /// When its containers were stopped, if the API server does not know it yet.
    pub(super) stopped: Option<Instant>,
    /// Whether winddown stops its containers, and the kubelet knows that.
    pub(super) stops: bool,
    /// Whether the kubelet was seen to hold nothing of the pod after its end.
    pub(super) free: bool,
    /// Whether it is the pod of a manifest whose stop began, and this agent has begun no run of it since.
    pub(super) stop_begun: bool,
    /// Whether the list in progress contains it, or the watch reported it since the list began.
    pub(super) listed: bool,
    /// When a list, and no event before it, showed that the pod is to end.
    pub(super) end_listed: Option<Instant>,
    /// Notified of every change; created by the first subscriber.
    pub(super) news: Option<watch::Sender<()>>,
}

impl KnownEntry {
    pub(super) fn new(pod: Pod) -> Self {
        let planned = pod.clone();
        Self {
            newest: pod,
            planned,
            claim: None,
            found: false,
            gone: false,
            published: false,
            stopped: None,
            stops: false,
            free: false,
            stop_begun: false,
            listed: true,
            end_listed: None,
            news: None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        !self.gone && matches!(self.claim, Some((_, ClaimVerdict::Open)))
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.newest.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn is_ending(&self) -> bool {
        self.gone || self.is_deleted() || facts::has_completed(&self.newest)
    }

    pub(super) fn runs_on(&self) -> bool {
        !self.gone && self.stopped.is_none() && !self.is_deleted() && facts::runs(&self.newest)
    }

    pub(super) fn runs_for_api(&self) -> bool {
        !self.gone
            && self.stopped.is_none()
            && !self.newest.is_mirror()
            && facts::runs(&self.newest)
    }

    /// When it was stopped, if the kubelet has not told the API server.
    pub(super) fn unreported(&self) -> Option<Instant> {
        self.stopped.filter(|_| !self.gone && facts::runs(&self.newest))
    }

    pub(super) fn notify(&mut self) {
        if let Some(news) = &self.news {
            if news.receiver_count() == 0 {
                self.news = None;
            } else {
                news.send_replace(());
            }
        }
    }
}
