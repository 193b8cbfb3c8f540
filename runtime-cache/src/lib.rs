#![doc = include_str!("../README.md")]

mod list;
mod statuses;

pub use list::RuntimeCache;
pub use statuses::{Cached, Inspected, PodStatusCache};
