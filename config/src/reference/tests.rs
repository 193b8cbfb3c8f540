//! The table against the reader: every name, bound, choice and default.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::{API_VERSION, ConfigError, KIND, Warning};
use winddown_yaml::requested;

/// Why `fields` are refused; none when they are accepted.
fn refusal(fields: &str) -> Option<String> {
    let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}");
    match parsed(&text) {
        Ok(_) => None,
        Err(ConfigError::Invalid(problems)) => Some(problems.to_string()),
        Err(other) => panic!("{other}"),
    }
}

fn parsed(text: &str) -> Result<(Config, Vec<Warning>), ConfigError> {
    Config::parse(Path::new("c"), text.as_bytes())
}

/// A file in which the field at the end of `path` has this value, with what has to stand beside it.
fn with(path: &[&Field], value: &str) -> String {
    let (outer, inner) = (path[0], path.get(1));
    let beside = match outer.name {
        "shutdownGracePeriodCriticalPods" | "shutdownEndpointDrainPeriod" => {
            "shutdownGracePeriod: 24h\n"
        }
        _ => "",
    };
    let Some(inner) = inner else { return format!("{beside}{}: {value}\n", outer.name) };
    match outer.kind {
        Kind::List { of, .. } => {
            let rest = of.iter().filter(|field| field.name != inner.name).map(|field| {
                let value = match field.kind {
                    Kind::Choice(words) => words[0].to_owned(),
                    Kind::Integer { least, .. } => least.max(0).to_string(),
                    _ => "example.com/a".to_owned(),
                };
                match field.name {
                    "value" => format!(", {}: x", field.name),
                    name => format!(", {name}: {value}"),
                }
            });
            let rest: String = rest.collect();
            format!("{beside}{}: [{{{}: {value}{rest}}}]\n", outer.name, inner.name)
        }
        _ => format!("{beside}{}: {{{}: {value}}}\n", outer.name, inner.name),
    }
}

/// Every field with the fields around it, outermost first.
fn all() -> Vec<Vec<&'static Field>> {
    let mut all = Vec::new();
    for field in fields() {
        all.push(vec![field]);
        if let Kind::Object(below) | Kind::List { of: below, .. } = field.kind {
            all.extend(below.iter().map(|inner| vec![field, inner]));
        }
    }
    all
}

fn name_of(path: &[&Field]) -> String {
    path.iter().map(|field| field.name).collect::<Vec<_>>().join(".")
}

/// A field that is read and not in the table is added to it, in config/src/reference/.
#[test]
fn what_the_reader_asks_for_is_what_the_table_has() {
    requested::take();
    // Lists and mappings have to be there, so that what is in them is asked for.
    let mut text = String::new();
    for field in fields() {
        match field.kind {
            Kind::Object(_) => text.push_str(&format!("{}: {{}}\n", field.name)),
            Kind::List { .. } => text.push_str(&format!("{}: [{{}}]\n", field.name)),
            _ => {}
        }
    }
    let _ = refusal(&text);
    let read: BTreeSet<String> =
        requested::take().into_iter().map(|field| field.replace("[0]", "")).collect();
    let mut table: BTreeSet<String> = all().iter().map(|path| name_of(path)).collect();
    table.extend(["apiVersion".to_owned(), "kind".to_owned()]);
    assert_eq!(read, table);
}

#[test]
fn every_default_is_of_a_field_in_the_table() {
    for (name, _) in Config::default().entries() {
        assert!(field(name).is_some(), "{name} is printed, and not in the table");
    }
}

#[test]
fn a_field_has_either_a_default_or_an_example() {
    for path in all() {
        let field = path.last().unwrap();
        let listed = matches!(path[0].kind, Kind::List { .. }) && path.len() > 1;
        let default = match path[..] {
            [top] => default_of(top.name),
            _ => default_of(path[0].name).and_then(|outer| outer.get(field.name).cloned()),
        };
        let object = matches!(field.kind, Kind::Object(_));
        let shown = default.is_some() == field.example.is_empty();
        assert!(listed || object || shown, "{}: {default:?}", name_of(&path));
    }
}

