//! Measures the running agent: the real binary with the process runtime and real pods, on a private
//! bus with a stand-in for logind.
//!
//! ```text
//! winddown-bench workers
//! winddown-bench preemption
//! winddown-bench containers [OPTIONS]
//! winddown-bench [--pods N] [--critical N] [--stop-ms MS] [--idle SECONDS]
//! ```
//!
//! With `containers` it is a disposable node with a real systemd and a real containerd, which takes
//! root. Prints one table. Nothing outside a temporary folder is touched, and no machine goes down.

mod clock;
mod containers;
mod idle;
mod node;
mod pod;
mod preemption;
mod process;
mod shutdown;
mod table;
mod workers;

use std::process::ExitCode;
use std::time::Duration;

use node::{BenchError, TestNode};
use table::Table;
use winddown_shared::error_chain;

const USAGE: &str = "\
usage: winddown-bench [--pods N] [--critical N] [--stop-ms MS] [--idle SECONDS]
       winddown-bench containers [the same options]
       winddown-bench workers
       winddown-bench preemption
Measures the agent that was built beside it (or WINDDOWN_BIN): with processes as pods, with `containers` with
containerd on a disposable node (needs root); with `workers` the pod workers alone, with `preemption` the
choice of victims.
Defaults: 100, 20, 1000, 30.";

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    /// All pods.
    pods: usize,
    /// How many of them are critical.
    critical: usize,
    /// How long a pod takes to stop.
    stop: Duration,
    /// How long the idle agent is watched.
    idle: Duration,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["workers"] => print(workers::measure()),
        ["preemption"] => print(preemption::measure()),
        ["preemption", file, strategy, times] => print(preemption::repeat(file, strategy, times)),
        _ => agent(&args),
    }
}

/// Prints what was measured.
fn print(measured: Result<impl std::fmt::Display, impl std::fmt::Display>) -> ExitCode {
    match measured {
        Ok(table) => {
            println!("{table}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("winddown-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn agent(args: &[String]) -> ExitCode {
    if let [command, log, stop_ms] = args
        && command == "pod"
    {
        return pod::run(log.as_ref(), stop_ms.parse().unwrap_or(0)).await;
    }
    if args.iter().any(|arg| arg == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let (in_containers, args) = match args {
        [first, rest @ ..] if first == "containers" => (true, rest),
        all => (false, all),
    };
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("winddown-bench: {message}");
            return ExitCode::from(2);
        }
    };
    let measured = if in_containers {
        containers::measure(&options).await.map_err(|error| error_chain(&error))
    } else {
        measure(&options).await.map_err(|error| error_chain(&error))
    };
    match measured {
        Ok(table) => {
            println!("{table}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("winddown-bench: {text}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(options: &Options) -> Result<Table, BenchError> {
    let mut table =
        Table::titled(options.title("process runtime, stand-in for logind on a private bus"));
    let node = TestNode::start(options).await?;
    idle::measure(&node, options.idle, &mut table).await?;
    shutdown::measure(node, &mut table).await?;
    Ok(table)
}

// === impl Options ===

impl Options {
    fn title(&self, on: &str) -> String {
        let Self { pods, critical, stop, .. } = self;
        format!("{pods} pods, {critical} of them critical, {stop:?} each to stop; {on}")
    }

    fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self {
            pods: 100,
            critical: 20,
            stop: Duration::from_secs(1),
            idle: Duration::from_secs(30),
        };
        let mut args = args.iter();
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            let number: u32 =
                value.parse().map_err(|_| format!("{name} {value}: not a whole number"))?;
            let count = || usize::try_from(number).unwrap_or(usize::MAX);
            match name.as_str() {
                "--pods" => options.pods = count(),
                "--critical" => options.critical = count(),
                "--stop-ms" => options.stop = Duration::from_millis(number.into()),
                "--idle" => options.idle = Duration::from_secs(number.max(1).into()),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        if options.critical > options.pods {
            return Err("--critical is more than --pods".to_owned());
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    fn parse(args: &[&str]) -> Result<Options, String> {
        Options::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_default_is_the_hundred_pods_that_the_kubelet_was_measured_with() {
        let options = parse(&[]).unwrap();
        assert_eq!((options.pods, options.critical, options.stop.as_millis()), (100, 20, 1000));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        assert_eq!(parse(&["--pods"]), Err("--pods needs a value".into()));
        assert_eq!(parse(&["--pods", "x"]), Err("--pods x: not a whole number".into()));
        assert_eq!(parse(&["--pods", "3"]), Err("--critical is more than --pods".into()));
        assert_eq!(parse(&["--speed", "3"]), Err("unknown option --speed".into()));
    }
}
