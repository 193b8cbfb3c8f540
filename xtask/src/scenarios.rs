//! Lists the tests of one commit that another does not have, to check whether coverage was lost.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// The share of common words in the name, or of common lines in the body, from which a test counts as renamed.
const ALIKE: f64 = 0.5;

/// A test function.
#[derive(Debug)]
struct Test {
    file: String,
    lines: Vec<String>,
}

/// Prints a table of the tests of `before` that `after` does not have. Renamed tests are not listed. The reasons are
/// taken from the same table in `page`.
///
/// # Errors
/// Git does not know a commit, or a row has no reason yet; the table is printed before that.
pub(crate) fn show(repository: &Path, before: &str, after: &str, page: &str) -> Result<()> {
    let (old, new) = (tests_at(repository, before)?, tests_at(repository, after)?);
    let mut free: Vec<(&String, &Test)> =
        new.iter().filter(|(name, _)| !old.contains_key(*name)).collect();
    let (mut table, mut renamed, mut gone, mut unexplained) = (String::new(), 0, 0, 0);
    for (name, test) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
        let alike = |(other, body): &(&String, &Test)| {
            f64::max(share(name.split('_'), other.split('_')), share(&test.lines, &body.lines))
        };
        let likeness: Vec<f64> = free.iter().map(alike).collect();
        let best = (0..free.len()).max_by(|a, b| likeness[*a].total_cmp(&likeness[*b]));
        if let Some(best) = best.filter(|best| likeness[*best] >= ALIKE) {
            free.swap_remove(best);
            renamed += 1;
            continue;
        }
        gone += 1;
        let reason = reason(page, name);
        unexplained += usize::from(reason.is_none());
        writeln!(table, "| `{name}` | `{}` | {} |", test.file, reason.unwrap_or("?"))?;
    }
    println!(
        "At {before} there were {} tests, at {after} {}: {renamed} have another name, {} are new, {gone} went.\n",
        old.len(),
        new.len(),
        free.len()
    );
    println!("| went | from | why |\n|---|---|---|\n{table}");
    match unexplained {
        0 => Ok(()),
        _ => bail!("{unexplained} without a reason: write it in place of the question mark"),
    }
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

/// The tests of every Rust file at a commit, by name.
fn tests_at(repository: &Path, commit: &str) -> Result<BTreeMap<String, Test>> {
    // One line for each line of each file: commit, file, text.
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
    use super::{reason, share, tests_of};

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
