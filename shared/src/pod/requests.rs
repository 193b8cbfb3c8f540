//! Resource requests of a whole pod.

/// Name of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(std::sync::Arc<str>);

/// What a pod asks for, per resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests;
