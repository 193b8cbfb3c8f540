use super::*;

fn root(text: &str) -> Rc<YamlNode> {
    parse(text).unwrap()
}

fn error(text: &str) -> String {
    let problem = parse(text).unwrap_err();
    format!("{:?}:{:?} {}", problem.line, problem.column, problem.message)
}

fn meaning(text: &str) -> String {
    let root = root(&format!("[{text}]"));
    match &root.value {
        Value::List(items) => match &items[0].value {
            Value::Scalar(scalar) => format!("{:?}", scalar.meaning()),
            other => format!("{other:?}"),
        },
        other => format!("{other:?}"),
    }
}

#[test]
fn scalars_mean_what_kubernetes_tools_take_them_for() {
    let table = [
        ("~", "Null"),
        ("null", "Null"),
        ("yes", "Bool(true)"),
        ("Off", "Bool(false)"),
        ("y", "Bool(true)"),
        ("N", "Bool(false)"),
        ("\"yes\"", "Text(\"yes\")"),
        ("'5'", "Text(\"5\")"),
        ("!!str 5", "Text(\"5\")"),
        ("0", "Int(0)"),
        ("-7", "Int(-7)"),
        ("+7", "Int(7)"),
        ("0644", "Int(420)"),
        ("0o644", "Int(420)"),
        ("0x1F", "Int(31)"),
        ("0b101", "Int(5)"),
        ("0899", "Int(899)"),
        ("5.0", "Int(5)"),
        ("--7", "Text(\"--7\")"),
        ("1.10", "Float(1.1)"),
        ("1e3", "Int(1000)"),
        (".5", "Float(0.5)"),
        ("-.inf", "Float(-inf)"),
        ("inf", "Text(\"inf\")"),
        ("nan", "Text(\"nan\")"),
        ("1.2.3", "Text(\"1.2.3\")"),
        ("1_000", "Int(1000)"),
        ("_1", "Text(\"_1\")"),
        ("12h", "Text(\"12h\")"),
        ("e5", "Text(\"e5\")"),
        ("2026-01-31", "Text(\"2026-01-31\")"),
    ];
    for (text, wanted) in table {
        assert_eq!(meaning(text), wanted, "{text}");
    }
}

#[test]
fn a_tag_is_refused_however_its_value_is_written() {
    let refused = "this tag is not understood: remove it";
    for value in ["!!binary aGk=", "!!binary \"aGk=\"", "!!binary |\n  aGk=", "!own 'x'"] {
        assert!(error(&format!("a: {value}\n")).ends_with(refused), "{value}");
    }
    for value in ["!!str 5", "!!str \"5\"", "!!str |\n  5"] {
        assert_eq!(root(&format!("a: {value}\n")).get("a").unwrap().kind(), "a string", "{value}");
    }
}

#[test]
fn keys_and_values_know_their_lines() {
    let root = root("# first\na:\n  b: [x,\n    y]\n");
    let (key, b) = root.get("a").and_then(|a| a.entry("b")).unwrap();
    assert_eq!(key.at, Position { line: 3, column: 3 });
    let Value::List(items) = &b.value else { panic!("{b:?}") };
    assert_eq!(items[1].at, Position { line: 4, column: 5 });
}

#[test]
fn documents_without_content_do_not_count() {
    assert!(root("---\n# licence\n---\na: 1\n---\n").get("a").is_some());
    assert!(root("%YAML 1.1\n---\na: 1\n...\n").get("a").is_some());
}

#[test]
fn an_anchor_can_be_used_again_and_merged() {
    let root = root("base: &b {x: 1, y: 2}\nuse: *b\nmore:\n  <<: *b\n  y: 3\n");
    assert_eq!(root.get("use").unwrap().get("y").unwrap().describe(), "the number `2`");
    let more = root.get("more").unwrap();
    assert_eq!(more.get("x").unwrap().describe(), "the number `1`");
    assert_eq!(more.get("y").unwrap().describe(), "the number `3`");
}

#[test]
fn an_anchor_of_one_document_is_unknown_in_the_next() {
    assert!(error("---\n&a ~\n---\nb: *a\n").contains("unknown anchor"));
}

#[test]
fn nesting_through_aliases_is_limited_too() {
    let level = |n: usize, inner: &str| format!("{}{inner}{}", "[".repeat(n), "]".repeat(n));
    let text = format!("a: &a {}\nb: &b {}\n", level(30, ""), level(30, "*a"));
    assert!(parse(&text).is_ok());
    let text = format!("{text}c: {}\n", level(30, "*b"));
    assert_eq!(error(&text), "Some(3):Some(34) nested deeper than 64 levels");
}

