//! Tests of the table against the parser: every name, bound, choice and default.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::{API_VERSION, ConfigError, KIND, Warning};

/// Returns why `fields` are rejected; `None` if they are accepted.
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

/// Returns a file in which the last field of `path` has this value, with the other fields that it requires.
fn with(path: &[&Field], value: &str) -> String {
    let (outer, inner) = (path[0], path.get(1));
    let beside = match outer.name {
        "shutdownGracePeriodCriticalPods" | "shutdownEndpointDrainPeriod" => {
            "shutdownGracePeriod: 24h\n"
        }
        "rebootInPlace" => "runtime: systemd\n",
        _ => "",
    };
    let Some(inner) = inner else { return format!("{beside}{}: {value}\n", outer.name) };
    let mut entry = format!("{}: {value}", inner.name);
    for other in outer.kind.fields().iter().filter(|f| f.required && f.name != inner.name) {
        let value = match &other.kind {
            ValueKind::Choice(words) => words[0].to_owned(),
            ValueKind::Integer { least, .. } => least.max(&0).to_string(),
            ValueKind::Duration { most, .. } => (*most).to_owned(),
            ValueKind::Command => other.example.to_owned(),
            _ => "a".to_owned(),
        };
        entry.push_str(&format!(", {}: {value}", other.name));
    }
    match outer.kind {
        ValueKind::List(_) => format!("{beside}{}: [{{{entry}}}]\n", outer.name),
        _ => format!("{beside}{}: {{{entry}}}\n", outer.name),
    }
}

/// Returns every field with the fields that contain it, outermost first.
fn all() -> Vec<Vec<&'static Field>> {
    let mut all = Vec::new();
    for field in fields() {
        all.push(vec![field]);
        all.extend(field.kind.fields().iter().map(|inner| vec![field, inner]));
    }
    all
}

fn name_of(path: &[&Field]) -> String {
    path.iter().map(|field| field.name).collect::<Vec<_>>().join(".")
}

/// Returns a valid value that is not the default.
fn another_value(field: &Field) -> String {
    let default = default_of(field.name);
    match &field.kind {
        ValueKind::Flag => (default != Some(Json::Bool(true))).to_string(),
        ValueKind::Choice(words) => (*words.last().unwrap()).to_owned(),
        ValueKind::Words(_) => "[]".to_owned(),
        ValueKind::Integer { most, .. } => most.to_string(),
        ValueKind::Duration { most: "5s", .. } => "3s".to_owned(),
        ValueKind::Duration { .. } => "11s".to_owned(),
        ValueKind::Size { .. } => "1Gi".to_owned(),
        ValueKind::Path { .. } => "/a/b".to_owned(),
        ValueKind::Object(_) => match field.name {
            "memoryPressure" => "{}".to_owned(),
            "evictionHook" => "{command: [/bin/dump, -v], timeout: 3s}".to_owned(),
            _ => "{file: /a/b}".to_owned(),
        },
        _ if field.name == "evictionHard" => "{memory.available: 7Mi}".to_owned(),
        _ if field.name == "containerRuntimeEndpoint" => "unix:///a".to_owned(),
        _ if field.name == "endedPods" => "delete".to_owned(),
        ValueKind::Map { .. } => format!("{{{}}}", field.example.replace('\n', ", ")),
        ValueKind::List(_) => format!("\n{}", field.example),
        _ => field.example.to_owned(),
    }
}

/// An option in the table is always read, stored, shown and compared. What its row cannot ensure is what the checks of
/// its section do with the values of others.
#[test]
fn each_option_changes_its_own_value_and_no_other() {
    let default = Config::default();
    for field in fields() {
        let file = match field.name {
            "evictionSoft" => {
                "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 1m}\n"
                    .to_owned()
            }
            _ => format!("{}: {}\n", field.name, another_value(field)),
        };
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{file}");
        let (config, _) = parsed(&text).unwrap_or_else(|error| panic!("{file}{error}"));
        let changed = Config::changes(&default, &config);
        let (live, waiting) = if field.live {
            (&changed.applied, &changed.needs_restart)
        } else {
            (&changed.needs_restart, &changed.applied)
        };
        assert!(live.iter().any(|change| change.field == field.name), "{file}{changed:?}");
        // The other options that this one affects.
        let beside: &[&str] = match field.name {
            "mode" => &["runtime"],
            "shutdownGracePeriod" => &["shutdownGracePeriodCriticalPods"],
            "shutdownGracePeriodByPodPriority" => {
                &["shutdownGracePeriod", "shutdownGracePeriodCriticalPods", "shutdownOrder"]
            }
            "evictionSoft" => &["evictionSoftGracePeriod"],
            _ => &[],
        };
        let other = |change: &&crate::FieldChange| {
            change.field != field.name && !beside.contains(&change.field.as_str())
        };
        assert_eq!(live.iter().find(other), None, "{file}");
        assert_eq!(waiting.iter().find(other), None, "{file}");
        let reloaded = default.reloaded(&config);
        assert_eq!(reloaded == default, !field.live, "{file}");
    }
}

/// A path that the root does not go before is one of the host, whatever directory the agent was given.
#[test]
fn a_root_goes_before_each_path_of_the_table() {
    for path in all() {
        if !matches!(path.last().unwrap().kind, ValueKind::Path { .. }) {
            continue;
        }
        let file = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{}", with(&path, "/a/b"));
        let (config, _) = parsed(&file).unwrap_or_else(|error| panic!("{file}{error}"));
        let rooted = Json::from_iter(entries(&config.rooted(Path::new("/root"))));
        let shown = path.iter().fold(&rooted, |value, field| &value[field.name]);
        assert_eq!(shown, "/root/a/b", "{}", name_of(&path));
    }
}

