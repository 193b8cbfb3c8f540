//! Writes man(7) markup.

/// A page that is being written.
pub(super) struct RoffWriter(String);

impl RoffWriter {
    /// Starts the page `name` of `section`; `about` is its one-line description.
    pub(super) fn new(name: &str, section: u8, about: &str) -> Self {
        let mut page = Self(String::new());
        let version = env!("CARGO_PKG_VERSION");
        // Without a date, so that the output is reproducible.
        page.line(&format!(
            ".TH {} {section} \"\" \"winddown {version}\" \"winddown manual\"",
            escaped(name)
        ));
        page.heading("NAME");
        page.line(&format!("{} \\- {}", escaped(name), escaped(about)));
        page
    }

    pub(super) fn heading(&mut self, title: &str) {
        self.line(&format!(".SH \"{}\"", escaped(title)));
    }

    pub(super) fn subheading(&mut self, title: &str) {
        self.line(&format!(".SS \"{}\"", escaped(title)));
    }

    /// Adds filled paragraphs, separated by empty lines in `text`. Text in `backquotes` becomes bold.
    pub(super) fn text(&mut self, text: &str) {
        for paragraph in text.split("\n\n") {
            self.line(".PP");
            self.filled(paragraph);
        }
    }

    /// Adds a term and its definition.
    pub(super) fn term(&mut self, term: &str, text: &str) {
        self.line(".TP");
        self.line(&format!("\\fB{}\\fR", escaped(term)));
        for (n, paragraph) in text.split("\n\n").enumerate() {
            if n > 0 {
                self.line(".IP");
            }
            self.filled(paragraph);
        }
    }

    /// Indents everything until [`outdent`](Self::outdent).
    pub(super) fn indent(&mut self) {
        self.line(".RS");
    }

    pub(super) fn outdent(&mut self) {
        self.line(".RE");
    }

    /// Adds preformatted lines.
    pub(super) fn verbatim(&mut self, text: &str) {
        self.line(".PP");
        self.line(".EX");
        for line in text.lines() {
            self.line(&protected(escaped(line)));
        }
        self.line(".EE");
    }

    /// Adds text that is already markup.
    pub(super) fn raw(&mut self, markup: &str) {
        for c in markup.chars() {
            push(&mut self.0, c);
        }
        if !self.0.ends_with('\n') {
            self.0.push('\n');
        }
    }

    pub(super) fn finish(self) -> String {
        self.0
    }

    fn filled(&mut self, paragraph: &str) {
        for line in paragraph.lines() {
            let mut marked = String::new();
            for (n, part) in line.split('`').enumerate() {
                match n % 2 {
                    0 => marked.push_str(&escaped(part)),
                    _ => marked.push_str(&format!("\\fB{}\\fR", escaped(part))),
                }
            }
            let marked = marked.trim();
            if !marked.is_empty() {
                self.line(&protected(marked.to_owned()));
            }
        }
    }

    fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }
}

/// Escapes `text` so that each character is shown literally, and can be searched and copied.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => safe.push_str("\\e"),
            '-' => safe.push_str("\\-"),
            '\'' => safe.push_str("\\(aq"),
            '`' => safe.push_str("\\(ga"),
            '^' => safe.push_str("\\(ha"),
            '~' => safe.push_str("\\(ti"),
            '"' => safe.push_str("\\(dq"),
            c => push(&mut safe, c),
        }
    }
    safe
}

/// Appends a character, escaped unless it is ASCII, because not every roff reads UTF-8.
fn push(text: &mut String, c: char) {
    match c.is_ascii() {
        true => text.push(c),
        false => text.push_str(&format!("\\[u{:04X}]", u32::from(c))),
    }
}

/// Protects a line that begins with a dot, which would be a command.
fn protected(line: String) -> String {
    if line.starts_with('.') { format!("\\&{line}") } else { line }
}
