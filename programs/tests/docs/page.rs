//! A Markdown page: its examples and links.

use std::path::{Path, PathBuf};

/// The folders of docs/, in the order in which a newcomer reads them.
const FOLDERS: [&str; 4] = ["tutorials", "how-to", "reference", "explanation"];

/// README.md, docs/README.md, the pages of each folder of docs/, and those beside the folders, in the order in which
/// they are read.
pub(crate) fn files(root: &Path) -> Vec<PathBuf> {
    let docs = root.join("docs");
    let index = docs.join("README.md");
    let mut files = vec![root.join("README.md"), index.clone()];
    for directory in FOLDERS.iter().map(|folder| docs.join(folder)).chain([docs.clone()]) {
        let entries = std::fs::read_dir(directory).expect("a folder of docs");
        let mut pages: Vec<PathBuf> =
            entries.map(|entry| entry.expect("an entry").path()).collect();
        pages.retain(|page| page.extension().is_some_and(|ending| ending == "md"));
        pages.retain(|page| *page != index);
        pages.sort();
        files.extend(pages);
    }
    files
}

/// One page.
pub(crate) struct Page {
    pub(crate) name: String,
    pub(crate) directory: PathBuf,
    pub(crate) blocks: Vec<Block>,
    headings: Vec<String>,
    prose: String,
}

/// A fenced block.
pub(crate) struct Block {
    /// Where it begins, counted from 1.
    pub(crate) line: usize,
    /// Whether it is in a list.
    pub(crate) indented: bool,
    /// The heading above it.
    pub(crate) heading: String,
    pub(crate) lines: Vec<String>,
    info: String,
}

impl Page {
    pub(crate) fn read(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).expect("text");
        let (mut blocks, mut prose) = (Vec::new(), String::new());
        let mut open: Option<Block> = None;
        let (mut heading, mut headings) = (String::new(), Vec::new());
        for (n, line) in text.lines().enumerate() {
            let trimmed = line.trim_start();
            match (trimmed.strip_prefix("```"), open.take()) {
                (Some(info), None) => {
                    let indented = trimmed.len() < line.len();
                    let info = info.trim().to_owned();
                    let (heading, lines) = (heading.clone(), Vec::new());
                    open = Some(Block { line: n + 1, indented, heading, lines, info });
                }
                (Some(_), Some(block)) => blocks.push(block),
                (None, Some(mut block)) => {
                    let line = if block.indented { trimmed } else { line };
                    block.lines.push(line.to_owned());
                    open = Some(block);
                }
                (None, None) => {
                    if let Some(text) = line.strip_prefix('#') {
                        text.trim_start_matches('#').trim().clone_into(&mut heading);
                        headings.push(heading.clone());
                    }
                    prose.push_str(line);
                    prose.push('\n');
                }
            }
        }
        assert!(open.is_none(), "{}: a block does not end", file.display());
        let directory = file.parent().expect("a directory").to_owned();
        Self { name: file.display().to_string(), directory, blocks, headings, prose }
    }

    /// Returns the text in backquotes, outside blocks.
    pub(crate) fn code(&self) -> impl Iterator<Item = &str> {
        self.prose.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
    }

    /// Returns the anchors of its headings.
    pub(crate) fn anchors(&self) -> Vec<String> {
        let slug = |heading: &String| {
            let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
            heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
        };
        self.headings.iter().map(slug).collect()
    }

    /// The targets of all links.
    pub(crate) fn links(&self) -> Vec<String> {
        let targets = self.prose.split("](").skip(1);
        targets.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
    }
}

impl Block {
    /// Returns the words after the fence.
    pub(crate) fn words(&self) -> Vec<&str> {
        self.info.split(',').collect()
    }
}

/// The words of the first command of a line, as a shell would have them.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote) = (None::<String>, None);
    for c in line.chars() {
        match (c, quote) {
            (c, Some(q)) if c == q => quote = None,
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('|' | '>' | '<' | ';' | '&' | '#', None) if word.is_none() => return words,
            (';', None) => break,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
