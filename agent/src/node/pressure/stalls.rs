//! Wakes eviction when tasks wait for memory.

use std::path::PathBuf;

use tokio::sync::Notify;
use winddown_machine::{PsiAlarm, PsiPlace, PsiTrigger, PsiWatch};
use winddown_shared::error_chain;

/// Where the kernel tells of time lost.
pub(super) struct StallPlaces {
    pub(super) proc: PathBuf,
    pub(super) cgroup: PathBuf,
    /// The cgroup that counts as the node.
    pub(super) node: String,
}

/// Wakes for as long as the kernel tells; without it the loop looks by the clock alone.
pub(super) async fn wake(places: StallPlaces, wake: &Notify) {
    let place = match &*places.node {
        "/" => PsiPlace::Node,
        cgroup => PsiPlace::Cgroup(cgroup.to_owned()),
    };
    let triggers = [(place, PsiTrigger::default())];
    let start = move || PsiWatch::start(&places.proc, &places.cgroup, &triggers);
    let Ok((watch, outcomes)) = tokio::task::spawn_blocking(start).await else { return };
    for error in outcomes.into_iter().filter_map(Result::err) {
        let why = error_chain(&error);
        tracing::info!(why, "tasks that wait for memory do not wake eviction");
    }
    let Some(mut watch) = watch else { return };
    while let Some(alarm) = watch.next().await {
        if matches!(alarm, PsiAlarm::Pressed(_)) {
            wake.notify_one();
        }
    }
}
