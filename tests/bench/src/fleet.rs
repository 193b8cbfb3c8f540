//! Past one node: what 5000 agents ask of one API server.

mod measure;
mod model;
mod wire;

use std::time::Duration;

use crate::figure::{bytes, exact, megabytes, millis, per_second};
use crate::idle;
use crate::node::BenchError;
use crate::options::Options;
use crate::table::Grid;
use model::{Level, Limits, Load, Scenario, Seen, load};

/// Nodes of the cluster: as many as Kubernetes is tested with.
const NODES: u32 = 5000;
/// Nodes of a rack.
const RACK: u32 = 40;
/// A third of them.
const ZONE: u32 = NODES / 3;

/// Measures one node, and works out what many do.
pub(crate) async fn measure(options: &Options) -> Result<Vec<Grid>, BenchError> {
    let node = measure::measure(options).await?;
    Ok(vec![one_node(options, &node), fleet(options, &node, &Limits::DEFAULT)])
}

/// The inputs, as they were measured.
fn one_node(options: &Options, node: &measure::Node) -> Grid {
    let title = format!(
        "one node with {} pods, seen from its API server: the real agent in cluster mode, processes as \
         pods, {:?} each to stop; bytes are those on the wire, with TLS",
        options.pods, options.stop
    );
    let head = ["situation", "what", "requests", "per second", "mean body"];
    let mut grid = Grid::titled(title, &head);
    let situations = [
        ("start, all pods new", &node.join),
        ("idle", &node.idle),
        ("API server restarted", &node.reconnect),
        ("power-off, signal to lock", &node.power_off),
    ];
    for (name, seen) in situations {
        let (up, down) = seen.bytes;
        grid.row(vec![
            format!("**{name}**, {} × {:.1} s", seen.times, seen.span.as_secs_f64()),
            format!("{} up, {} down", kilobytes(up), kilobytes(down)),
            seen.asked.len().to_string(),
            rate(seen.asked.len(), seen.span * seen.times),
            String::new(),
        ]);
        for (what, (count, body)) in seen.kinds() {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            grid.row(vec![
                String::new(),
                format!("`{what}`"),
                count.to_string(),
                rate(count, seen.span * seen.times),
                if body == 0 { String::new() } else { bytes(body).to_string() },
            ]);
        }
    }
    let cost = &node.idle_cost;
    let figures = [
        ("watches open while idle", node.watches.to_string()),
        ("resident memory of the idle agent", megabytes(cost.resident).to_string()),
        ("idle CPU of the agent", idle::percent(cost.used, cost.span).to_string()),
        ("wake-ups of the idle agent", idle::per_second(cost.used, cost.span).to_string()),
    ];
    for (what, figure) in figures {
        let nothing = String::new;
        grid.row(vec![what.to_owned(), nothing(), figure, nothing(), nothing()]);
    }
    grid
}

/// What many of it do, and what the server has for them.
fn fleet(options: &Options, node: &measure::Node, limits: &Limits) -> Grid {
    let (system, node_high) = (limits.seats(Level::System), limits.seats(Level::NodeHigh));
    let title = format!(
        "{NODES} nodes of {} pods at one API server with its default flags: {system} seats for pods and \
         events (`system`), {node_high} for nodes and leases (`node-high`), {} ms each; etcd takes {} \
         writes a second. Parts above 100 % are more than it can do while it lasts",
        options.pods,
        limits.seat.as_millis(),
        limits.etcd
    );
    let head = [
        "what happens at once",
        "pods",
        "requests",
        "etcd writes",
        "busiest second",
        "on the wire",
        "`system`",
        "`node-high`",
        "etcd",
        "waiting",
        "last served later by",
    ];
    let mut grid = Grid::titled(title, &head);
    let mut row = |name: &str, nodes: u32, act: &Seen| {
        let load = load(Scenario { nodes, act, all: NODES }, &node.idle, limits);
        let pods = u64::from(nodes) * u64::try_from(options.pods).unwrap_or(0);
        let mut cells = vec![name.to_owned(), pods.to_string()];
        cells.extend(figures(&load));
        grid.row(cells);
    };
    row("nothing", 0, &node.idle);
    row(&format!("a rack of {RACK} powers off"), RACK, &node.power_off);
    row(&format!("a zone of {ZONE} powers off"), ZONE, &node.power_off);
    row(&format!("a rack of {RACK} starts"), RACK, &node.join);
    row("the API server restarts", NODES, &node.reconnect);
    grid
}

fn figures(load: &Load) -> [String; 9] {
    let part = |part: f64| format!("{:.1} %", part * 100.0);
    let wire = match load.requests > 0.0 {
        true => format!("{:.1} MB", load.bytes / 1e6),
        false => format!("{:.1} MB / s", load.usual_bytes / 1e6),
    };
    let waiting = match load.refused {
        true => format!("{:.0}, some refused (429)", load.waiting),
        false => format!("{:.0}", load.waiting),
    };
    [
        format!("{:.0}", load.requests),
        format!("{:.0}", load.writes),
        format!("{:.0} / s", load.peak),
        wire,
        part(load.system),
        part(load.node_high),
        part(load.etcd),
        waiting,
        millis(load.late).to_string(),
    ]
}

fn rate(count: usize, span: Duration) -> String {
    let count = exact(u64::try_from(count).unwrap_or(u64::MAX));
    per_second(count / span.as_secs_f64()).to_string()
}

fn kilobytes(bytes: u64) -> String {
    if bytes < 1_000_000 {
        return format!("{:.1} kB", exact(bytes) / 1e3);
    }
    megabytes(bytes).to_string()
}
