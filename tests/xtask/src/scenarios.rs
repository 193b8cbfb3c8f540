//! Lists the tests of a commit that are not here any more, to check whether coverage was lost.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// The share of common lines in the body from which a test counts as renamed. Names are not compared: those of
/// unrelated tests share many words.
const ALIKE: f64 = 0.5;

/// What `git grep` takes in place of a commit: the files as they are now, with those that were not added yet.
const NOW: &str = "--untracked";

type Tests = BTreeMap<String, Test>;

/// A test function.
#[derive(Debug)]
struct Test {
    file: String,
    lines: Vec<String>,
}

/// Checks that `page` lists the tests of `before` that are not here any more, and why. If not, prints what it should
/// have.
///
/// # Errors
/// Git does not know the commit, or the page is not up to date.
pub(crate) fn check(repository: &Path, before: &str, page: &str) -> Result<()> {
    let (old, new) = (tests_at(repository, before)?, tests_at(repository, NOW)?);
    let section = section(before, &old, &new, page)?;
    if page.contains(&section) && !section.contains("| ? |") {
        return Ok(());
    }
    print!("{section}");
    bail!("tests/README.md differs: put this there, with a reason in place of each question mark")
}

/// How many tests of `old` have another name in `new`, and a table of those that went. The reasons are taken from the
/// same table in `page`.
fn section(before: &str, old: &Tests, new: &Tests, page: &str) -> Result<String> {
    let mut free: Vec<&Test> =
        new.iter().filter(|(name, _)| !old.contains_key(*name)).map(|(_, test)| test).collect();
    let (mut table, mut renamed, mut gone) = (String::new(), 0, 0);
    for (name, test) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
        let likeness: Vec<f64> =
            free.iter().map(|other| share(&test.lines, &other.lines)).collect();
        let best = (0..free.len()).max_by(|a, b| likeness[*a].total_cmp(&likeness[*b]));
        if let Some(best) = best.filter(|best| likeness[*best] >= ALIKE) {
            free.swap_remove(best);
            renamed += 1;
        } else {
            let reason = reason(page, name).unwrap_or("?");
            writeln!(table, "| `{name}` | `{}` | {reason} |", test.file)?;
            gone += 1;
        }
    }
    Ok(format!(
        "At {before} there were {} tests; {renamed} of them have another name, {gone} went.\n\n\
         | went | from | why |\n|---|---|---|\n{table}\n",
        old.len()
    ))
}

/// The last cell of the page's row about this test, unless it is `?`.
fn reason<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")))?;
    let reason = row.trim_end_matches('|').rsplit('|').next()?.trim();
    (reason != "?").then_some(reason)
}

/// The share of pieces that both have in common.
fn share<T: Ord>(one: impl IntoIterator<Item = T>, other: impl IntoIterator<Item = T>) -> f64 {
    let mut counts: BTreeMap<T, (u32, u32)> = BTreeMap::new();
    one.into_iter().for_each(|piece| counts.entry(piece).or_default().0 += 1);
    other.into_iter().for_each(|piece| counts.entry(piece).or_default().1 += 1);
    let common: u32 = counts.values().map(|(a, b)| a.min(b)).sum();
    let larger: u32 = counts.values().map(|(a, b)| a.max(b)).sum();
    f64::from(common) / f64::from(larger.max(1))
}

/// The tests of every Rust file at a commit, or [`NOW`], by name.
fn tests_at(repository: &Path, commit: &str) -> Result<Tests> {
    // One line for each line of each file: the commit if there is one, file, text.
    let text =
        git(repository, &["grep", "--no-color", "-I", "--null", "-e", "", commit, "--", "*.rs"])?;
    let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in text.lines() {
        let (place, text) = line.split_once('\0').context("a line without its file")?;
        let file = place.split_once(':').map_or(place, |(_, file)| file);
        files.entry(file).or_default().push(text);
    }
    let mut all = BTreeMap::new();
    for (file, lines) in files {
        for (name, lines) in tests_of(&lines) {
            all.insert(name, Test { file: file.to_owned(), lines });
        }
    }
    Ok(all)
}

