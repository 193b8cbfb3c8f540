//! The results as a table.

use std::fmt::Write as _;

use serde_json::Value;

use super::scene::Scene;

/// The line before the table in a document.
pub const START_OF_TABLE: &str = "<!-- Written by `make pressure KIND=oom-killers`. -->";

/// The result of a scene with one of the programs.
#[derive(Debug)]
pub struct Row {
    pub(super) killer: &'static str,
    pub(super) scene: Scene,
    pub(super) seen: Value,
}

/// The table of all rows, grouped by scene.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let mut text = "\n| | | first act, after the machine ran short | culprit gone after | innocent pods terminated \
                    | tasks waited for memory |\n|---|---|---|---|---|---|\n"
        .to_owned();
    for scene in super::scene::SCENES {
        for row in rows.iter().filter(|row| row.scene.title == scene.title) {
            // Writing to a text cannot fail.
            let _ = writeln!(text, "{}", row.line());
        }
    }
    text + "\n"
}

// === impl Row ===

impl Row {
    pub(super) fn line(&self) -> String {
        let stalled = seconds(self.seen["stalledMs"].as_i64().unwrap_or(0));
        format!(
            "| {} | {} | {} | {} | {} | {stalled} |",
            self.scene.title,
            self.killer,
            self.first(),
            self.culprit(),
            self.lost()
        )
    }

    fn pods(&self) -> impl Iterator<Item = &Value> {
        self.seen["pods"].as_array().into_iter().flatten()
    }

    /// The first victim, what happened to it, and when.
    fn first(&self) -> String {
        let acted = self.pods().filter_map(|pod| Some((pod["actedMs"].as_i64()?, pod)));
        let Some((at, pod)) = acted.min_by_key(|(at, _)| *at) else {
            return match self.seen["wasShort"] == true {
                true => "none within 45 s".to_owned(),
                false => "none: it never ran short".to_owned(),
            };
        };
        let who = pod["name"].as_str().unwrap_or_default();
        let how = match self.seen["kernelWasFirst"] == true {
            true => "the kernel's SIGKILL",
            false => pod["how"].as_str().unwrap_or_default(),
        };
        let right = if who == self.scene.culprit.name { "" } else { "**wrong**: " };
        format!("{right}{how} to `{who}`, {}", seconds(at))
    }

    fn culprit(&self) -> String {
        let culprit = self.pods().find(|pod| pod["name"] == self.scene.culprit.name);
        culprit.and_then(|pod| pod["goneMs"].as_i64()).map_or_else(|| "never".to_owned(), seconds)
    }

    /// The innocent pods that were killed, with the memory that they held.
    fn lost(&self) -> String {
        let ended =
            |name: &str| self.pods().any(|pod| pod["name"] == name && !pod["how"].is_null());
        let lost = self.scene.others.iter().filter(|pod| ended(pod.name));
        let lost: Vec<String> =
            lost.map(|pod| format!("`{}` ({} MiB)", pod.name, pod.does.1)).collect();
        if lost.is_empty() { "none".to_owned() } else { lost.join(", ") }
    }
}

fn seconds(ms: i64) -> String {
    let hundredths = ms / 10;
    let sign = if hundredths < 0 { "-" } else { "" };
    format!("{sign}{}.{:02} s", hundredths.abs() / 100, hundredths.abs() % 100)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::scene::SCENES;
    use super::{Row, seconds};

    fn line(seen: serde_json::Value) -> String {
        Row { killer: "someone", scene: SCENES[1], seen }.line()
    }

    #[test]
    fn the_first_victim_is_told_to_be_wrong_if_it_is() {
        let large = json!({"name": "large", "how": "SIGTERM", "actedMs": 40, "goneMs": 90});
        let leak = json!({"name": "leak", "how": "SIGKILL", "actedMs": 9000, "goneMs": 9000});
        let seen = json!({"wasShort": true, "kernelWasFirst": false, "stalledMs": 1234, "pods": [leak, large]});
        assert_eq!(
            line(seen),
            "| leak, 20 MiB/s, beside a larger pod | someone | **wrong**: SIGTERM to `large`, 0.04 s | 9.00 s \
             | `large` (380 MiB) | 1.23 s |"
        );
    }

    #[test]
    fn who_does_nothing_is_told_apart_from_who_has_nothing_to_do() {
        let leak = json!({"name": "leak", "how": null, "actedMs": null, "goneMs": null});
        let short = |short: bool| line(json!({"wasShort": short, "stalledMs": 0, "pods": [leak]}));
        assert!(short(true).contains("| none within 45 s | never | none |"), "{}", short(true));
        assert!(short(false).contains("| none: it never ran short |"), "{}", short(false));
    }

    #[test]
    fn the_kernel_is_named_where_it_was_first() {
        let leak = json!({"name": "leak", "how": "SIGKILL", "actedMs": -20, "goneMs": 10});
        let seen =
            json!({"wasShort": true, "kernelWasFirst": true, "stalledMs": 0, "pods": [leak]});
        assert!(line(seen).contains("| the kernel's SIGKILL to `leak`, -0.02 s | 0.01 s | none |"));
    }

    #[test]
    fn seconds_have_hundredths() {
        assert_eq!([seconds(0), seconds(1230), seconds(-50)], ["0.00 s", "1.23 s", "-0.05 s"]);
    }
}
