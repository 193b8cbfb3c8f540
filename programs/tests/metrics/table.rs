//! The tables of docs/reference/metrics.md, which `make pages` writes from a scrape: its names, types, labels and help.

use super::parser::{is_of_a_cluster, of_a_cluster_node, of_a_node};
use crate::written::is_on_page;

const PAGE: &str = "docs/reference/metrics.md";

#[tokio::test(start_paused = true)]
async fn the_page_on_metrics_has_what_a_scrape_of_a_node_says() {
    let table = table(&of_a_node().await, |name| !is_of_a_cluster(name));
    is_on_page(PAGE, "the metrics of a node", &table);
}

#[tokio::test]
async fn the_page_on_metrics_has_what_a_scrape_in_a_cluster_adds() {
    let table = table(&of_a_cluster_node().await, is_of_a_cluster);
    is_on_page(PAGE, "the metrics of a cluster", &table);
}

/// A family of a scrape.
struct Family<'a> {
    name: &'a str,
    help: &'a str,
    kind: &'a str,
    labels: Vec<&'a str>,
}

fn table(scrape: &str, is_wanted: impl Fn(&str) -> bool) -> String {
    let rows = families(scrape).into_iter().filter(|family| is_wanted(family.name)).map(|family| {
        let suffix = match family.kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, labels, help) = (family.name, family.kind, labels.join(", "), family.help);
        format!("| `{name}{suffix}` | {kind} | {labels} | {help} |\n").replace("|  |", "| |")
    });
    "| name | type | labels | meaning |\n|---|---|---|---|\n".to_owned() + &rows.collect::<String>()
}

/// The families in the order of the scrape.
fn families(scrape: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in scrape.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|it| it.split_once(' ')) {
            families.push(Family { name, help, kind: "", labels: Vec::new() });
        }
        let Some(family) = families.last_mut() else { continue };
        if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' ')) {
            family.kind = kind;
        }
        let labels = line.split_once('{').filter(|_| !line.starts_with('#'));
        // Between the quotes are values.
        for piece in labels.into_iter().flat_map(|(_, labels)| labels.split('"').step_by(2)) {
            let label = piece.strip_suffix('=').map(|piece| piece.trim_start_matches(','));
            // A histogram's bounds have no label of ours.
            let new = label.filter(|label| *label != "le" && !family.labels.contains(label));
            family.labels.extend(new);
        }
    }
    families
}

#[test]
fn a_familys_row_has_its_type_its_labels_once_and_its_help() {
    let scrape = "# HELP a_seconds How long, | so.\n# TYPE a_seconds histogram\na_seconds_bucket{how=\"x,y=z\",le=\"1\"} 2\n\
        a_seconds_bucket{how=\"b\",le=\"1\"} 2\n# HELP b What.\n# TYPE b counter\nb_total 1\n# EOF\n";
    let rows = "| `a_seconds` | histogram | `how` | How long, | so. |\n| `b_total` | counter | | What. |\n";
    assert_eq!(table(scrape, |_| true).split_once("---|\n").map(|(_, rows)| rows), Some(rows));
}
