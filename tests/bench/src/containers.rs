//! The agent on a disposable node: real systemd and logind, real containerd, pods in containers. Where a kubelet is
//! named, the same pods on the same node under it, in turns.

mod machine;

use winddown_node_tests::{NodeError, Unavailable};

use crate::figure::{Figure, count, megabytes, millis, nine_in_ten};
use crate::options::Options;
use crate::table::Table;
use crate::{idle, node, targets};
use machine::{Agent, Figures};

/// Why nothing could be measured on the node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContainerBenchError {
    #[error("no node can be booted here")]
    Unavailable(#[from] Unavailable),
    #[error("the node failed")]
    Node(#[from] NodeError),
    #[error("the programs to measure were not found")]
    Program(#[source] node::BenchError),
    #[error("the node said nothing of {0}")]
    Missing(&'static str),
    #[error("winddown's journal has no line that begins \"{0}\"")]
    Unsaid(String),
}

/// Boots nodes, runs the pods on them, watches the first idle agent, and powers them off.
pub(crate) async fn measure(options: &Options) -> Result<Table, ContainerBenchError> {
    let (mut ours, mut floors, mut kubelets) = (Figures::new(), Figures::new(), Figures::new());
    for run in 0..options.runs {
        let idle = (run == 0).then_some(options.idle);
        floors.push(machine::start_directly(options).await?);
        let (figures, floor) = machine::measure(Agent::Winddown, options, idle).await?;
        ours.extend(figures);
        floors.extend(floor);
        if let Some(program) = &options.kubelet {
            kubelets.extend(machine::measure(Agent::Kubelet(program), options, idle).await?.0);
        }
        let (figures, floor) = machine::measure_full(Agent::Winddown, options).await?;
        ours.extend(figures);
        floors.extend(floor);
        if let Some(program) = &options.kubelet {
            kubelets.extend(machine::measure_full(Agent::Kubelet(program), options).await?.0);
        }
    }
    Ok(table(options, &ours, &floors, &kubelets))
}

fn table(options: &Options, ours: &Figures, floors: &Figures, kubelets: &Figures) -> Table {
    let runs = options.runs;
    let on = format!(
        "containerd, real logind on a disposable node; what nine in ten of {runs} nodes stay below"
    );
    let mut table = Table::titled(options.title(&on));
    let mut told: Vec<&str> = Vec::new();
    for (what, _) in ours {
        if told.contains(what) {
            continue;
        }
        told.push(what);
        let of = |figures: &Figures| {
            let figures = figures.iter().filter(|(name, _)| name == what);
            nine_in_ten(figures.map(|(_, figure)| *figure).collect())
        };
        let Some(figure) = of(ours) else { continue };
        let row = table.row(what, figure).below_if(target(what)).floor(of(floors));
        let kubelets = of(kubelets);
        if let Some(figure) = kubelets {
            row.kubelet(figure);
        }
        if *what == machine::PREEMPTED {
            row.below_if(kubelets.map(|figure| figure.times(targets::PREEMPTED)));
        }
    }
    table
}

fn target(what: &str) -> Option<Figure> {
    Some(match what {
        machine::STARTED => millis(targets::STARTED),
        machine::FIRST_TERM => millis(targets::FIRST_TERM_OF_CONTAINERS),
        machine::GAP => millis(targets::GAP),
        machine::GAP_BUSY => millis(targets::GAP_BUSY),
        machine::RELEASE => millis(targets::RELEASE),
        machine::SIGNAL_TO_RELEASE => millis(targets::SHUTDOWN),
        machine::COMMAND_TO_LAST_EXIT => millis(targets::LAST_EXIT),
        machine::KILLED => count(1),
        idle::RESIDENT => megabytes(targets::RESIDENT_WITH_CONTAINERS),
        _ => return idle::target(what),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{machine, table};
    use crate::figure::millis;
    use crate::options::Options;

    #[test]
    fn the_second_slowest_of_ten_nodes_is_judged_and_the_kubelets_stand_beside() {
        let ms = |n| millis(Duration::from_millis(n));
        let ours = [10, 11, 13, 14, 14, 14, 14, 14, 19, 900].map(|n| (machine::GAP, ms(n)));
        let kubelets = [3000, 3300].map(|n| (machine::GAP, ms(n)));
        let options = Options { runs: 10, ..Options::default() };
        let floors = [5, 7].map(|n| (machine::GAP, ms(n)));
        let [ours, floors, kubelets] = [ours.to_vec(), floors.to_vec(), kubelets.to_vec()];
        let text = table(&options, &ours, &floors, &kubelets).to_string();
        let rows: Vec<_> = text.lines().filter(|line| line.contains("gap")).collect();
        assert_eq!(rows.len(), 2, "a row and the verdict: {text}");
        for part in ["19.0 ms", "< 20.0 ms", "7.00 ms", "met", "3300 ms"] {
            assert!(rows[0].contains(part), "{part}: {text}");
        }
    }
}
