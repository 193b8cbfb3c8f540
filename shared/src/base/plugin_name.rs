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
        let bytes = name.as_bytes();
        assert!(
            !bytes.is_empty() && bytes.len() <= 32 && bytes[0].is_ascii_lowercase(),
            "a plug-in's name has 1 to 32 characters, the first a lower-case letter"
        );
        let mut at = 0;
        while at < bytes.len() {
            assert!(
                bytes[at].is_ascii_lowercase() || bytes[at].is_ascii_digit() || bytes[at] == b'-',
                "a plug-in's name is of lower-case letters, digits and hyphens"
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
