//! Measures winddown and prints the tables of docs/performance.md and tests/bench/notebook.md.
//!
//! With `agent` it is the real binary with the process runtime and real pods, on a private bus with a
//! stand-in for logind; with `containers` a disposable node with a real systemd and a real containerd,
//! which takes root. Nothing outside a temporary folder is touched, and no machine goes down.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

mod all;
mod clock;
mod containers;
mod counted;
mod document;
mod figure;
mod fleet;
mod idle;
mod kills;
mod least;
mod node;
mod options;
mod package;
mod planners;
mod pod;
mod preemption;
mod pressure;
mod scaling;
mod shutdown;
mod table;
mod targets;
mod workers;

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use node::{BenchError, TestNode};
use options::Options;
use table::Table;
use winddown_shared::error_chain;

const USAGE: &str = "\
usage: winddown-bench COMMAND [OPTIONS] [--into FILE]

  all           everything that has a target, in one table
  agent         the agent that was built beside this program (or in WINDDOWN_PROGRAMS), processes as pods
  containers    the same with containerd on a disposable node (needs root)
  package       the programs and the package as they ship (needs dpkg)
  pressure      from memory running short to SIGTERM (needs root and cargo)
  workers       the pod workers alone
  preemption    the choice of victims on full nodes
  planners      instructions and allocations of the pure planners for 10 to 5000 pods (needs valgrind)
  kills         allocations on the way of a pod's end (needs valgrind)
  scaling [N..] memory, CPU and the time of a shutdown for 10 to 5000 pods, containers in memory
  processes [N..] the same with the agent and processes as pods
  fleet         what 5000 agents ask of one API server

options of all, agent, containers and fleet:
  --pods N        100; of fleet 110
  --critical N    20; how many of them are critical
  --stop-ms MS    1000; how long a pod takes to stop
  --idle SECONDS  30, of fleet 320; how long the idle agent is watched
  --runs N        3; nodes with containers, one after the other
  --kubelet FILE  a kubelet's program, for the same containers on the same node in turns

of all and preemption:
  --choices FILE  a program that makes the kubelet's choice with the kubelet's code: FILE CASE writes
                  how many victims, and in how many micros, as JSON

--into FILE puts the tables into FILE as well, in place of those that the same command put there before:
between '<!-- Written by `winddown-bench COMMAND`. -->' and '<!-- End of it. -->'; `all` puts each of its tables into the place
of its own command. It may be given for several files: each gets what it has a place for.

