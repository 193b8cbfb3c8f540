//! Quantities and durations, exactly as Kubernetes and Go read and write them.
//!
//! Texts that come from people ([`parse_duration`]) may also be written as `1min 30s`.

mod go_duration;
mod quantity;

pub use go_duration::{
    DurationError, GoDuration, GoDurationError, GoDurationRangeError, parse_duration,
};
pub use quantity::{Quantity, QuantityError, QuantityFormat};
