//! What the tests promise: the name of each is a sentence. A promise that is gone since a revision is still shown by
//! another test, or it is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, anyhow, ensure};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// How much of a machine a test needs: pure code, a paused clock, real sockets or programs, a node.
type Level = &'static str;

/// The name of a test that a macro is called with.
const HOLE: &str = "$";

/// A test's level and its name as a sentence, with the files that have such a one.
type Promises = BTreeMap<(Level, String), Vec<String>>;

/// Prints each promise with its level, its crate and its file there.
///
/// # Errors
/// A source cannot be read.
pub(crate) fn show(repository: &Path) -> Result<()> {
    for ((level, sentence), files) in of_all(&sources(repository, None)?)? {
        for file in files {
            println!("{level}  {}  {sentence}", with_crate(&file));
        }
    }
    Ok(())
}

/// Prints each promise that is gone (`-`) or came (`+`) since a revision, wherever its test is. One that is shown once
/// less at its level is gone as well.
///
/// # Errors
/// A source cannot be read, or there is no such revision.
pub(crate) fn show_since(repository: &Path, revision: &str) -> Result<()> {
    let before = of_all(&sources(repository, Some(revision))?)?;
    let now = of_all(&sources(repository, None)?)?;
    for (sign, of, other) in [("-", &before, &now), ("+", &now, &before)] {
        for ((level, sentence), files) in of {
            let there = other.get(&(*level, sentence.clone())).map_or(0, Vec::len);
            for file in files.iter().skip(there) {
                println!("{sign} {level}  {}  {sentence}", with_crate(file));
            }
        }
    }
    Ok(())
}

/// The path of each Rust file with its text: of a revision, or as they are now.
fn sources(repository: &Path, revision: Option<&str>) -> Result<Vec<(String, String)>> {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).current_dir(repository).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    let listed = match revision {
        Some(revision) => git(&["ls-tree", "-r", "--name-only", revision])?,
        None => git(&["ls-files", "--cached", "--others", "--exclude-standard"])?,
    };
    let rust = listed.lines().filter(|path| path.ends_with(".rs"));
    let is_here = |path: &&str| revision.is_some() || repository.join(path).exists();
    rust.filter(is_here)
        .map(|path| {
            let text = match revision {
                Some(revision) => git(&["show", &format!("{revision}:{path}")])?,
                None => std::fs::read_to_string(repository.join(path))?,
            };
            Ok((path.to_owned(), text))
        })
        .collect()
}

fn of_all(sources: &[(String, String)]) -> Result<Promises> {
    let mut parsed = Vec::new();
    for (file, text) in sources {
        let tokens: TokenStream =
            text.parse().map_err(|wrong| anyhow!("{wrong}")).with_context(|| file.clone())?;
        parsed.push((file, text, tokens));
    }
    let mut macros = BTreeSet::from(["then".to_owned()]);
    // Macros that make tests by way of others are found one after the other.
    while parsed.iter().fold(false, |more, (_, _, tokens)| makers(tokens, &mut macros) || more) {}
    let mut promises = Promises::new();
    for (file, text, tokens) in parsed {
        let found = names(&tokens, &macros, false);
        for (attribute, name) in found.into_iter().filter(|(_, name)| name != HOLE) {
            let of_one = (level(file, text, &attribute), name.replace('_', " "));
            promises.entry(of_one).or_default().push(file.clone());
        }
    }
    Ok(promises)
}

/// Adds the macros that make tests. Returns whether there are more than before.
fn makers(tokens: &TokenStream, macros: &mut BTreeSet<String>) -> bool {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let before = macros.len();
    for four in tokens.windows(4) {
        if let [TokenTree::Ident(rules), _, TokenTree::Ident(name), TokenTree::Group(body)] = four
            && rules == "macro_rules"
            && (!names(&body.stream(), macros, true).is_empty()
                || macros.iter().any(|maker| body.to_string().contains(&format!(" {maker} !"))))
        {
            macros.insert(name.to_string());
        }
    }
    macros.len() > before
}

