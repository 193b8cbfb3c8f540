//! Markup that is being written, safe for any text.

use std::fmt::{self, Display, Write};

use winddown_shared::display::clean;

/// A fragment of a page.
#[derive(Debug, Default)]
pub(super) struct Markup(String);

/// Text escaped for element content and attribute values.
pub(super) struct Escaped<'a>(pub(super) &'a str);

// === impl Markup ===

impl Markup {
    pub(super) fn into_string(self) -> String {
        self.0
    }

    /// Adds a line of markup, which must not contain any external input that is not [`Escaped`].
    pub(super) fn line(&mut self, markup: fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.0.write_fmt(markup);
        self.0.push('\n');
    }
}

// === impl Escaped ===

impl Display for Escaped<'_> {
    /// XML cannot represent control characters, U+FFFE or U+FFFF, not even escaped. Line breaks are kept, for tooltips.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, line) in self.0.split('\n').enumerate() {
            if number > 0 {
                f.write_char('\n')?;
            }
            for c in clean(line).chars() {
                match c {
                    '&' => f.write_str("&amp;")?,
                    '<' => f.write_str("&lt;")?,
                    '>' => f.write_str("&gt;")?,
                    '"' => f.write_str("&quot;")?,
                    '\'' => f.write_str("&#39;")?,
                    '\u{fffe}' | '\u{ffff}' => f.write_char('\u{fffd}')?,
                    c => f.write_char(c)?,
                }
            }
        }
        Ok(())
    }
}
