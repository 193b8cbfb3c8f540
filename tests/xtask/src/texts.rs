//! The texts that the product shows to people: log lines, errors, statuses, the help of metrics and of options.

use std::path::Path;

use anyhow::{Result, anyhow};
use proc_macro2::{TokenStream, TokenTree};
use syn::Lit;

use crate::rooms;

/// Macros whose texts no user reads.
const FOR_DEVELOPERS: [&str; 9] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "cfg",
    "concat",
    "debug_assert",
    "include_str",
    "trace",
    "unreachable",
];

/// Attributes whose texts users read.
const FOR_USERS: [&str; 4] = ["arg", "clap", "command", "error"];

/// Macros and derives whose documentation users read: help and manual are made from it.
const DOCUMENTED: [&str; 6] =
    ["Args", "Parser", "Subcommand", "ValueEnum", "config_keys", "options"];

/// Prints each text with its file, its line and what makes it: a macro, an attribute or a function.
///
/// # Errors
/// A source cannot be read.
pub(crate) fn show(repository: &Path) -> Result<()> {
    for (place, text) in with_places(repository)? {
        println!("{place}  {text}");
    }
    Ok(())
}

/// Each text behind what makes it, with its file and line.
///
/// # Errors
/// A source cannot be read.
pub(crate) fn with_places(repository: &Path) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for source in rooms::sources(repository)?.iter().flat_map(|(_, sources)| sources) {
        let path = source.path.strip_prefix(repository).unwrap_or(&source.path).display();
        let found = texts(&source.text).map_err(|wrong| anyhow!("{path}: {wrong}"))?;
        let with_place = |text: Text| {
            (format!("{path}:{}", text.line), format!("{}  {}", text.kind, text.words))
        };
        all.extend(found.into_iter().map(with_place));
    }
    Ok(all)
}

#[derive(Debug)]
struct Text {
    line: usize,
    kind: String,
    words: String,
}

fn texts(source: &str) -> Result<Vec<Text>> {
    let tokens: TokenStream = source.parse().map_err(|wrong| anyhow!("{wrong}"))?;
    let mut found = Vec::new();
    read(tokens, "", false, &mut found);
    Ok(found)
}

/// Adds the texts of `tokens`, which `kind` makes. `documents`: users read the documentation, too.
fn read(tokens: TokenStream, kind: &str, documents: bool, found: &mut Vec<Text>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut is_documented = documents;
    let mut is_of_tests = false;
    for (at, token) in tokens.iter().enumerate() {
        let before = |back: usize| at.checked_sub(back).map(|at| tokens[at].to_string());
        match token {
            // The documentation of a file.
            TokenTree::Group(_)
                if before(2).as_deref() == Some("#") && before(1).as_deref() == Some("!") => {}
            TokenTree::Group(group) if before(1).as_deref() == Some("#") => {
                let text = group.stream().to_string();
                let name = text.split([' ', '(', '=']).next().unwrap_or_default();
                is_of_tests |= text.replace(' ', "") == "cfg(test)";
                let derived = name == "derive" && DOCUMENTED.iter().any(|one| text.contains(one));
                is_documented |= derived;
                if FOR_USERS.contains(&name) || name == "doc" && is_documented {
                    read(group.stream(), name, is_documented, found);
                }
            }
            TokenTree::Group(group) => {
                let is_body = group.delimiter() == proc_macro2::Delimiter::Brace;
                if is_of_tests && is_body {
                    is_of_tests = false;
                    continue;
                }
                let mark = before(1).is_some_and(|mark| mark == "!");
                let name = before(if mark { 2 } else { 1 }).filter(|_| mark || !is_body);
                let name = name.filter(|name| name.starts_with(char::is_alphabetic));
                let name = name.as_deref().unwrap_or(kind);
                if !FOR_DEVELOPERS.contains(&name) {
                    let documents = is_documented || mark && DOCUMENTED.contains(&name);
                    read(group.stream(), name, documents, found);
                }
                is_documented = if is_body { documents } else { is_documented };
            }
            TokenTree::Literal(literal) => {
                let words = match syn::parse_str(&literal.to_string()) {
                    Ok(Lit::Str(text)) => text.value(),
                    _ => continue,
                };
                // A name, a key or a format of placeholders alone is no text.
                if words.trim().contains(' ') && words.contains(char::is_alphabetic) {
                    let line = literal.span().start().line;
                    found.push(Text {
                        line,
                        kind: kind.to_owned(),
                        words: words.replace('\n', "⏎"),
                    });
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_with_what_makes_them_and_without_tests_and_comments() {
        let source = "//! Not shown.\n/// Not shown.\nfn a() { info!(pod = %pod, \"the pod {pod} exited\"); b(\"a word\", \"key\"); }\n\
            #[derive(Error)] enum E { #[error(\"cannot read {0}\")] Read(String) }\n\
            #[derive(clap::Args)]\nstruct Wait {\n    /// How long to wait.\n    #[arg(help_heading = \"Some options\")] time: u8 }\n\
            /// Not shown.\nstruct After;\n\
            options! { section {\n    /// What it is for.\n    field: bool } }\n\
            #[cfg(test)] mod tests { fn a() { info!(\"not by users\") } }\nfn b() { assert!(true, \"not by users\") }";
        let found = texts(source).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|text| format!("{} {} {}", text.line, text.kind, text.words))
            .collect();
        assert_eq!(
            found,
            [
                "3 info the pod {pod} exited",
                "3 b a word",
                "4 error cannot read {0}",
                "7 doc  How long to wait.",
                "8 arg Some options",
                "12 doc  What it is for.",
            ]
        );
    }
}