#[test]
fn the_reader_accepts_the_bounds_and_nothing_beyond() {
    let duration = |text: &str| winddown_shared::parse_duration(text).unwrap();
    let step = Duration::from_millis(1);
    for path in all() {
        let (mut good, mut bad) = (Vec::new(), vec!["[x]".to_owned()]);
        match path.last().unwrap().kind {
            Kind::Integer { least, most, .. } => {
                good = vec![least.to_string(), most.to_string()];
                bad.extend([(least - 1).to_string(), (most + 1).to_string(), "1.5".to_owned()]);
            }
            Kind::Duration { least, most, zero } => {
                if !least.is_empty() {
                    good.push(least.to_owned());
                    let below = duration(least).checked_sub(step);
                    bad.push(
                        below.map_or("-1s".to_owned(), |below| format!("{}ms", below.as_millis())),
                    );
                }
                if most.is_empty() {
                    good.push("720h".to_owned());
                } else {
                    good.push(most.to_owned());
                    bad.push(format!("{}ms", (duration(most) + step).as_millis()));
                }
                good.extend(zero.then(|| "0s".to_owned()));
                bad.push("soon".to_owned());
            }
            Kind::Choice(words) => {
                good = words.iter().map(|word| (*word).to_owned()).collect();
                bad.push("unheard-of".to_owned());
            }
            Kind::Flag => {
                good = vec!["true".to_owned(), "false".to_owned()];
                bad.push("maybe".to_owned());
            }
            Kind::Path { empty } => {
                good = vec!["/a/b".to_owned()];
                bad.push("a/b".to_owned());
                if empty { &mut good } else { &mut bad }.push("\"\"".to_owned());
            }
            Kind::Size { least } => {
                good = vec![least.to_owned(), "1Gi".to_owned()];
                bad.extend(["1".to_owned(), "big".to_owned()]);
            }
            Kind::Percent => {
                good = vec!["0.5%".to_owned(), "100%".to_owned()];
                bad.extend(["0%".to_owned(), "101%".to_owned(), "10".to_owned()]);
            }
            Kind::Threshold | Kind::Quantity => {
                good = vec!["100Mi".to_owned(), "10%".to_owned()];
                bad.push("some".to_owned());
            }
            Kind::Addresses => {
                good = vec!["[10.96.0.10, 'fd00::a']".to_owned(), "[]".to_owned()];
                bad.extend(
                    ["[ten]", "10.96.0.10", "[10.96.0.300]", "[[10.96.0.1]]"].map(str::to_owned),
                );
            }
            Kind::Words(words) => good = vec![format!("[{}]", words.join(", ")), "[]".to_owned()],
            Kind::Map { .. } | Kind::Object(_) | Kind::List { .. } | Kind::Text { .. } => {}
        }
        if matches!(path.last().unwrap().kind, Kind::Words(_)) {
            bad = vec!["x".to_owned()];
        }
        for value in good {
            let file = with(&path, &value);
            assert_eq!(refusal(&file), None, "{file}");
        }
        for value in bad {
            let file = with(&path, &value);
            assert!(refusal(&file).is_some(), "accepted:\n{file}");
        }
    }
}

#[test]
fn every_example_is_accepted_and_every_name_in_a_mapping_is_known() {
    for field in fields().filter(|field| !field.example.is_empty()) {
        let indented: String = field.example.lines().map(|line| format!("\n  {line}")).collect();
        let beside = match field.name {
            "evictionSoft" => "evictionSoftGracePeriod: {memory.available: 1m}\n",
            _ => "",
        };
        let file = match field.kind {
            Kind::Map { .. } | Kind::List { .. } => format!("{beside}{}:{indented}\n", field.name),
            _ => format!("{}: {}\n", field.name, field.example),
        };
        assert_eq!(refusal(&file), None, "{file}");
    }
    for field in fields() {
        let Kind::Map { names: Names::Words(words), .. } = field.kind else { continue };
        for word in words {
            let file = format!("{}: {{{word}: 1m}}\n", field.name);
            let unknown = refusal(&file).is_some_and(|why| why.contains("signal"));
            assert!(!unknown, "{file}{:?}", refusal(&file));
        }
    }
}

#[test]
fn documentation_is_in_whole_sentences_and_leaves_to_live_when_it_takes_effect() {
    for path in all() {
        let field = path.last().unwrap();
        let (name, doc) = (name_of(&path), field.doc);
        assert!(doc.ends_with('.') && doc.starts_with(char::is_uppercase), "{name}: {doc}");
        assert!(!doc.contains("at restart"), "{name}: when it takes effect is said by `live`");
        assert!(!doc.contains("  "), "{name}: {doc}");
    }
}

#[test]
fn the_default_file_is_as_wide_as_an_editor() {
    for line in default_yaml().lines() {
        assert!(line.chars().count() <= 100 && !line.ends_with(' '), "{line:?}");
    }
}

#[test]
fn the_printed_default_reads_back_to_the_default() {
    assert_eq!(parsed(default_yaml()).unwrap(), (Config::default(), vec![]));
}

#[test]
fn every_example_in_the_printed_default_is_valid() {
    // Comments that are fields: a `#`, one blank, a key.
    let is_example = |line: &&str| {
        line.strip_prefix("# ").is_some_and(|rest| {
            let key = rest.trim_start().trim_start_matches("- ").split(':').next().unwrap_or("");
            let named = |c: char| c.is_ascii_alphanumeric() || "./-".contains(c);
            rest.contains(':') && !key.is_empty() && key.chars().all(named)
        })
    };
    // Two that exclude each other, and what only a cluster has.
    let set = [
        "shutdownGracePeriod:",
        "shutdownGracePeriodCriticalPods:",
        "shutdownOrder:",
        "mode:",
        "# bootstrapKubeconfig:",
    ];
    let uncommented: Vec<&str> = default_yaml()
        .lines()
        .filter(|line| !set.iter().any(|key| line.starts_with(key)))
        .map(|line| if is_example(&line) { &line[2..] } else { line })
        .collect();
    // An address goes with a cloud.
    let text = uncommented.join("\n").replace("cloud: none", "cloud: aws");
    let text = format!("{text}\nmode: cluster");
    let (config, warnings) = parsed(&text).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(config.cluster.register_with_taints.len(), 1);
    assert_eq!(config.node_name.as_deref(), Some("edge-1"));
    assert_eq!(config.shutdown.total(), Duration::from_secs(50));
    assert_eq!(config.eviction.soft["memory.available"], "300Mi");
    assert_eq!(config.system_reserved["cpu"], "200m");
    assert_eq!(config.extended_resources["example.com/dongle"], "2");
    assert_eq!(config.node_labels["example.com/rack"], "r1");
    assert!(config.metrics_address.is_some());
    assert_eq!(config.notices.file.as_deref(), Some(Path::new("/run/winddown/notice")));
}
