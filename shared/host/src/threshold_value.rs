//! Amounts of a resource that should stay available.

use winddown_shared::{Quantity, QuantityFormat};

/// An amount, either absolute or a share of the node's capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThresholdValue {
    /// In the resource's unit.
    Quantity(Quantity),
    /// A share of the capacity, 0 to 1, in 32 bits as in the kubelet: 10 % of 16 GiB is 26 bytes more than the exact
    /// value, and messages show that.
    Share(f32),
}

impl ThresholdValue {
    /// Nothing.
    pub const ZERO: Self = Self::Quantity(Quantity::ZERO);

    /// The absolute amount for a given capacity.
    #[must_use]
    pub fn of(self, capacity: i64) -> Quantity {
        match self {
            Self::Quantity(quantity) => quantity,
            Self::Share(share) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "truncation is what is wanted, and what does not fit saturates"
                )]
                let amount = (capacity as f64 * f64::from(share)) as i64;
                Quantity::new(amount, QuantityFormat::BinarySi)
            }
        }
    }
}
