//! The default configuration with every field explained.

/// The default configuration as YAML, every field with its meaning, range and default.
///
/// It reads back to [`Config::default`](super::Config::default).
pub fn default_yaml() -> &'static str {
    include_str!("default.yaml")
}
