//! The pods, as a shutdown sees them.

use winddown_shared::{NodeEndListener, PodFacts, PodKiller};

/// What a shutdown needs of the pods of a node: to end them, to know how they end, and to tell them before.
pub trait EndingPods: PodKiller + PodFacts + NodeEndListener {}

impl<K: PodKiller + PodFacts + NodeEndListener> EndingPods for K {}
