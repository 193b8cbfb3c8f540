//! The unit of an amount.

use winddown_shared::QuantityFormat;

/// The unit of an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Bytes, which messages print in powers of 1024.
    Bytes,
    /// A number of things, which messages print in powers of 1000.
    Count,
}

impl Unit {
    pub(crate) const fn format(self) -> QuantityFormat {
        match self {
            Self::Bytes => QuantityFormat::BinarySi,
            Self::Count => QuantityFormat::DecimalSi,
        }
    }
}