#[test]
fn aliases_that_multiply_are_refused_before_they_are_many() {
    let mut text = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (last, next) in "abcdefgh".chars().zip("bcdefghi".chars()) {
        let ten = vec![format!("*{last}"); 10].join(", ");
        text.push_str(&format!("{next}: &{next} [{ten}]\n"));
    }
    let refused = "more than 100000 values with all aliases followed";
    assert!(error(&text).ends_with(refused), "{}", error(&text));
    // The list itself is a value too.
    assert!(parse(&"- x\n".repeat(99_999)).is_ok());
    assert!(error(&"- x\n".repeat(100_001)).ends_with(refused));
}

#[test]
fn a_key_that_is_written_twice_is_refused_and_not_quoted() {
    let twice = "Some(3):Some(1) this key is written twice, first in line 1: remove one of them";
    assert_eq!(error("s3cret: 1\nb: 2\ns3cret: 3\n"), twice);
    assert_eq!(error("{\n\"a\": 1,\n\"a\": 2}"), twice.replace("line 1", "line 2"));
}

#[test]
fn a_lenient_reader_takes_the_last_of_equal_keys_and_the_first_document() {
    let read = |text: &str| {
        let root =
            parse_first_leniently(text).unwrap_or_else(|problem| panic!("{text}: {problem}"));
        root.map(|root| {
            let of = |key| root.entry(key).map(|(key, node)| (node.describe(), key.at.line));
            (of("a"), of("b"))
        })
    };
    let number = |text: &str, line| Some((format!("the number `{text}`"), line));
    for (text, wanted) in [
        ("a: 1\nb: 2\na: 3\n", Some((number("3", 3), number("2", 2)))),
        ("{\"a\": 1,\n \"b\": 2,\n \"a\": 3}", Some((number("3", 3), number("2", 2)))),
        ("---\na: 1\n---\n", Some((number("1", 2), None))),
        ("a: 1\n---\nb: [\n", Some((number("1", 1), None))),
        ("a: 1\n...\n", Some((number("1", 1), None))),
        ("a: 1\na: 2\nx: &x {b: 1, b: 2}\n<<: *x\n", Some((number("2", 2), number("2", 3)))),
        ("", None),
        ("# nothing\n", None),
        ("---\n---\na: 1\n", None),
    ] {
        assert_eq!(read(text), wanted, "{text:?}");
    }
    assert!(parse_first_leniently("a: [\n").is_err());
    let twice: String = (0..40_000).map(|n| format!("k{}: {n}\n", n % 20_000)).collect();
    let root = parse_first_leniently(&twice).unwrap().unwrap();
    assert_eq!(root.get("k7").unwrap().text(), Some("20007"));
}

#[test]
fn json_is_read_as_it_is() {
    let text =
        "{\n\t\"a\": \"x\\/y \\u00e9 \\ud83d\\ude00\",\n\t\"b\": [1, true, null, -2.5e3]\n}\n";
    let root = root(text);
    assert_eq!(root.get("a").unwrap().describe(), "the text `x/y é 😀`");
    let Value::List(items) = &root.get("b").unwrap().value else { panic!("{root:?}") };
    let shown: Vec<String> = items.iter().map(|item| item.describe()).collect();
    assert_eq!(shown, ["the number `1`", "the bool `true`", "nothing", "the number `-2.5e3`"]);
}

#[test]
fn a_large_mapping_is_read() {
    let text: String = (0..40_000).map(|n| format!("k{n}: v\n")).collect();
    assert!(root(&text).get("k39999").is_some());
}

#[test]
fn a_byte_order_mark_is_skipped() {
    assert_eq!(text(b"\xef\xbb\xbfa: 1").unwrap(), "a: 1");
}

#[test]
fn names_follow_the_rules_of_kubernetes() {
    use names::*;

    assert!(is_dns_label("a-1") && !is_dns_label("-a") && !is_dns_label("") && !is_dns_label("A"));
    assert!(is_dns_label(&"a".repeat(63)) && !is_dns_label(&"a".repeat(64)));
    assert!(is_dns_subdomain("a.b-c.d") && !is_dns_subdomain("a..b") && !is_dns_subdomain("a_b"));
    assert!(is_qualified_name("app.kubernetes.io/name") && is_qualified_name("A_b.c"));
    assert!(!is_qualified_name("/a") && !is_qualified_name("a/") && !is_qualified_name("a/b/c"));
    assert!(is_label_value("") && is_label_value("1.10") && !is_label_value("-a"));
    assert!(is_port_name("http-1") && !is_port_name("8080") && !is_port_name("a--b"));
    assert!(!is_port_name("a-name-that-is-long"));
}
