//! winddown.yaml(5), generated from the table of the configuration's fields.

use serde_json::Value;

use super::Page;
use super::roff::RoffWriter;
use winddown_config::reference::{Field, ValueKind, default_of, sections};
use winddown_config::{API_VERSION, KIND};

const DESCRIPTION: &str = "\
The agent reads one YAML file, `/etc/winddown/config.yaml` unless it is told otherwise. It is read \
strictly: a field that is not known, a value that is out of range or two fields that contradict each \
other are errors, and all of them are reported together with line and column. All fields but `apiVersion` \
and `kind` are optional.

`winddown config check` tests a file, `winddown config show` prints what is in effect, `winddown config \
default` prints a commented file to start from, `winddown config schema` a JSON schema for editors. \
`systemctl reload winddown` applies the fields that are not marked \"at restart\" and names the others.

A kubelet's own configuration (`kubelet.config.k8s.io/v1beta1`, `KubeletConfiguration`) is accepted as \
well: fields of the same name have the same meaning, and those that are not used here are listed in one \
warning.";

const VALUES: [(&str, &str); 4] = [
    (
        "duration",
        "A number and a unit, one or more times: `30s`, `1m30s` (as Kubernetes writes them), `1min 30s` \
         (as systemd does). Units are ms, s, m or min, h, d, w. Months and years are not accepted. 0 needs \
         no unit.",
    ),
    ("quantity", "A Kubernetes quantity: `200m`, `2`, `256Mi`, `1G`."),
    ("size", "A quantity of bytes."),
    ("path", "Absolute, without `..` in it."),
];

pub(super) fn page() -> Page {
    let mut page = RoffWriter::new("winddown.yaml", 5, "configuration of winddown");
    page.heading("DESCRIPTION");
    page.text(DESCRIPTION);
    page.heading("VALUES");
    for (term, text) in VALUES {
        page.term(term, text);
    }
    page.heading("FIELDS");
    page.text(
        "Each is followed by what it may be, its default, when a change takes effect, and where.",
    );
    page.term("apiVersion", &format!("Always `{API_VERSION}`. Required."));
    page.term("kind", &format!("Always `{KIND}`. Required."));
    for section in sections() {
        page.subheading(section.title);
        for field in section.fields() {
            top(&mut page, field);
        }
    }
    page.heading("EXAMPLE");
    page.verbatim(&format!(
        "apiVersion: {API_VERSION}\nkind: {KIND}\nshutdownGracePeriod: 1m\n\
         shutdownGracePeriodCriticalPods: 20s\nsystemReserved:\n  memory: 256Mi"
    ));
    page.heading("SEE ALSO");
    page.text("`winddown`(1), `winddown-config`(1), `winddown.service`(8), `logind.conf`(5)");
    Page { name: "winddown.yaml".to_owned(), section: 5, text: page.finish() }
}

fn top(page: &mut RoffWriter, field: &Field) {
    let mut facts = facts(field);
    match default_of(field.name) {
        Some(value) => facts.push(format!("Default: {}.", shown(&value))),
        None if field.example.is_empty() => {}
        None => facts.push("Not set by default.".to_owned()),
    }
    facts.push(if field.live { "At reload." } else { "At restart." }.to_owned());
    facts.extend(field.effect.sentence().map(str::to_owned));
    page.term(field.name, &format!("{}\n\n{}", field.doc, facts.join(" ")));
    if field.kind.fields().is_empty() {
        return;
    }
    let default = default_of(field.name);
    page.indent();
    for field in field.kind.fields() {
        let mut facts = self::facts(field);
        if let Some(value) = default.as_ref().and_then(|all| all.get(field.name)) {
            facts.push(format!("Default: {}.", shown(value)));
        }
        page.term(field.name, &format!("{} {}", field.doc, facts.join(" ")));
    }
    page.outdent();
}

fn facts(field: &Field) -> Vec<String> {
    let kind = &field.kind;
    let mut noun = kind.noun().to_owned();
    if let Some(first) = noun.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let what = match (kind.words(), kind.bounds()) {
        (Some(words), _) if matches!(kind, ValueKind::Choice(_)) => {
            format!("One of `{}`.", words.join("`, `"))
        }
        (Some(words), _) => format!("{noun}: `{}`.", words.join("`, `")),
        (None, Some(bounds)) => format!("{noun}, {}.", bounds.replacen("At", "at", 1)),
        (None, None) => format!("{noun}."),
    };
    vec![what]
}

/// Formats a value in one line.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "the empty string".to_owned(),
        Value::String(text) => format!("`{text}`"),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| format!("{key} {}", shown(value)))
            .collect::<Vec<_>>()
            .join(", "),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => format!("`{other}`"),
    }
}
