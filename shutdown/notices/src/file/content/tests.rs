use super::*;

const fn secs(seconds: u64) -> When {
    When::In(Duration::from_secs(seconds))
}

#[test]
fn a_deadline_and_a_text_are_read() {
    let noon = When::At("2026-11-20T12:00:00Z".parse().expect("a time"));
    let cases = [
        ("90s", secs(90), ""),
        ("90s\n", secs(90), ""),
        ("2m battery low", secs(120), "battery low"),
        ("1m30s: battery at 5 %\n", secs(90), "battery at 5 %"),
        ("1min 30s battery", secs(90), "battery"),
        ("2h 5m 1s early", secs(7501), "early"),
        ("1h30m 20s", secs(5420), ""),
        ("300s 5min of battery left", secs(300), "5min of battery left"),
        ("90s 30s early", secs(90), "30s early"),
        ("1min 90s", secs(60), "90s"),
        ("5m 30 minutes were wrong", secs(300), "30 minutes were wrong"),
        ("0s now", secs(0), "now"),
        ("2026-11-20T12:00:00Z", noon, ""),
        ("2026-11-20T13:00:00+01:00 - rack 7 moves", noon, "rack 7 moves"),
        ("\u{feff}2026-11-20T12:00:00Z\nrack 7\nmoves", noon, "rack 7\nmoves"),
    ];
    for (content, when, text) in cases {
        assert_eq!(parse(content), Ok((when, text)), "{content:?}");
    }
}

#[test]
fn what_is_no_deadline_is_refused_and_not_quoted() {
    for empty in ["", " \n\t", "\u{feff}"] {
        assert_eq!(parse(empty), Err(ContentError::Empty), "{empty:?}");
    }
    for wrong in
        ["soon", "120", "-5s", "2026-11-20", "12:00", "tomorrow 90s", "90 s", "root:$y$j9T$secret"]
    {
        let error = parse(wrong).expect_err(wrong);
        // The message never quotes the content, which may come from a confidential file.
        let error = winddown_shared::error_chain(&error).to_string();
        assert_eq!(error, ContentError::NoDeadline.to_string(), "{wrong:?}");
        assert!(error.contains("write a duration such as 90s"), "{error}");
    }
}
