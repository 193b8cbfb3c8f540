//! Kubernetes quantities in exact integer arithmetic.

/// An amount of a resource, exact to the nano-unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

/// Text that is not a quantity.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("not a quantity: {0:?}")]
pub struct QuantityError(String);
