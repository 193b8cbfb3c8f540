#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! Quantities and durations, parsed and formatted exactly as by Kubernetes and Go, the clocks, and the delays between
//! retries.
//! [`printable`] makes text of others safe to print; [`error_chain`] has an error on one line.
//!
//! Durations entered by people ([`parse_duration`]) may also be written as `1min 30s`.

pub mod backoff;
pub mod clock;
mod error_chain;
mod go_duration;
pub mod http_fields;
pub mod printable;
mod quantity;
pub mod readable;
mod resource_field;
pub mod retry;
mod seconds_up;
pub mod text;

pub use error_chain::error_chain;
pub use go_duration::{
    DurationError, GoDuration, GoDurationError, GoDurationRangeError, parse_duration,
};
pub use quantity::{Quantity, QuantityError, QuantityFormat};
pub use resource_field::{ResourceFieldError, resource_field};
pub use seconds_up::{millis, seconds_up};

/// Splits the text after its leading digits.
fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// The first 40 characters, for an error.
fn abbreviated(text: &str) -> String {
    text.chars().take(40).collect()
}
