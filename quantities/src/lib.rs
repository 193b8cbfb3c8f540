//! Quantities and durations, parsed and formatted exactly as by Kubernetes and Go.
//!
//! Durations entered by people ([`parse_duration`]) may also be written as `1min 30s`.

mod go_duration;
mod quantity;

pub use go_duration::{
    DurationError, GoDuration, GoDurationError, GoDurationRangeError, parse_duration,
};
pub use quantity::{Quantity, QuantityError, QuantityFormat};