/// The tests in these lines, with the lines of their bodies.
fn tests_of(lines: &[&str]) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut is_test = false;
    for (n, line) in lines.iter().enumerate() {
        let text = line.trim_start();
        is_test |= text.starts_with("#[test]") || text.starts_with("#[tokio::test");
        if text.starts_with("on_each_release!(") {
            let call: String = lines[n..].iter().copied().map(str::trim).collect();
            let name = call.split(':').next().and_then(|head| head.rsplit(['(', ',', ' ']).next());
            found.push((name.unwrap_or_default().to_owned(), Vec::new()));
        }
        let function = text.trim_start_matches("pub ").trim_start_matches("async ");
        if let Some(rest) = function.strip_prefix("fn ").filter(|_| is_test) {
            is_test = false;
            let name =
                rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(rest);
            let end = format!("{}}}", &line[..line.len() - text.len()]);
            let body = lines[n + 1..].iter().take_while(|line| !line.starts_with(&end));
            let body = body.map(|line| line.trim().to_owned()).filter(|line| !line.is_empty());
            found.push((name.to_owned(), body.collect()));
        }
    }
    found
}

pub(crate) fn git(repository: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).current_dir(repository).output()?;
    if !output.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{Test, Tests, reason, section, share, tests_of};

    #[test]
    fn a_test_is_found_with_its_body_in_whatever_form_it_stands() {
        let text = "fn no_test() {\n}\n#[test]\nfn plain() {\n    one();\n\n    two();\n}\n\
                    proptest! {\n    #[test]\n    fn property(n in 0..3) {\n        one();\n    }\n}\n\
                    #[tokio::test(start_paused = true)]\n#[allow(x)]\nasync fn slow() -> R {\n}\n\
                    on_each_release!(\n    since 257,\n    everywhere: body\n);\non_each_release!(here: body);";
        let found = tests_of(&text.lines().collect::<Vec<_>>());
        let names: Vec<&str> = found.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["plain", "property", "slow", "everywhere", "here"]);
        assert_eq!(found[0].1, ["one();", "two();"]);
        assert_eq!(found[1].1, ["one();"]);
    }

    fn tests(all: &[(&str, &str)]) -> Tests {
        let test = |(name, body): &(&str, &str)| {
            let lines = body.split(' ').map(str::to_owned).collect();
            ((*name).to_owned(), Test { file: "x.rs".to_owned(), lines })
        };
        all.iter().map(test).collect()
    }

    #[test]
    fn a_test_is_renamed_if_half_of_its_body_stayed_whatever_its_name_is() {
        let old = [("a", "1 2"), ("b_is_c", "3 4"), ("b_is_d", "5 6 7"), ("e", "8"), ("f", "8")];
        let new = [("a", "0"), ("b_is_no_d", "5"), ("x", "3 4 9"), ("y", "8"), ("z", "9")];
        let page = "| `b_is_d` | `old.rs` | said by `x` |\n";
        let expected = "At 123 there were 5 tests; 2 of them have another name, 2 went.\n\n\
                        | went | from | why |\n|---|---|---|\n\
                        | `b_is_d` | `x.rs` | said by `x` |\n| `f` | `x.rs` | ? |\n\n";
        let found = section("123", &tests(&old), &tests(&new), page).unwrap();
        assert_eq!(found, expected, "each new test is the other name of one test only");
    }

    #[test]
    fn likeness_is_the_share_of_what_is_in_both() {
        assert_eq!(share(["a", "b"], ["b", "a"]), 1.0);
        assert_eq!(share(["a", "a", "b"], ["a", "c"]), 0.25);
        assert_eq!(share::<&str>([], []), 0.0);
    }

    #[test]
    fn a_reason_is_the_last_cell_and_a_question_mark_is_none() {
        let page = "| `a` | `x.rs` | it was said twice |\n| `b` | `x.rs` | ? |\n";
        assert_eq!(reason(page, "a"), Some("it was said twice"));
        assert_eq!((reason(page, "b"), reason(page, "c")), (None, None));
    }
}
