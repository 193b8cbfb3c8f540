//! The pods, as a shutdown sees them.

use winddown_shared::{NodeEndListener, PodKiller, PodStateProvider};

/// What a shutdown needs of the pods of a node: to end them, to know how they end, and to tell them before.
pub trait EndingPods: PodKiller + PodStateProvider + NodeEndListener {}

impl<K: PodKiller + PodStateProvider + NodeEndListener> EndingPods for K {}
