//! Text in man(7)'s language.

/// A page that is being written.
pub(super) struct Writer(String);

impl Writer {
    /// Begins the page `name` of `section`; `about` is its one line in an index.
    pub(super) fn new(name: &str, section: u8, about: &str) -> Self {
        let mut page = Self(String::new());
        let version = env!("CARGO_PKG_VERSION");
        // Without a date: the same program writes the same page.
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

    /// Filled paragraphs, parted by empty lines. What stands in `backquotes` is bold.
    pub(super) fn text(&mut self, text: &str) {
        for paragraph in text.split("\n\n") {
            self.line(".PP");
            self.filled(paragraph);
        }
    }

    /// A term and what it is.
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

    /// Indents what comes until [`outdent`](Self::outdent).
    pub(super) fn indent(&mut self) {
        self.line(".RS");
    }

    pub(super) fn outdent(&mut self) {
        self.line(".RE");
    }

    /// Lines that stay as they are.
    pub(super) fn verbatim(&mut self, text: &str) {
        self.line(".PP");
        self.line(".EX");
        for line in text.lines() {
            self.line(&protected(escaped(line)));
        }
        self.line(".EE");
    }

    /// Markup that is right already.
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

/// `text` so that each of its characters is shown as it is, and can be searched and copied.
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

/// Not every roff reads UTF-8.
fn push(text: &mut String, c: char) {
    match c.is_ascii() {
        true => text.push(c),
        false => text.push_str(&format!("\\[u{:04X}]", u32::from(c))),
    }
}

/// A line that begins with a dot would be a command.
fn protected(line: String) -> String {
    if line.starts_with('.') { format!("\\&{line}") } else { line }
}
