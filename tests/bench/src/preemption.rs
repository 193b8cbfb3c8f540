//! The choice of victims on full nodes. Where a program is named that makes the kubelet's choice with the kubelet's
//! own code, what that needs for the same choice stands beside it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use serde_json::Value;
use tokio::time::Instant;
use winddown_preemption::{Proof, Requirement, Selection, Strategy, select};
use winddown_shared::{Pod, ResourceName};

use crate::counted::{Counting, per_time};
use crate::figure::{self, Figure, count, median, micros};
use crate::table::{Measured, Table};
use crate::targets;

/// Pods of a node.
const NODES: [usize; 3] = [110, 500, 2000];

/// Runs of which the median counts.
const RUNS: usize = 301;

/// Runs of which the instructions are counted.
const COUNTED: u64 = 10;

/// A full node, and a critical pod that does not fit on it.
struct Case {
    preemptor: Pod,
    pods: Vec<Pod>,
    requirements: Vec<Requirement>,
    /// The kubelet's victims.
    victims: Vec<String>,
}

pub(crate) fn measure(choices: Option<&Path>) -> Result<Table, String> {
    let title = format!(
        "choosing the victims for a critical pod; one thread, median of {RUNS} runs; what is asked of a \
         pod is worked out when its object is taken, once"
    );
    let mut table = Table::titled(title);
    for pods in NODES {
        let file = corpus_file(pods);
        let case = Case::read(&file)?;
        let distance = case.select(Strategy::Distance)?;
        if case.names(&distance) != case.victims {
            return Err(format!("{file}: not the kubelet's victims"));
        }
        let kubelet = choices.map(|program| kubelets(program, &file, &case)).transpose()?;
        distance_rows(&mut table, &case, &file, &distance, kubelet)?;
        minimal_rows(&mut table, &case, &file)?;
    }
    Ok(table)
}

/// Chooses so many times and does nothing else: what the instructions are counted of.
pub(crate) fn repeat(file: &str, strategy: &str, times: &str) -> Result<String, String> {
    let strategy = strategy.parse::<Strategy>().map_err(|error| error.to_string())?;
    let times: u64 = times.parse().map_err(|_| format!("{times}: not a whole number"))?;
    let case = Case::read(file)?;
    for _ in 0..times {
        std::hint::black_box(case.select(strategy)?);
    }
    Ok(format!("{times} times"))
}

fn distance_rows(
    table: &mut Table,
    case: &Case,
    file: &str,
    chosen: &Selection,
    kubelet: Option<Duration>,
) -> Result<(), String> {
    let pods = case.pods.len();
    let took = case.median(Strategy::Distance)?;
    let what = format!("distance, {pods} pods, {} victims", chosen.victims.len());
    let row = table.row(&what, micros(took));
    if let Some(kubelet) = kubelet {
        row.kubelet(micros(kubelet));
        let row = table.row("- times faster", times_faster(took, kubelet));
        row.above(figure::times(targets::VICTIMS));
        row.floor(Some(times_faster(least(chosen.work), kubelet)));
    }
    table.row("- pods looked at", count(chosen.work));
    table.row("- instructions", instructions(file, Strategy::Distance));
    let cold = cold(file)?;
    table.row("- among pods that were just taken", micros(cold));
    if let Some(kubelet) = kubelet {
        let row = table.row("- times faster among those", times_faster(cold, kubelet));
        row.above(figure::times(targets::VICTIMS_AMONG_NEW));
    }
    table.row("- taking all pods before", micros(median((0..5).map(|_| case.taken()).collect())));
    Ok(())
}

/// What a program needs that has the requests at hand, looks at as many pods and compares them by the same formula, and does
/// nothing else.
fn least(looked_at: u64) -> Duration {
    let requests: Vec<f64> =
        (1..=u32::try_from(looked_at).unwrap_or(u32::MAX)).map(f64::from).collect();
    let asked = requests.last().copied().unwrap_or(1.0);
    let runs = (0..RUNS).map(|_| {
        let begun = Instant::now();
        let distance = |request: &f64| ((asked - request) / asked).powi(2);
        let nearest = std::hint::black_box(&requests).iter().map(distance).fold(1.0, f64::min);
        std::hint::black_box(nearest);
        begun.elapsed()
    });
    median(runs.collect())
}

fn times_faster(ours: Duration, kubelet: Duration) -> Figure {
    figure::times(kubelet.as_secs_f64() / ours.as_secs_f64().max(1e-9))
}