/// The tests in `tokens`, each with its attribute. What a macro makes tests from names them in its arguments.
fn names(
    tokens: &TokenStream,
    macros: &BTreeSet<String>,
    is_of_macro: bool,
) -> Vec<(String, String)> {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let mut found = Vec::new();
    let mut attribute = None;
    for (at, token) in tokens.iter().enumerate() {
        let before = |back: usize| at.checked_sub(back).map(|at| tokens[at].to_string());
        match token {
            TokenTree::Group(group) => {
                let text = group.stream().to_string();
                let last = text.split(['(', '=']).next().unwrap_or_default();
                let is_test = ["test", "tokio :: test", "tokio::test"].contains(&last.trim());
                if before(1).as_deref() == Some("#") {
                    attribute = if is_test { Some(text) } else { attribute };
                    continue;
                }
                let is_mark = |back| before(back).as_deref() == Some("!");
                // Of a call, or of the definition.
                let maker = if is_mark(1) { before(2) } else { before(1).filter(|_| is_mark(2)) };
                let made = is_of_macro || maker.is_some_and(|maker| macros.contains(&maker));
                found.extend(names(&group.stream(), macros, made));
            }
            TokenTree::Ident(name) => {
                let name = name.to_string();
                let is_name = before(1).as_deref() == Some("fn");
                let is_hole = before(1).as_deref() == Some("$");
                let is_called = matches!(tokens.get(at + 1), Some(TokenTree::Group(arguments))
                    if arguments.delimiter() == Delimiter::Parenthesis);
                let is_sentence = name.matches('_').count() > 2 && !is_called;
                if is_name && let Some(attribute) = attribute.take() {
                    found.push((attribute, name));
                } else if is_of_macro && !is_hole && !is_name && is_sentence {
                    found.push((String::new(), name));
                } else if is_hole && is_of_macro && attribute.is_some() {
                    // `fn $name`: the calls have the names.
                    found.extend(attribute.take().map(|attribute| (attribute, HOLE.to_owned())));
                }
            }
            _ => {}
        }
    }
    found
}

fn level(file: &str, text: &str, attribute: &str) -> Level {
    let has = |words: &str| text.contains(words);
    match attribute {
        _ if file.starts_with("tests/node/") || has("winddown_node_tests") => "L4",
        _ if attribute.contains("start_paused") => "L2",
        "test" if has("start_paused(true)") => "L2",
        "test" if !has("Command::new") => "L1",
        _ => "L3",
    }
}

/// `file` with its crate apart.
fn with_crate(file: &str) -> String {
    let parts =
        ["/src/", "/tests/"].map(|folder| file.split_once(folder).map(|(one, _)| one.len()));
    let end = parts.into_iter().flatten().min().unwrap_or(0);
    format!("{}  {}", &file[..end], file[end..].trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_the_name_of_a_test_or_of_a_row_that_a_macro_makes_one_of() {
        let makers = "macro_rules! on { ($($name:ident)*) => { $( #[tokio::test] async fn $name() { f() } )* }; }\n\
            macro_rules! both { ($($rows:tt)*) => { on! { $($rows)* } }; }";
        let tests = "both! { a_row_of_a_macro another_row_of_it }\n\
            #[tokio::test(start_paused = true)] async fn the_clock_stands() { assert!(not_a_test_at_all); }\n\
            proptest! { #[test] fn all_numbers(n: u8) {} }\n fn no_test_but_a_function() {}";
        let files = [("a/src/a.rs", makers), ("a/b/tests/b.rs", tests)];
        let found = of_all(&files.map(|(file, text)| (file.to_owned(), text.to_owned()))).unwrap();
        let found: Vec<_> = found.keys().map(|(level, name)| format!("{level} {name}")).collect();
        assert_eq!(
            found,
            [
                "L1 all numbers",
                "L2 the clock stands",
                "L3 a row of a macro",
                "L3 another row of it"
            ]
        );
        assert_eq!(with_crate("a/b/tests/b.rs"), "a/b  tests/b.rs");
        assert_eq!(with_crate("tests/node/tests/b.rs"), "tests/node  tests/b.rs");
    }
}
