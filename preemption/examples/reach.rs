//! How far `minimal` is exact: full nodes of awkward pods, for each number of pods that have to end.
//!
//! ```text
//! cargo run --release --locked -p winddown-preemption --example reach
//! ```

use std::fmt::Write;

use tokio::time::Instant;
use winddown_preemption::{Proof, Requirement, Strategy, select};
use winddown_shared::{Pod, ResourceName};

/// Pseudo-random numbers, the same in every run.
struct Mixed(u64);

impl Mixed {
    fn up_to(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// The shape of the requests of a node's pods.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// All requests differ, to the byte.
    Odd,
    /// Multiples of 50m and 64Mi.
    Round,
    /// Eight deployments.
    Replicas,
    /// Each pod requests much of one resource and little of the other.
    Opposed,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut text = String::new();
    writeln!(
        text,
        "| pods | shape | resources | victims | shown up to | worst time | looked at |"
    )?;
    writeln!(
        text,
        "|-----:|-------|----------:|--------:|-------------|-----------:|----------:|"
    )?;
    for pods in [110, 250, 500] {
        for shape in [Shape::Odd, Shape::Round, Shape::Replicas, Shape::Opposed] {
            for resources in [1, 2, 3] {
                for share in [1_u64, 4, 10, 25] {
                    row(&mut text, pods, shape, resources, share)?;
                }
            }
        }
    }
    print!("{text}");
    Ok(())
}

/// Appends a row for ten nodes on which about `share` percent of everything has to become free.
fn row(
    text: &mut String,
    pods: usize,
    shape: Shape,
    resources: usize,
    share: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    let (mut shown, mut victims, mut worst, mut work) = (Vec::new(), 0, 0, 0);
    for seed in 0..10 {
        let mut mixed = Mixed(seed * 7919 + 17);
        let node = (0..pods).map(|i| pod(i, shape, &mut mixed)).collect::<Result<Vec<_>, _>>()?;
        let preemptor = critical()?;
        let names = [ResourceName::Memory, ResourceName::Cpu, ResourceName::EphemeralStorage];
        let needs: Vec<Requirement> = names[..resources]
            .iter()
            .map(|name| {
                let all: i64 = node.iter().map(|pod| pod.accounted_requests().get(name)).sum();
                (name.clone(), (all / 100 * i64::try_from(share).unwrap_or(1)).max(1) + 7)
            })
            .collect();
        select(&preemptor, &node, &needs, Strategy::Distance)?;
        let begun = Instant::now();
        let chosen = select(&preemptor, &node, &needs, Strategy::Minimal)?;
        // The best of three, because the machine may be busy.
        let mut took = begun.elapsed();
        for _ in 0..2 {
            let begun = Instant::now();
            std::hint::black_box(select(&preemptor, &node, &needs, Strategy::Minimal)?);
            took = took.min(begun.elapsed());
        }
        worst = worst.max(took.as_micros());
        work = work.max(chosen.work);
        victims = victims.max(chosen.victims.len());
        shown.push(chosen.proof);
    }
    let least = match shown.iter().min() {
        Some(Proof::UpTo(criterion)) => format!("{criterion:?}"),
        _ => "nothing".into(),
    };
    let exact = shown.iter().filter(|proof| proof.is_exact()).count();
    writeln!(
        text,
        "| {pods} | {shape:?} | {resources} | {victims} | {least} ({exact}/10 exact) | {:.1} ms | {work} |",
        f64::from(u32::try_from(worst)?) / 1000.0
    )?;
    Ok(())
}

fn pod(i: usize, shape: Shape, mixed: &mut Mixed) -> Result<Pod, Box<dyn std::error::Error>> {
    let (cpu, memory, disk) = match shape {
        Shape::Odd => {
            (mixed.up_to(1500) + 1, mixed.up_to(2_000_000_000) + 1, mixed.up_to(900_000_000) + 1)
        }
        Shape::Round => {
            let mebis = |n: u64| n * 64 * 1024 * 1024;
            (50 * mixed.up_to(30), mebis(mixed.up_to(32)), mebis(mixed.up_to(16)))
        }
        Shape::Replicas => {
            let of = u64::try_from(i % 8).unwrap_or(0) + 1;
            (of * 37 % 400 + 10, of * 531_441_001 % 900_000_007, of * 77_777_777 % 400_000_009)
        }
        Shape::Opposed => match i % 2 {
            0 => (
                mixed.up_to(20) + 1,
                mixed.up_to(2_000_000_000) + 1_000_000_000,
                mixed.up_to(999) + 1,
            ),
            _ => (mixed.up_to(1500) + 500, mixed.up_to(9999) + 1, mixed.up_to(900_000_000) + 1),
        },
    };
    let requests = serde_json::json!({
        "cpu": format!("{cpu}m"), "memory": memory.to_string(), "ephemeral-storage": disk.to_string(),
    });
    made(&format!("p{i:04}"), 0, &requests)
}

fn critical() -> Result<Pod, Box<dyn std::error::Error>> {
    made("critical", 2_000_001_000, &serde_json::json!({}))
}

fn made(
    name: &str,
    priority: i32,
    requests: &serde_json::Value,
) -> Result<Pod, Box<dyn std::error::Error>> {
    let object = serde_json::json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "annotations": {"kubernetes.io/config.source": "api"},
        },
        "spec": {
            "priority": priority,
            "containers": [{"name": "main", "resources": {"requests": requests}}],
        },
    });
    Ok(Pod::new(serde_json::from_value(object)?)?)
}
