//! QoS class.

/// How strictly a pod's resources are promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosClass {
    /// No requests and no limits.
    BestEffort,
    /// Some requests or limits.
    Burstable,
    /// Requests equal limits everywhere.
    Guaranteed,
}