--check fails if a target is missed that its floor would meet, or by far more than the floor, or if something that has a
target could not be measured.";

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut files = Vec::new();
    while let Some(at) = args.iter().position(|arg| arg == "--into") {
        files.extend(args.drain(at..args.len().min(at + 2)).nth(1));
    }
    let check = args.iter().position(|arg| arg == "--check").map(|at| args.remove(at)).is_some();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["pod", log, stop_ms] = words[..] {
        return pod(log.as_ref(), stop_ms.parse().unwrap_or(0));
    }
    let Some((command, rest)) = words.split_first().filter(|_| !words.contains(&"--help")) else {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    };
    let done = run(command, rest).and_then(|said| {
        println!("{}", said.text);
        if !files.is_empty() {
            let put = |(place, text): &(String, String)| document::replace(&files, place, text);
            said.places.iter().try_for_each(put)?;
        }
        let missed = table::missed(&said.text);
        match check && !missed.is_empty() {
            true => Err(format!("not what it is to be:\n{}", missed.join("\n"))),
            false => Ok(()),
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("winddown-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What a command has to say.
struct Said {
    /// On the terminal.
    text: String,
    /// In the places of a document.
    places: Vec<(String, String)>,
}

/// Carries a command out.
fn run(command: &str, rest: &[&str]) -> Result<Said, String> {
    if command == "all" {
        let options = Options::parse(rest, &Options::default())?;
        return block_on(all::measure(&options));
    }
    let text = one(command, rest)?;
    Ok(Said { places: vec![(command.to_owned(), text.clone())], text })
}

/// The text of a command that measures one thing.
fn one(command: &str, rest: &[&str]) -> Result<String, String> {
    match (command, rest) {
        ("agent", _) => {
            let options = Options::parse(rest, &Options::default())?;
            told(block_on(agent(&options))?.map_err(|error| error_chain(&error)))
        }
        ("containers", _) => {
            let options = Options::parse(rest, &Options::default())?;
            told(block_on(containers::measure(&options))?.map_err(|error| error_chain(&error)))
        }
        ("fleet", _) => {
            let options = Options::parse(rest, &Options::of_fleet())?;
            let grids = block_on(fleet::measure(&options))?.map_err(|error| error_chain(&error))?;
            told(Ok(grids.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))
        }
        ("package", []) => told(package::measure()),
        ("pressure", []) => told(pressure::measure()),
        ("workers", []) => told(workers::measure().map_err(|error| error.to_string())),
        ("planners", []) => told(planners::measure()),
        ("kills", []) => told(Ok(kills::measure())),
        ("scaling", counts) => told(scaling::in_memory(&numbers(counts)?)),
        ("processes", counts) => told(block_on(scaling::processes(&numbers(counts)?))?),
        // What these commands run this program with, to count or to begin with no memory of their own.
        ("preemption", [file, strategy, times]) => preemption::repeat(file, strategy, times),
        ("planner", [name, pods, times]) => planners::repeat(name, pods, times),
        ("kills", [layer, pods, ended]) => kills::once(layer, pods, ended),
        ("least", [prefix, critical, notes, socket @ ..]) => {
            let socket = socket.first().map(|socket| (*socket).to_owned());
            let critical =
                critical.parse().map_err(|_| format!("{critical}: not a whole number"))?;
            let run = least::run((*prefix).to_owned(), critical, (*notes).to_owned(), socket);
            block_on_two(run)?
        }
        ("direct", [socket, manifests]) => {
            block_on_two(least::start_direct((*socket).to_owned(), (*manifests).to_owned()))?
        }
        ("tokio-alone", []) => block_on_two(workers::tokio_alone_once())?,
        ("held", [pods]) => block_on(scaling::held((*pods).to_owned()))?,
        ("scaling-once", [pods]) => block_on_two(scaling::once((*pods).to_owned()))?,
        ("preemption", _) => {
            let options = Options::parse(rest, &Options::default())?;
            told(preemption::measure(options.choices.as_deref()))
        }
        _ => Err(format!("{command} {}: not understood\n\n{USAGE}", rest.join(" "))),
    }
}

/// A table with the machine that it is of.
fn told(measured: Result<impl Display, String>) -> Result<String, String> {
    measured.map(|table| format!("{table}\n{}", document::machine()))
}

fn numbers(words: &[&str]) -> Result<Vec<usize>, String> {
    let number = |word: &&str| word.parse().map_err(|_| format!("{word}: not a whole number"));
    words.iter().map(number).collect()
}

fn block_on<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|error| error.to_string())?.block_on(work))
}

/// On two threads, which is what the agent has.
fn block_on_two<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, String> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    // As in the agent, where every caller is a task of the runtime.
    runtime.block_on(runtime.spawn(work)).map_err(|error| error.to_string())
}

fn pod(log: &Path, stop_ms: u64) -> ExitCode {
    block_on(pod::run(log, stop_ms)).unwrap_or(ExitCode::FAILURE)
}

/// The running agent.
async fn agent(options: &Options) -> Result<Table, BenchError> {
    let mut table =
        Table::titled(options.title("process runtime, stand-in for logind on a private bus"));
    let mut node = TestNode::start(options).await?;
    node.start_least(options.critical).await?;
    idle::measure(&node, options.idle, &mut table).await?;
    shutdown::measure(node, &mut table).await?;
    Ok(table)
}
