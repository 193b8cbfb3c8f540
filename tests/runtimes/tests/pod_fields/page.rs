//! The table as a page of the documentation.

use std::fmt::Write as _;

use crate::table::{Group, Kind, RUNTIMES, Row, Verdict, left_out};

const HEAD: &str = "\
# Fields of a pod

What each [runtime](runtimes.md) makes of each field of a pod. Written by `make pod-fields` from the table that tests
hold the runtimes to; the sentences are those with which a pod is refused.

* **yes**: it is done as Kubernetes does it, but for the value that is named.
* **accepted**: the runtime need not look at it, for the reason that is given.
* **no**: the pod is refused, and told why.

*From the API server* means a pod of a cluster whose ConfigMaps, Secrets and other references the agent resolves
before the runtime sees it. Values that the API has no meaning for (a port of 70000, two handlers in one probe) are
refused by the API server, and in a manifest by the agent. `process` and `systemd` share a column where they agree.
";

/// docs/reference/pod-fields.md.
pub(crate) fn page(groups: &[Group]) -> String {
    let mut text = HEAD.to_owned();
    for group in groups {
        let _ = write!(text, "\n## `{}`: {}\n", group.at.replace("[0]", "[]"), group.of);
        let agree =
            group.rows.iter().all(|row| cell(group, "process", row) == cell(group, "systemd", row));
        let columns: &[&str] = if agree { &["process", "cri"] } else { &RUNTIMES };
        let name = |runtime: &str| match (agree, runtime) {
            (true, "process") => "`process`, `systemd`".to_owned(),
            _ => format!("`{runtime}`"),
        };
        for runtime in columns {
            if let Some(why) = refused_whole(group, runtime) {
                let _ =
                    write!(text, "\nWith {} a pod that has it is refused: {why}.\n", name(runtime));
            }
        }
        let names: Vec<String> = columns.iter().map(|runtime| name(runtime)).collect();
        let _ = write!(text, "\n| field | {} |\n|---|", names.join(" | "));
        text.push_str(&"---|".repeat(columns.len()));
        for row in &group.rows {
            let cells: Vec<String> =
                columns.iter().map(|runtime| cell(group, runtime, row)).collect();
            let _ = write!(text, "\n| `{}` | {} |", row.field, cells.join(" | "));
        }
        text.push('\n');
    }
    text
}

/// The one sentence that refuses what all rows are in.
fn refused_whole(group: &Group, runtime: &str) -> Option<String> {
    let mut all = group.rows.iter().map(|row| {
        let refusal = group.refusal(runtime, row, &row.sample)?;
        refusal.of_whole.then_some(refusal.why)
    });
    let first = all.next()??;
    all.all(|why| why.as_ref() == Some(&first)).then_some(first)
}

fn cell(group: &Group, runtime: &str, row: &Row) -> String {
    let Verdict { kind, but, resolved, note } = row.verdict(runtime);
    let why = |value| group.refusal(runtime, row, value).map(|refusal| refusal.why);
    let mut cell = match kind {
        Kind::Yes(_) => "yes".to_owned(),
        Kind::Harmless(why) => format!("accepted: {why}"),
        Kind::No if refused_whole(group, runtime).is_some() => "no".to_owned(),
        Kind::No => format!("no: {}", why(&row.sample).unwrap_or_default()),
        Kind::Left => {
            let left = left_out(&group.pod(row, &row.sample));
            let why = left.first().map(|left| left.why.as_str()).unwrap_or_default();
            format!("the pod runs, and is told: {why}")
        }
    };
    if resolved.is_some() {
        cell = format!("from the API server yes; else {cell}");
    }
    if let Some(value) = but {
        let _ = write!(cell, "; but `{value}`: {}", why(value).unwrap_or_default());
    }
    if !note.is_empty() {
        let _ = write!(cell, "; {note}");
    }
    cell
}
