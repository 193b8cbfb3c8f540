//! Reads the document with Prometheus' own reference parser of OpenMetrics.

use std::sync::Arc;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use winddown_shared::{ScheduledShutdown, ShutdownKind, WallTime};

use winddown_apiserver::ApiServer;

use super::bed::{Bed, cluster_parts, pod, samples, secs};

/// Reads a document from standard input and prints `family type unit samples` for each family.
/// The parser refuses what the specification forbids: wrong suffixes, clashing names, counters
/// without `_total`, buckets out of order, a unit that is not in the name, text after `# EOF`.
const SCRIPT: &str = "\
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    assert family.documentation, family.name
    print(family.name, family.type, family.unit or '-', len(family.samples))
";

/// The endings of names that are units; a metric without one is a count.
const UNITS: [&str; 2] = ["seconds", "bytes"];

/// The Pythons that may have the parser: Debian's package is for the system's Python only.
const PYTHONS: [&str; 2] = ["/usr/bin/python3", "python3"];

/// Returns a Python that has the parser, or prints that there is none.
fn python_or_skip(test: &str) -> Option<&'static str> {
    let has_parser = |python: &&str| {
        let mut command = Command::new(python);
        command.args(["-c", "import prometheus_client.openmetrics.parser"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let found = PYTHONS.into_iter().find(has_parser);
    if found.is_none() {
        let why = "no OpenMetrics parser; apt install python3-prometheus-client";
        assert!(std::env::var_os("WINDDOWN_NO_SKIP").is_none(), "{why}");
        println!("SKIPPED: {test}: {why}");
    }
    found
}

fn parse(python: &str, document: &str) -> Result<String, String> {
    let mut child = Command::new(python)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(document.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[tokio::test(start_paused = true)]
async fn the_parser_of_prometheus_reads_every_family() {
    let test = "the_parser_of_prometheus_reads_every_family";
    let Some(python) = python_or_skip(test) else { return };
    check(python, &Bed::after_a_power_cut().scrape());
    let families = check(python, &of_a_node().await);
    let documented: Vec<_> =
        documented().into_iter().filter(|(name, _)| !is_of_a_cluster(name)).collect();
    assert_eq!(
        families, documented,
        "docs/reference/metrics.md lists other families than a scrape"
    );
}

/// A scrape of a node without an API server that has every family.
pub(super) async fn of_a_node() -> String {
    let bed = Bed::after_a_power_cut();
    let pods = [pod("web", 0, 30), pod("stuck", -5, 30), pod("dns", 2_000_000_000, 30)];
    bed.runtime.stop_takes(pods[1].uid(), secs(100));
    bed.run(&pods).await;
    bed.login.prepare();
    bed.released().await;
    bed.run(&[pod("late", 0, 30)]).await;
    bed.login.modify(|state| {
        let (at, kind) = (WallTime::UNIX_EPOCH, ShutdownKind::Reboot);
        state.scheduled = Some(Arc::new(ScheduledShutdown { at, kind, message: None }));
    });
    bed.scrape()
}

#[tokio::test]
async fn the_parser_of_prometheus_reads_every_family_of_a_cluster() {
    let test = "the_parser_of_prometheus_reads_every_family_of_a_cluster";
    let Some(python) = python_or_skip(test) else { return };
    let of_a_cluster = |(name, _): &(String, String)| is_of_a_cluster(name);
    let families: Vec<_> =
        check(python, &of_a_cluster_node().await).into_iter().filter(of_a_cluster).collect();
    let documented: Vec<_> = documented().into_iter().filter(of_a_cluster).collect();
    assert_eq!(
        families, documented,
        "docs/reference/metrics.md lists other families than a scrape"
    );
}

/// A scrape of a node in a cluster.
pub(super) async fn of_a_cluster_node() -> String {
    let server = ApiServer::start().await.unwrap();
    let state = tempfile::tempdir().unwrap();
    let parts = cluster_parts(state.path(), &server.kubeconfig()).await;
    let bed = Bed::in_cluster(state, parts);
    bed.want(&[pod("web", 0, 30)]);
    let lease = "winddown_node_lease_renewed_timestamp_seconds ";
    let end = tokio::time::Instant::now() + secs(60);
    while !samples(&bed.scrape()).any(|line| line.starts_with(lease)) {
        assert!(tokio::time::Instant::now() < end, "no lease within a minute");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bed.scrape()
}

/// Whether a family exists only in a cluster.
pub(super) fn is_of_a_cluster(name: &str) -> bool {
    let only = [
        "after_nodes",
        "api_",
        "node_lease_",
        "node_registered",
        "node_status_",
        "status",
        "events_",
    ];
    let is_own = |name: &str| only.iter().any(|p| name.starts_with(p));
    name.starts_with("kubelet_certificate_manager_")
        || name.strip_prefix("winddown_").is_some_and(is_own)
}

#[test]
fn the_parser_refuses_what_prometheus_would_refuse() {
    let Some(python) = python_or_skip("the_parser_refuses_what_prometheus_would_refuse") else {
        return;
    };
    for wrong in [
        "# TYPE a counter\na 1\n# EOF\n",
        "# TYPE a_total counter\na_total_total 1\n",
        "# TYPE a gauge\na{b=\"c} 1\n# EOF\n",
    ] {
        assert!(parse(python, wrong).is_err(), "{wrong}");
    }
}

/// Returns the families of a document: the name as in queries (with `_total` or `_info`), and the type.
fn check(python: &str, document: &str) -> Vec<(String, String)> {
    let told = parse(python, document).unwrap_or_else(|error| panic!("{error}\n{document}"));
    let mut families = Vec::new();
    for line in told.lines() {
        let [name, kind, unit, samples] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        assert_ne!(samples, "0", "{name} has no sample");
        let wanted = UNITS.into_iter().find(|unit| name.ends_with(unit)).unwrap_or("-");
        assert_eq!(unit, wanted, "unit of {name}");
        let own = ["kubelet_", "winddown_", "process_"];
        assert!(own.iter().any(|prefix| name.starts_with(prefix)), "{name}");
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        families.push((format!("{name}{suffix}"), kind.to_owned()));
    }
    families.sort();
    families
}

/// Returns the families in the table of the documentation.
fn documented() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut families: Vec<_> = rows
        .map(|row| {
            let mut cells = row.split('|').map(str::trim);
            let name = cells.next().unwrap().trim_end_matches('`');
            (name.to_owned(), cells.next().unwrap().to_owned())
        })
        .collect();
    families.sort();
    families
}
