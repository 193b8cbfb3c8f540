//! What many nodes ask of one API server, from what one was seen to ask. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

/// How finely a burst is looked at.
pub(crate) const SLOT: Duration = Duration::from_millis(100);

/// A priority level of API Priority and Fairness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Node objects and their leases (flow schema `system-node-high`).
    NodeHigh,
    /// Everything else of a node (flow schema `system-nodes`).
    System,
}

/// One request as the model sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Since the beginning of what was watched.
    pub(crate) after: Duration,
    /// `patch pods/status`.
    pub(crate) what: String,
    /// Bytes of its body.
    pub(crate) body: u64,
}

/// What one node was seen to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// How often it was seen; everything below is of all times together.
    pub(crate) times: u32,
    /// How long it was watched each time.
    pub(crate) span: Duration,
    pub(crate) asked: Vec<Asked>,
    /// Bytes on the wire from the node and to it.
    pub(crate) bytes: (u64, u64),
}

/// What an API server and its etcd can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    /// Requests that a server with the default flags works on at once.
    pub(crate) concurrency: f64,
    /// How long a request keeps its seat.
    pub(crate) seat: Duration,
    /// Requests that wait at a level before others are answered 429.
    pub(crate) queue: f64,
    /// Writes per second.
    pub(crate) etcd: f64,
}

/// Nodes that do something at the same moment, while what all do in idle times goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scenario<'a> {
    pub(crate) nodes: u32,
    /// What they do.
    pub(crate) act: &'a Seen,
    /// All nodes of the cluster.
    pub(crate) all: u32,
}

/// What it comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    /// Requests of those that act, beyond what they do in idle times.
    pub(crate) requests: f64,
    /// Those of them that etcd writes.
    pub(crate) writes: f64,
    /// The most requests in any second, all nodes together.
    pub(crate) peak: f64,
    /// Bytes on the wire of those that act.
    pub(crate) bytes: f64,
    /// Bytes per second on the wire of all nodes in idle times.
    pub(crate) usual_bytes: f64,
    /// The part of each limit that is used on average while they act.
    pub(crate) system: f64,
    pub(crate) node_high: f64,
    pub(crate) etcd: f64,
    /// The most requests that wait at one level at any time.
    pub(crate) waiting: f64,
    /// How much later the last request is served than a server without limits would have served it.
    pub(crate) late: Duration,
    /// More wait than may: some are answered 429 and come again.
    pub(crate) refused: bool,
}

// === impl Limits ===

impl Limits {
    /// One server with its defaults beside an etcd of three members.
    ///
    /// `--max-requests-inflight` 400 and `--max-mutating-requests-inflight` 200 add up (kube-apiserver
    /// reference). A request keeps its seat for 22 ms: etcd's mean latency at 44 341 writes a second
    /// (etcd documentation, op-guide/performance: 3 × 8 processors, SSD, values of 256 bytes, 1000
    /// clients). 64 queues of 50 requests are a level's (`bootstrap/default.go` of kube-apiserver).
    pub(crate) const DEFAULT: Self = Self {
        concurrency: 600.0,
        seat: Duration::from_millis(22),
        queue: 64.0 * 50.0,
        etcd: 44_341.0,
    };

    /// Seats of a level: its share of the concurrency. The suggested configuration has shares of 40 for
    /// `node-high`, 30 for `system` and 245 in all (`bootstrap/default.go`); that idle levels lend
    /// some of theirs is not counted on.
    pub(crate) fn seats(&self, level: Level) -> f64 {
        let share = match level {
            Level::NodeHigh => 40.0,
            Level::System => 30.0,
        };
        (self.concurrency * share / 245.0).ceil()
    }

    /// Requests per second that a level serves.
    pub(crate) fn rate(&self, level: Level) -> f64 {
        self.seats(level) / self.seat.as_secs_f64()
    }
}

// === impl Asked ===

impl Asked {
    /// Where the server queues it.
    pub(crate) fn level(&self) -> Level {
        let resource = self.what.split(' ').nth(1).unwrap_or_default();
        match resource {
            "nodes" | "nodes/status" | "leases" => Level::NodeHigh,
            _ => Level::System,
        }
    }

    /// Whether etcd writes it.
    pub(crate) fn is_write(&self) -> bool {
        let (verb, resource) = self.what.split_once(' ').unwrap_or_default();
        let writes = ["create", "update", "patch", "delete", "deletecollection"].contains(&verb);
        // Questions in the form of objects.
        writes && !resource.starts_with("selfsubject") && resource != "serviceaccounts/token"
    }
}

// === impl Seen ===

impl Seen {
    /// How often each kind of request was seen, with the mean size of its body.
    pub(crate) fn kinds(&self) -> BTreeMap<&str, (u32, u64)> {
        let mut kinds = BTreeMap::<&str, (u32, u64)>::new();
        for asked in &self.asked {
            let kind = kinds.entry(&asked.what).or_default();
            kind.0 += 1;
            kind.1 += asked.body;
        }
        kinds.values_mut().for_each(|(count, body)| *body /= u64::from(*count));
        kinds
    }

