//! `winddown-grammar RULES FILE...`: what Harper finds in these pages, one line each. RULES names the rules that are
//! off. Code is not read.
//!
//! Exit codes: 0 nothing found, 1 something found, 2 it could not be looked for.

use std::collections::BTreeSet;
use std::fs;
use std::process::ExitCode;

use harper_core::linting::{LintGroup, Linter as _};
use harper_core::parsers::{Markdown, MarkdownOptions};
use harper_core::{Dialect, Document, FstDictionary};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(rules) = arguments.next() else {
        eprintln!("usage: winddown-grammar RULES FILE...");
        return ExitCode::from(2);
    };
    match check(&rules, arguments) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Prints what is found, and gives how many there are.
fn check(rules: &str, files: impl Iterator<Item = String>) -> Result<usize, String> {
    let dictionary = FstDictionary::curated();
    let mut linter = LintGroup::new_curated(dictionary.clone(), Dialect::British);
    switch_off(&mut linter, &read(rules)?, rules)?;
    let mut found = 0;
    for file in files {
        let document =
            Document::new(&read(&file)?, &Markdown::new(MarkdownOptions::default()), &dictionary);
        let source = document.get_source();
        let mut lines = BTreeSet::new();
        for lint in linter.lint(&document) {
            let line = 1 + source[..lint.span.start].iter().filter(|char| **char == '\n').count();
            let text = document.get_span_content_str(&lint.span).replace('\n', " ");
            lines.insert((line, format!("`{text}`: {}", lint.message)));
        }
        found += lines.len();
        for (line, text) in lines {
            println!("{file}:{line}: {text}");
        }
    }
    Ok(found)
}

/// Switches the rules off that `text` names, one in each line, with the reason behind it.
fn switch_off(linter: &mut LintGroup, text: &str, file: &str) -> Result<(), String> {
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((rule, _)) = line.split_once(' ') else {
            return Err(format!("{file}: {line}: say why it is off"));
        };
        if !linter.contains_key(rule) {
            return Err(format!("{file}: {rule}: Harper has no such rule"));
        }
        linter.config.set_rule_enabled(rule, false);
    }
    Ok(())
}

fn read(file: &str) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))
}
