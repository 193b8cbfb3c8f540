//! What is to be measured.

use std::path::PathBuf;
use std::time::Duration;

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// All pods.
    pub(crate) pods: usize,
    /// How many of them are critical.
    pub(crate) critical: usize,
    /// How long a pod takes to stop.
    pub(crate) stop: Duration,
    /// How long the idle agent is watched.
    pub(crate) idle: Duration,
    /// Nodes that are powered off, one after the other.
    pub(crate) runs: usize,
    /// The program of a kubelet that runs the same pods on the same node, in turns.
    pub(crate) kubelet: Option<PathBuf>,
    /// A program that chooses victims as the kubelet does, with the kubelet's own code.
    pub(crate) choices: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pods: 100,
            critical: 20,
            stop: Duration::from_secs(1),
            idle: Duration::from_secs(30),
            runs: 3,
            kubelet: None,
            choices: None,
        }
    }
}

impl Options {
    /// As many pods as a kubelet takes, watched for longer than a Node's status may go unwritten.
    pub(crate) fn of_fleet() -> Self {
        Self { pods: 110, critical: 20, idle: Duration::from_secs(320), ..Self::default() }
    }

    /// The title of a table.
    pub(crate) fn title(&self, on: &str) -> String {
        let Self { pods, critical, stop, .. } = self;
        format!("{pods} pods, {critical} of them critical, {stop:?} each to stop; {on}")
    }

    /// Reads what differs from `usual`.
    pub(crate) fn parse(args: &[&str], usual: &Self) -> Result<Self, String> {
        let mut options = usual.clone();
        let mut args = args.iter();
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            let program = match *name {
                "--kubelet" => Some(&mut options.kubelet),
                "--choices" => Some(&mut options.choices),
                _ => None,
            };
            if let Some(program) = program {
                *program = (!value.is_empty()).then(|| value.into());
                continue;
            }
            let number: u32 =
                value.parse().map_err(|_| format!("{name} {value}: not a whole number"))?;
            let count = || usize::try_from(number).unwrap_or(usize::MAX);
            match *name {
                "--pods" => options.pods = count(),
                "--critical" => options.critical = count(),
                "--stop-ms" => options.stop = Duration::from_millis(number.into()),
                "--runs" => options.runs = count().max(1),
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
        Options::parse(args, &Options::default())
    }

    #[test]
    fn the_default_is_a_hundred_pods() {
        let options = parse(&[]).unwrap();
        assert_eq!((options.pods, options.critical, options.stop.as_millis()), (100, 20, 1000));
    }

    #[test]
    fn programs_to_compare_with_are_named_or_none() {
        let options = parse(&["--kubelet", "/k", "--choices", "", "--runs", "10"]).unwrap();
        assert_eq!((options.kubelet, options.choices, options.runs), (Some("/k".into()), None, 10));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        assert_eq!(parse(&["--pods"]), Err("--pods needs a value".into()));
        assert_eq!(parse(&["--pods", "x"]), Err("--pods x: not a whole number".into()));
        assert_eq!(parse(&["--pods", "3"]), Err("--critical is more than --pods".into()));
        assert_eq!(parse(&["--speed", "3"]), Err("unknown option --speed".into()));
    }
}