#[test]
fn a_field_has_either_a_default_or_an_example() {
    for path in all() {
        let field = path.last().unwrap();
        let listed = matches!(path[0].kind, ValueKind::List(_)) && path.len() > 1;
        let default = match path[..] {
            [top] => default_of(top.name),
            _ => default_of(path[0].name).and_then(|outer| outer.get(field.name).cloned()),
        };
        let object = matches!(field.kind, ValueKind::Object(_));
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
        match &path.last().unwrap().kind {
            ValueKind::Integer { least, most, .. } => {
                good = vec![least.to_string(), most.to_string()];
                bad.extend([(least - 1).to_string(), (most + 1).to_string(), "1.5".to_owned()]);
            }
            ValueKind::Duration { least, most, zero } => {
                if !least.is_empty() {
                    good.push((*least).to_owned());
                    let below = duration(least).checked_sub(step);
                    bad.push(
                        below.map_or("-1s".to_owned(), |below| format!("{}ms", below.as_millis())),
                    );
                }
                if most.is_empty() {
                    good.push("720h".to_owned());
                } else {
                    good.push((*most).to_owned());
                    bad.push(format!("{}ms", (duration(most) + step).as_millis()));
                }
                good.extend(zero.then(|| "0s".to_owned()));
                bad.push("soon".to_owned());
            }
            ValueKind::Choice(words) => {
                good = words.iter().map(|word| (*word).to_owned()).collect();
                bad.push("unheard-of".to_owned());
            }
            ValueKind::Flag => {
                good = vec!["true".to_owned(), "false".to_owned()];
                bad.push("maybe".to_owned());
            }
            ValueKind::Path { empty } => {
                good = vec!["/a/b".to_owned()];
                bad.push("a/b".to_owned());
                if *empty { &mut good } else { &mut bad }.push("\"\"".to_owned());
            }
            ValueKind::Size { least } => {
                good = vec![(*least).to_owned(), "1Gi".to_owned()];
                bad.extend(["1".to_owned(), "big".to_owned()]);
            }
            ValueKind::Percent => {
                good = vec!["0.5%".to_owned(), "100%".to_owned()];
                bad.extend(["0%".to_owned(), "101%".to_owned(), "10".to_owned()]);
            }
            ValueKind::Threshold | ValueKind::Quantity => {
                good = vec!["100Mi".to_owned(), "10%".to_owned()];
                bad.push("some".to_owned());
            }
            ValueKind::Addresses => {
                good = vec!["[10.96.0.10, 'fd00::a']".to_owned(), "[]".to_owned()];
                bad.extend(
                    ["[ten]", "10.96.0.10", "[10.96.0.300]", "[[10.96.0.1]]"].map(str::to_owned),
                );
            }
            ValueKind::Texts(_) => {
                good = vec![path[0].example.to_owned(), "[]".to_owned()];
                bad.extend(["[a b]", "a", "[[a]]"].map(str::to_owned));
            }
            ValueKind::Command => {
                good = vec![path[path.len() - 1].example.to_owned()];
                bad.extend(["[]", "[dump]", "/bin/dump", "[[/bin/dump]]"].map(str::to_owned));
            }
            ValueKind::Address(_) => bad.push("nowhere".to_owned()),
            ValueKind::Words(words) => {
                good = words.iter().map(|word| format!("[{word}]")).collect();
                good.extend(["[]".to_owned(), "[pods, kube-reserved]".to_owned()]);
                bad.extend(["x", "[pods, pods]", "[none, pods]"].map(str::to_owned));
            }
            ValueKind::Map { .. }
            | ValueKind::Object(_)
            | ValueKind::List(_)
            | ValueKind::Text { .. } => {}
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
            ValueKind::Map { .. } | ValueKind::List(_) => {
                format!("{beside}{}:{indented}\n", field.name)
            }
            _ => format!("{}: {}\n", field.name, field.example),
        };
        assert_eq!(refusal(&file), None, "{file}");
    }
    for field in fields() {
        let ValueKind::Map { names: Names::Words(words), .. } = field.kind else { continue };
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
        let (name, doc) = (name_of(&path), &field.doc);
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
    // Comments that are fields: a `#`, one space, a key.
    let is_example = |line: &&str| {
        line.strip_prefix("# ").is_some_and(|rest| {
            let key = rest.trim_start().trim_start_matches("- ").split(':').next().unwrap_or("");
            let named = |c: char| c.is_ascii_alphanumeric() || "./-".contains(c);
            rest.contains(':') && !key.is_empty() && key.chars().all(named)
        })
    };
    // Fields that exclude each other, and fields that only a cluster has.
    let set = [
        "runtime:",
        "# companionEvictionTimeout:",
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
    // An endpoint needs a cloud.
    let text = uncommented.join("\n").replace("cloud: none", "cloud: aws");
    let text = format!("{text}\nmode: cluster\nruntime: cri");
    let (config, warnings) = parsed(&text).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(config.cluster.register_with_taints.len(), 1);
    assert_eq!(config.node.name.as_deref(), Some("edge-1"));
    assert_eq!(config.shutdown.total(), Duration::from_secs(50));
    assert_eq!(config.eviction.soft["memory.available"], "300Mi");
    assert_eq!(config.node.system_reserved["cpu"], "200m");
    assert_eq!(config.node.extended_resources["example.com/dongle"], "2");
    assert_eq!(config.node.labels["example.com/rack"], "r1");
    assert!(config.access.metrics_address.is_some());
    assert_eq!(config.shutdown.notices.file.as_deref(), Some(Path::new("/run/winddown/notice")));
}
