//! The table as a page of the documentation.

use std::fmt::Write as _;

use crate::table::{Group, Kind, RUNTIMES, Row, Verdict, left_out};

const HEAD: &str = "\
# Fields of a pod

What each [runtime](reference/runtimes.md) does with each field of a pod. `make pages` writes this page from the table that
the tests check the runtimes against.

* **done**, **yes**: as Kubernetes does it, except for the value that is named.
* **accepted**: the runtime need not look at it, for the given reason.
* **no**: a manifest is refused with that sentence; a pod of the API server waits, and an event has it.

*From the API server* means a pod of a cluster whose ConfigMaps, Secrets and other references the agent resolves
first. Values without a meaning (a port of 70000, two handlers in one probe) are refused by the API server, and in a
manifest by the agent. `process` and `systemd` share a column where they agree.

## In a manifest

All else is accepted and refused as by the kubelet (`ValidatePodCreate` of Kubernetes 1.36), and what follows is for admission.

| field | kubelet | winddown |
|---|---|---|
| unknown or duplicate field, YAML tag, second document | ignored, the last or first counts | refused |
| escape of half a surrogate pair | replaced | refused |
| `%YAML 1.2`; a comma too many in JSON | refused | accepted |
| `metadata.uid` that is no file name; `deletionTimestamp` | accepted | refused |
| `nodeName` of another node; `priority` that contradicts its class; `priorityClassName` without `priority`, but for the `system-` two | ignored | refused |
| `image` | needed | with `runtime: cri`, else `command` |
| empty first word in `command`; control character in `path`, `host`, header or variable | the container fails | refused |
| `volumes` other than hostPath and emptyDir | mounted | refused |
| `windowsOptions`, `os: windows` | accepted | refused |
| changed under the same `metadata.uid` | only a new image is applied | the pod starts again; annotation `io.winddown.config.spec` |
";

/// docs/pod-fields.md.
pub(crate) fn page(groups: &[Group]) -> String {
    let mut text = HEAD.to_owned();
    for group in groups {
        // The row of the field that has all of these says it.
        let says_more = |runtime: &&str| match refused_whole(group, runtime) {
            Some(_) => false,
            None => group.rows.iter().any(|row| cell(group, runtime, row) != "yes"),
        };
        let refused = RUNTIMES.iter().any(|runtime| refused_whole(group, runtime).is_some());
        if refused && !RUNTIMES.iter().any(says_more) {
            continue;
        }
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
        // Fields of which the same is said share a row.
        let mut rows: Vec<(Vec<String>, Vec<String>)> = Vec::new();
        for row in &group.rows {
            let field = format!("`{}`", row.field);
            let cells: Vec<String> =
                columns.iter().map(|runtime| cell(group, runtime, row)).collect();
            match rows.iter_mut().find(|(_, said)| *said == cells) {
                Some((fields, _)) => fields.push(field),
                None => rows.push((vec![field], cells)),
            }
        }
        if let Some(done) =
            rows.iter().position(|(_, cells)| cells.iter().all(|cell| cell == "yes"))
        {
            let _ = write!(text, "\nDone: {}.\n", rows.remove(done).0.join(", "));
        }
        if rows.is_empty() {
            continue;
        }
        let names: Vec<String> = columns.iter().map(|runtime| name(runtime)).collect();
        let _ = write!(text, "\n| field | {} |\n|---|", names.join(" | "));
        text.push_str(&"---|".repeat(columns.len()));
        for (fields, mut cells) in rows {
            if cells[1..].iter().all(|cell| *cell == cells[0]) {
                cells[1..].fill("the same".to_owned());
            }
            let _ = write!(text, "\n| {} | {} |", fields.join(", "), cells.join(" | "));
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
            let why = left.as_ref().map(|left| left.why.as_str()).unwrap_or_default();
            format!("the pod runs, and is told: {why}")
        }
    };
    if resolved.is_some() {
        cell = format!("from the API server yes; else {cell}");
    }
    if let Some(first) = but.first() {
        let values: Vec<String> = but.iter().map(|value| format!("`{value}`")).collect();
        let _ = write!(cell, "; but {}: {}", values.join(", "), why(first).unwrap_or_default());
    }
    if !note.is_empty() {
        let _ = write!(cell, "; {note}");
    }
    cell
}
