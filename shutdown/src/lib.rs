//! Placeholder, replaced by its first real module.
