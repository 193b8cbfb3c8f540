//! The name of a plug-in.

use std::fmt;

/// The name of a [`Plugin`](crate::Plugin): 1 to 32 lower-case letters, digits and hyphens, a letter first.
///
/// It is a label of metrics and part of reasons, so it is fixed at compile time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PluginName(&'static str);

impl PluginName {
    /// Creates the name of a plug-in, for a constant: `const NAME: PluginName = PluginName::new("max-age");`
    ///
    /// # Panics
    /// The name is invalid. In a constant that is a compile error.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        let (bytes, mut at) = (name.as_bytes(), 0);
        assert!(!bytes.is_empty() && bytes.len() <= 32, "a plug-in's name has 1 to 32 characters");
        while at < bytes.len() {
            let is_inner = at > 0 && matches!(bytes[at], b'0'..=b'9' | b'-');
            assert!(
                is_inner || bytes[at].is_ascii_lowercase(),
                "a plug-in's name is of lower-case letters, digits and hyphens, a letter first"
            );
            at += 1;
        }
        Self(name)
    }

    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Debug for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}
