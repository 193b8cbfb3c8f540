//! Compares output with what a page shows.

/// Stands for any number of lines.
const MORE: &str = "…";
const UNITS: [&str; 9] = ["ms", "s", "m", "h", "%", "KiB", "MiB", "GiB", "MB"];

/// Checks that `said` matches `shown`, line by line: any number of lines where only `…` is shown, and any durations,
/// sizes and times. Consecutive blanks count as one, so that columns may be narrower on a page.
///
/// # Errors
/// The first shown line that is missing.
pub(crate) fn shows(shown: &[&str], said: &str) -> Result<(), String> {
    let mut rest: Vec<String> =
        said.lines().map(plain).filter(|line| !line.is_empty()).rev().collect();
    let mut skip = false;
    for line in shown.iter().map(|line| plain(line)).filter(|line| !line.is_empty()) {
        if line == MORE {
            skip = true;
            continue;
        }
        loop {
            match rest.pop() {
                Some(next) if next == line => break,
                Some(_) if skip => {}
                _ => return Err(line),
            }
        }
        skip = false;
    }
    match rest.pop() {
        Some(next) if !skip => Err(format!("nothing after the last line, there is `{next}`")),
        _ => Ok(()),
    }
}

/// The line with single blanks, and `#` for numbers that vary.
fn plain(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_unit = |word: Option<&&str>| word.is_some_and(|word| UNITS.contains(&bare(word)));
    let plain = words.iter().enumerate().map(|(n, word)| {
        let word = *word;
        let digits = |c: char| c.is_ascii_digit() || ".-:".contains(c);
        let core = bare(word);
        let number = core.trim_end_matches(char::is_alphabetic).trim_end_matches('%');
        // A timestamp has a T between date and time.
        let is_number = !number.is_empty() && number.replacen('T', "", 1).chars().all(digits);
        let unit = core.strip_prefix(number).unwrap_or_default();
        let is_time = number.contains(':') || number.matches('-').count() == 2;
        let is_process = n.checked_sub(1).is_some_and(|before| bare(words[before]) == "PID");
        match is_number
            && (is_time || is_process || UNITS.contains(&unit) || is_unit(words.get(n + 1)))
        {
            // A slow machine may need seconds where a fast one shows milliseconds.
            true => word.replacen(number, "#", 1).replace("#ms", "#s"),
            false => word.to_owned(),
        }
    });
    plain.collect::<Vec<_>>().join(" ")
}

/// The word without the punctuation around it.
fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| "(),;:.".contains(c))
}

#[test]
fn lengths_may_differ_and_nothing_else() {
    let page = ["12 pods started in 78ms:", "  …", "all terminated in 4 s (budget 30 s)."];
    let said =
        "12 pods started in 130ms:\n\n  0 web\n  1 dns\nall terminated in 3.9 s (budget 30 s).\n";
    assert_eq!(shows(&page, said), Ok(()));
    assert_eq!(shows(&page, &said.replace("130ms", "1.5s")), Ok(()));
    for (from, to) in [("12 pods", "11 pods"), ("budget", "of"), ("web", "web\n…")] {
        let said = said.replace(from, to);
        assert_eq!(shows(&page, &said).is_ok(), from == "web", "{said}");
    }
    assert!(shows(&page[..1], said).is_err(), "more is said than shown");
    assert!(shows(&["…", "last"], "first\nlast\nmore").is_err());
    assert_eq!(shows(&["at 07:12:01 on 2026-11-20"], "at 09:00:00 on 2027-01-02"), Ok(()));
    assert_eq!(
        shows(&["(PID 7) until 2026-11-20T07:12:01Z"], "(PID 612) until 2027-01-02T09:00:00Z"),
        Ok(())
    );
    assert!(shows(&["node-1 has 3 pods"], "node-1 has 4 pods").is_err());
}
