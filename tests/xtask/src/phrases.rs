//! Phrases that the product's texts and the pages do not use, because readers of English would stop at them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::texts;

/// Where they are, from the root of the repository: one a line, and what to say instead.
const LIST: &str = "tests/words/phrases";

/// Pages that name old words on purpose, or what other programs say.
const EXEMPT: [&str; 4] =
    ["CHANGELOG.md", "docs/pod-fields.md", "tests/conformance/results.md", "CONTRIBUTING.md"];

/// A phrase, and what to say instead.
struct Phrase {
    words: String,
    instead: String,
}

/// Prints how many texts and pages were read.
///
/// # Errors
/// A file cannot be read, or a text or a page has one of the phrases.
pub(crate) fn check(repository: &Path) -> Result<()> {
    let list = read_list(&read(&repository.join(LIST))?)?;
    let mut places = texts::with_places(repository)?;
    for page in pages(repository)? {
        let text = read(&repository.join(&page))?;
        let paragraphs = text.split("\n\n").map(|text| (page.clone(), text.to_owned()));
        places.extend(paragraphs);
    }
    let found = places.iter().flat_map(|(place, text)| {
        let refused = list.iter().filter(|phrase| has(text, &phrase.words));
        refused.map(move |Phrase { words, instead }| format!("{place}: {words:?}: say {instead}"))
    });
    let found: Vec<String> = found.collect();
    ensure!(found.is_empty(), "{LIST} refuses:\n{}", found.join("\n"));
    println!(
        "{:>7}  texts and paragraphs without the {} phrases of {LIST}",
        places.len(),
        list.len()
    );
    Ok(())
}

fn read_list(text: &str) -> Result<Vec<Phrase>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let phrase = |line: &str| match line.split_once(" -> ") {
        Some((words, instead)) => Ok(Phrase { words: words.into(), instead: instead.into() }),
        None => bail!("{LIST}: {line:?} does not say what to write instead"),
    };
    lines.map(phrase).collect()
}

/// Whether the text has these words one after the other, in whatever case and over ends of lines.
fn has(text: &str, phrase: &str) -> bool {
    let plain = |text: &str| -> String {
        let text = text.to_lowercase().replace(['⏎', '\n'], " ");
        let words: Vec<&str> = text.split_whitespace().collect();
        format!(" {} ", words.join(" "))
    };
    let (text, phrase) = (plain(text), plain(phrase));
    let phrase = phrase.trim();
    text.match_indices(phrase).any(|(at, _)| {
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !is_word(text[..at].chars().next_back())
            && !is_word(text[at + phrase.len()..].chars().next())
    })
}

fn pages(repository: &Path) -> Result<Vec<String>> {
    let git = Command::new("git").args(["ls-files", "*.md"]).current_dir(repository).output();
    let names = String::from_utf8(git.context("git cannot be run")?.stdout)?;
    Ok(names.lines().filter(|page| !EXEMPT.contains(page)).map(str::to_owned).collect())
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Vec<Phrase> {
        read_list(&read(&crate::repository().join(LIST)).unwrap()).unwrap()
    }

    #[test]
    fn no_text_and_no_page_has_a_refused_phrase() {
        check(&crate::repository()).unwrap();
    }

    #[test]
    fn every_sentence_that_a_reader_once_stopped_at_is_refused() {
        let sentences = include_str!("phrases/stopped_at.txt");
        let list = list();
        let passed = sentences.lines().filter(|text| !list.iter().any(|one| has(text, &one.words)));
        assert_eq!(passed.collect::<Vec<_>>(), Vec::<&str>::new());
        assert_eq!(sentences.lines().count(), 40);
    }

    #[test]
    fn a_phrase_is_found_over_the_end_of_a_line_and_not_within_a_word() {
        assert!(has("The pod Is\n   ended.", "is ended"));
        assert!(!has("this ended", "is ended") && !has("it is endedX", "is ended"));
    }
}