/// What the kubelet's own code needs for this choice, on this machine: `PROGRAM FILE` says
/// `{"victims": NUMBER, "micros": NUMBER}`, and fails if they are not those of the file.
fn kubelets(program: &Path, file: &str, case: &Case) -> Result<Duration, String> {
    let wrong = |what: String| format!("{} {file}: {what}", program.display());
    let ran = Command::new(program).arg(file).output().map_err(|e| wrong(e.to_string()))?;
    if !ran.status.success() {
        return Err(wrong(String::from_utf8_lossy(&ran.stderr).trim().to_owned()));
    }
    let said: Value = serde_json::from_slice(&ran.stdout).map_err(|e| wrong(e.to_string()))?;
    let victims = said["victims"].as_u64().and_then(|number| usize::try_from(number).ok());
    let micros = said["micros"].as_f64().filter(|micros| *micros > 0.0);
    match (victims, micros) {
        (Some(victims), Some(micros)) if victims == case.victims.len() => {
            Duration::try_from_secs_f64(micros / 1e6).map_err(|error| wrong(error.to_string()))
        }
        _ => Err(wrong(format!("{said}: not a time for {} victims", case.victims.len()))),
    }
}

fn minimal_rows(table: &mut Table, case: &Case, file: &str) -> Result<(), String> {
    let chosen = case.select(Strategy::Minimal)?;
    let pods = case.pods.len();
    let took = case.median(Strategy::Minimal)?;
    let what = format!("minimal, {pods} pods, {} victims", chosen.victims.len());
    let row = table.row(&what, micros(took));
    if pods <= 500 {
        row.below(micros(targets::MINIMAL));
    }
    table.row("- pods looked at", count(chosen.work));
    table.row("- instructions", instructions(file, Strategy::Minimal));
    let known = match chosen.proof {
        Proof::Heuristic => "nothing".to_owned(),
        Proof::UpTo(criterion) => format!("{criterion:?}"),
    };
    table.row("- shown to be best up to", known);
    Ok(())
}

fn corpus_file(pods: usize) -> String {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    corpus.join(format!("bench-{pods}.json")).display().to_string()
}

/// What a choice takes among pods that no choice was made among yet.
fn cold(file: &str) -> Result<Duration, String> {
    let mut runs = Vec::new();
    for _ in 0..5 {
        let case = Case::read(file)?;
        let begun = Instant::now();
        std::hint::black_box(case.select(Strategy::Distance)?);
        runs.push(begun.elapsed());
    }
    Ok(median(runs))
}

/// The instructions of one choice.
fn instructions(file: &str, strategy: Strategy) -> Measured {
    let args =
        |times: u64| ["preemption", file, strategy.as_str(), &times.to_string()].map(str::to_owned);
    match per_time(Counting::Instructions, COUNTED, |times| args(times).to_vec()) {
        Some(counted) => count(counted).into(),
        None => "no valgrind".to_owned().into(),
    }
}

impl Case {
    fn read(file: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("{file}: {what}");
        let text = std::fs::read_to_string(file).map_err(|error| wrong(&error.to_string()))?;
        let mut json: Value =
            serde_json::from_str(&text).map_err(|error| wrong(&error.to_string()))?;
        let pod = |json: Value| {
            let object: api::Pod =
                serde_json::from_value(json).map_err(|e| wrong(&e.to_string()))?;
            Pod::new(object).map_err(|error| wrong(&error.to_string()))
        };
        let list = |json: &mut Value| match json.take() {
            Value::Array(list) => list,
            _ => Vec::new(),
        };
        let requirement = |json: &Value| {
            let name = json["resource"].as_str()?;
            Some((ResourceName::from(name), json["quantity"].as_i64()?))
        };
        Ok(Self {
            preemptor: pod(json["preemptor"].take())?,
            pods: list(&mut json["pods"]).into_iter().map(pod).collect::<Result<_, _>>()?,
            requirements: list(&mut json["requirements"]).iter().filter_map(requirement).collect(),
            victims: list(&mut json["victims"])
                .iter()
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect(),
        })
    }

    fn select(&self, strategy: Strategy) -> Result<Selection, String> {
        select(&self.preemptor, &self.pods, &self.requirements, strategy)
            .map_err(|error| error.to_string())
    }

    /// How long it takes to work out what is asked of every pod.
    fn taken(&self) -> Duration {
        let objects: Vec<api::Pod> = self.pods.iter().map(|pod| pod.object().clone()).collect();
        let begun = Instant::now();
        let pods: Vec<_> = objects.into_iter().map(Pod::new).collect();
        let took = begun.elapsed();
        std::hint::black_box(pods);
        took
    }

    fn names(&self, selection: &Selection) -> Vec<&str> {
        selection.victims.iter().map(|place| &**self.pods[*place].name()).collect()
    }

    fn median(&self, strategy: Strategy) -> Result<Duration, String> {
        let mut runs = Vec::with_capacity(RUNS);
        for _ in 0..RUNS {
            let begun = Instant::now();
            std::hint::black_box(self.select(strategy)?);
            runs.push(begun.elapsed());
        }
        Ok(median(runs))
    }
}