    /// The same several times over.
    pub(crate) fn together(seen: Vec<Self>) -> Option<Self> {
        seen.into_iter().reduce(|mut all, one| {
            all.times += one.times;
            all.span = all.span.max(one.span);
            all.asked.extend(one.asked);
            all.bytes = (all.bytes.0 + one.bytes.0, all.bytes.1 + one.bytes.1);
            all
        })
    }

    /// What does not happen in idle times as well: kinds that were seen no more than twice as often as
    /// in idle times are left out.
    fn beyond(&self, idle: &Self) -> Self {
        let seen = self.kinds();
        let is_usual = |what: &str| {
            let rate = idle.per_second(|asked| asked.what == what);
            let usual = rate * self.span.as_secs_f64() * f64::from(self.times);
            rate > 0.0
                && seen.get(what).is_some_and(|seen| f64::from(seen.0) <= (usual * 2.0).ceil())
        };
        let asked = self.asked.iter().filter(|asked| !is_usual(&asked.what));
        Self { asked: asked.cloned().collect(), ..self.clone() }
    }

    /// Requests of one node, once.
    fn count(&self, is: impl Fn(&Asked) -> bool) -> f64 {
        let count = self.asked.iter().filter(|asked| is(asked)).fold(0.0, |count, _| count + 1.0);
        count / f64::from(self.times)
    }

    fn per_second(&self, is: impl Fn(&Asked) -> bool) -> f64 {
        self.count(is) / self.span.as_secs_f64().max(SLOT.as_secs_f64())
    }

    /// How many requests of one node began in each slot.
    fn slots(&self, is: impl Fn(&Asked) -> bool) -> Vec<f64> {
        let slot = |time: Duration| {
            usize::try_from(time.as_millis() / SLOT.as_millis()).unwrap_or(usize::MAX)
        };
        let mut slots = vec![0.0; slot(self.span) + 1];
        for asked in self.asked.iter().filter(|asked| is(asked)) {
            let last = slots.len() - 1;
            slots[slot(asked.after).min(last)] += 1.0 / f64::from(self.times);
        }
        slots
    }
}

/// What the server has to bear. All that act begin in the same instant, which is the worst case; what
/// they do in idle times is spread evenly.
pub(crate) fn load(scenario: Scenario<'_>, idle: &Seen, limits: &Limits) -> Load {
    let act = scenario.act.beyond(idle);
    let (nodes, all) = (f64::from(scenario.nodes), f64::from(scenario.all));
    let demand =
        |is: &dyn Fn(&Asked) -> bool| nodes * act.per_second(is) + all * idle.per_second(is);
    let of = |level: Level| move |asked: &Asked| asked.level() == level;
    let queue = |is: &dyn Fn(&Asked) -> bool, rate: f64| {
        let steady = all * idle.per_second(is);
        drain(&act.slots(is), nodes, (rate - steady).max(f64::MIN_POSITIVE))
    };
    let system = queue(&of(Level::System), limits.rate(Level::System));
    let node_high = queue(&of(Level::NodeHigh), limits.rate(Level::NodeHigh));
    let etcd = queue(&Asked::is_write, limits.etcd);
    let waiting = system.waiting.max(node_high.waiting);
    let on_wire = |seen: &Seen| crate::figure::exact(seen.bytes.0 + seen.bytes.1);
    Load {
        requests: nodes * act.count(|_| true),
        writes: nodes * act.count(Asked::is_write),
        peak: nodes * busiest_second(&act.slots(|_| true)) + all * idle.per_second(|_| true),
        bytes: nodes * on_wire(&act) / f64::from(act.times),
        usual_bytes: all * on_wire(idle) / idle.span.as_secs_f64().max(SLOT.as_secs_f64()),
        system: demand(&of(Level::System)) / limits.rate(Level::System),
        node_high: demand(&of(Level::NodeHigh)) / limits.rate(Level::NodeHigh),
        etcd: demand(&Asked::is_write) / limits.etcd,
        waiting,
        late: system.late.max(node_high.late).max(etcd.late),
        refused: waiting > limits.queue,
    }
}

/// What a queue came to.
struct Queue {
    waiting: f64,
    late: Duration,
}

/// Serves what comes in each slot, times `nodes`, at `rate` a second.
fn drain(slots: &[f64], nodes: f64, rate: f64) -> Queue {
    let serves = rate * SLOT.as_secs_f64();
    let (mut waiting, mut most, mut last) = (0.0_f64, 0.0_f64, 0.0_f64);
    for comes in slots {
        waiting = (waiting + comes * nodes - serves).max(0.0);
        most = most.max(waiting);
        if *comes > 0.0 {
            last = waiting;
        }
    }
    // After the last request came, nothing else does.
    Queue { waiting: most, late: Duration::try_from_secs_f64(last / rate).unwrap_or(Duration::MAX) }
}

/// The most in any ten slots in a row.
fn busiest_second(slots: &[f64]) -> f64 {
    let second = 10.min(slots.len());
    slots.windows(second.max(1)).map(|window| window.iter().sum()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests;
