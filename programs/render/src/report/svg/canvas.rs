//! Shapes and text as SVG elements, safe for any text.

use std::fmt::{self, Display, Write};

use winddown_shared::display::clean;

/// An SVG fragment.
#[derive(Debug, Default)]
pub(in crate::report) struct Canvas {
    out: String,
}

/// A length or position in pixels; at most one decimal is written.
#[derive(Clone, Copy)]
struct Px(f64);

/// Text escaped for element content and attribute values.
pub(in crate::report) struct Escaped<'a>(pub(in crate::report) &'a str);

// === impl Canvas ===

impl Canvas {
    /// Returns the fragment.
    pub(in crate::report) fn into_string(self) -> String {
        self.out
    }

    /// Appends the fragment of `other`.
    pub(in crate::report) fn append(&mut self, other: &Canvas) {
        self.out.push_str(&other.out);
    }

    /// Draws a rectangle, unless its width is zero.
    pub(in crate::report) fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        if width > 0.0 {
            let (x, y, width, height) = (Px(x), Px(y), Px(width), Px(height));
            self.put(format_args!(
                r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#
            ));
        }
    }

    /// Draws a straight line.
    pub(in crate::report) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (Px(from.0), Px(from.1), Px(to.0), Px(to.1));
        self.put(format_args!(
            r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#
        ));
    }

    /// Draws a dot.
    pub(in crate::report) fn dot(&mut self, class: &str, at: (f64, f64), radius: f64) {
        let (x, y, r) = (Px(at.0), Px(at.1), Px(radius));
        self.put(format_args!(r#"<circle class="{class}" cx="{x}" cy="{y}" r="{r}"/>"#));
    }

    /// Draws a triangle that points right. The middle of its base is at `at`; its tip is `length` away.
    pub(in crate::report) fn triangle(
        &mut self,
        class: &str,
        at: (f64, f64),
        length: f64,
        half: f64,
    ) {
        let (x, y) = (Px(at.0), Px(at.1 - half));
        let (length, half) = (Px(length), Px(half));
        self.put(format_args!(
            r#"<path class="{class}" d="M{x} {y}l{length} {half}l-{length} {half}z"/>"#
        ));
    }

    /// Draws a cross around `at`, with an edge in the paper's colour so that it stands out from a bar.
    pub(in crate::report) fn cross(&mut self, at: (f64, f64), half: f64) {
        let (x, y, side, half) = (Px(at.0 - half), Px(at.1 - half), Px(2.0 * half), Px(2.0 * half));
        for class in ["halo", "kill"] {
            self.put(format_args!(
                r#"<path class="{class}" d="M{x} {y}l{side} {half}m0 -{half}l-{side} {half}"/>"#
            ));
        }
    }

    /// Draws the area under a staircase of `height` that starts at `from` and goes down one step at each of `ends`.
    pub(in crate::report) fn staircase(
        &mut self,
        class: &str,
        from: (f64, f64),
        height: f64,
        ends: &[f64],
    ) {
        let mut path = format!("M{} {}v-{}", Px(from.0), Px(from.1), Px(height));
        #[expect(clippy::cast_precision_loss, reason = "a number of pods")]
        let level = |left: usize| from.1 - height * left as f64 / ends.len().max(1) as f64;
        for (done, at) in (1..).zip(ends) {
            // A step that is no wider than a line is merged with the next.
            if ends.get(done).is_none_or(|next| *next >= at + 1.0) {
                path.push_str(&format!("H{}V{}", Px(*at), Px(level(ends.len() - done))));
            }
        }
        self.put(format_args!(r#"<path class="{class}" d="{path}z"/>"#));
    }

    /// Writes one line of text with its baseline at `at`.
    pub(in crate::report) fn text(&mut self, class: &str, size: f64, at: (f64, f64), text: &str) {
        let (x, y, size, text) = (Px(at.0), Px(at.1), Px(size), Escaped(text));
        self.put(format_args!(
            r#"<text class="{class}" font-size="{size}" x="{x}" y="{y}">{text}</text>"#
        ));
    }

    /// Writes one line of text whose first part is emphasized.
    pub(in crate::report) fn heading(&mut self, size: f64, at: (f64, f64), head: &str, rest: &str) {
        let (x, y, small) = (Px(at.0), Px(at.1), Px(size - 1.0));
        let (size, head, rest) = (Px(size), Escaped(head), Escaped(rest));
        self.put(format_args!(
            r#"<text font-size="{size}" x="{x}" y="{y}"><tspan class="head">{head}</tspan>"#
        ));
        let element =
            format_args!(r#"<tspan class="dim" dx="12" font-size="{small}">{rest}</tspan></text>"#);
        // Writing to a String cannot fail. A line break would become a space in the text.
        let _ = self.out.write_fmt(element);
    }

    /// Wraps what `draw` draws in a group with a tooltip.
    pub(in crate::report) fn titled(&mut self, title: &str, draw: impl FnOnce(&mut Self)) {
        self.put(format_args!("<g><title>{}</title>", Escaped(title)));
        draw(self);
        self.out.push_str("</g>");
    }

    /// Writes an element that contains only text.
    pub(in crate::report) fn element(&mut self, name: &str, id: &str, text: &str) {
        self.put(format_args!(r#"<{name} id="{id}">{}</{name}>"#, Escaped(text)));
    }

    /// Writes markup unescaped. It must not contain any external input.
    pub(in crate::report) fn markup(&mut self, markup: fmt::Arguments<'_>) {
        self.put(markup);
    }

    fn put(&mut self, element: fmt::Arguments<'_>) {
        self.out.push('\n');
        // Writing to a String cannot fail.
        let _ = self.out.write_fmt(element);
    }
}

// === impl Px ===

impl Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Adding zero turns a negative zero into a plain one.
        let rounded = (self.0 * 10.0).round() / 10.0 + 0.0;
        write!(f, "{rounded}")
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
