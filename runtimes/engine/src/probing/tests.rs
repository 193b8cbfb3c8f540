use std::sync::{Arc, Mutex};

use tokio::time::{sleep, sleep_until};

use super::*;

#[test]
fn a_verdict_needs_enough_results_in_a_row() {
    let probe = k8s::Probe {
        success_threshold: Some(2),
        failure_threshold: Some(3),
        ..k8s::Probe::default()
    };
    let mut verdict = ProbeVerdict::of(&probe);
    let said: String = "++--+---+-++"
        .chars()
        .map(|c| match verdict.count(c == '+') {
            Some(true) => 'W',
            Some(false) => 'B',
            None => '.',
        })
        .collect();
    assert_eq!(said, ".W.....B...W");
}

#[test]
fn what_a_probe_leaves_out_is_kubernetes_default() {
    let odd = k8s::Probe {
        period_seconds: Some(0),
        timeout_seconds: Some(-1),
        failure_threshold: Some(0),
        ..k8s::Probe::default()
    };
    for probe in [k8s::Probe::default(), odd] {
        let Schedule { initial_delay, period, timeout, .. } = Schedule::of(&probe);
        assert_eq!((initial_delay.as_secs(), period.as_secs(), timeout.as_secs()), (0, 10, 1));
        let ProbeVerdict { successes, failures, .. } = ProbeVerdict::of(&probe);
        assert_eq!((successes, failures), (1, 3));
    }
}

/// Answers by probe and by count: `+` success, `-` failure, `?` no result. The last answer is repeated.
struct Scripted {
    began: Instant,
    answers: Mutex<Vec<(&'static str, usize)>>,
    found: Arc<Mutex<Vec<(u64, ProbeFinding)>>>,
    /// How long it takes to answer.
    takes: Duration,
    /// Whether the container counted as started from the beginning.
    adopted: bool,
    ending: Duration,
    over: Duration,
}

impl Probed for Scripted {
    type Action = &'static str;

    async fn ask(&self, _: ProbeKind, action: &Self::Action, _timeout: Duration) -> Option<bool> {
        let answer = {
            let mut asked = self.answers.lock().unwrap();
            let at = asked.iter().position(|(name, _)| name == action).unwrap_or(asked.len());
            if at == asked.len() {
                asked.push((action, 0));
            }
            asked[at].1 += 1;
            action.chars().nth(asked[at].1 - 1).or(action.chars().last())
        };
        if !self.takes.is_zero() {
            sleep(self.takes).await;
        }
        match answer {
            Some('+') => Some(true),
            Some('-') => Some(false),
            _ => None,
        }
    }

    fn note(&self, found: ProbeFinding) {
        self.found.lock().unwrap().push((self.began.elapsed().as_secs(), found));
    }

    fn is_started(&self) -> bool {
        self.adopted
    }

    async fn is_ending(&self) {
        sleep_until(self.began + self.ending).await;
    }

    async fn is_over(&self) {
        sleep_until(self.began + self.over).await;
    }
}

/// Runs the probes, each every 10 s and with thresholds of 1 and 2, for this many seconds.
async fn found_in(probes: [Option<&'static str>; 3], seconds: u64) -> Vec<(u64, ProbeFinding)> {
    found_until(probes, (seconds, seconds), false).await
}

/// Like [`found_in`], of a container whose pod is asked to stop at `ending` and that is gone at `over`. `adopted`: it
/// counted as started from the beginning.
async fn found_until(
    probes: [Option<&'static str>; 3],
    until: (u64, u64),
    adopted: bool,
) -> Vec<(u64, ProbeFinding)> {
    found_after(0, Duration::ZERO, probes, until, adopted).await
}

/// The same with this initial delay in seconds, of a container that has run for `age`.
async fn found_after(
    delay: i32,
    age: Duration,
    [startup, readiness, liveness]: [Option<&'static str>; 3],
    (ending, over): (u64, u64),
    adopted: bool,
) -> Vec<(u64, ProbeFinding)> {
    let probe = k8s::Probe {
        failure_threshold: Some(2),
        initial_delay_seconds: Some(delay),
        ..k8s::Probe::default()
    };
    let of = |kind, action| Probe {
        kind,
        action,
        schedule: Schedule::of(&probe),
        verdict: ProbeVerdict::of(&probe),
    };
    let probes = Probes {
        startup: startup.map(|action| of(ProbeKind::Startup, action)),
        readiness: readiness.map(|action| of(ProbeKind::Readiness, action)),
        liveness: liveness.map(|action| of(ProbeKind::Liveness, action)),
    };
    let scripted = Scripted {
        began: Instant::now(),
        answers: Mutex::default(),
        found: Arc::default(),
        takes: Duration::ZERO,
        adopted,
        ending: Duration::from_secs(ending),
        over: Duration::from_secs(over),
    };
    found_by(probes, age, scripted).await
}

async fn found_by(
    probes: Probes<&'static str>,
    age: Duration,
    scripted: Scripted,
) -> Vec<(u64, ProbeFinding)> {
    let found = Arc::clone(&scripted.found);
    let (_alive, alive) = watch::channel(());
    probes.begin(scripted, age, alive);
    sleep(Duration::from_secs(1000)).await;
    found.lock().unwrap().clone()
}

/// Probes of a container with one probe, every `period` seconds and with a failure threshold of 2.
fn probes(kind: ProbeKind, period: i32, action: &'static str) -> Probes<&'static str> {
    let spec = k8s::Probe {
        period_seconds: Some(period),
        failure_threshold: Some(2),
        ..k8s::Probe::default()
    };
    let probe =
        Probe { kind, action, schedule: Schedule::of(&spec), verdict: ProbeVerdict::of(&spec) };
    let mut probes = Probes { startup: None, readiness: None, liveness: None };
    match kind {
        ProbeKind::Startup => probes.startup = Some(probe),
        ProbeKind::Readiness => probes.readiness = Some(probe),
        ProbeKind::Liveness => probes.liveness = Some(probe),
    }
    probes
}

/// A container whose probes answer after so many seconds and that is over after 20.
fn slow(takes: u64) -> Scripted {
    Scripted {
        began: Instant::now(),
        answers: Mutex::default(),
        found: Arc::default(),
        takes: Duration::from_secs(takes),
        adopted: false,
        ending: Duration::from_secs(25),
        over: Duration::from_secs(25),
    }
}

#[tokio::test(start_paused = true)]
async fn the_other_probes_rest_until_the_startup_probe_has_passed() {
    let probes = [Some("-?+"), Some("+ "), Some("+- ")];
    let expected = [(20, ProbeFinding::Started { ready: false }), (20, ProbeFinding::Ready(true))];
    assert_eq!(found_in(probes, 500).await, expected);
    let expected = [(20, ProbeFinding::Started { ready: true })];
    assert_eq!(found_in([Some("-?+"), None, None], 500).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_fails_is_told_of_once_and_not_asked_whether_it_has_started_again() {
    let failing = |at, kind| [(at, ProbeFinding::Failing(kind))];
    assert_eq!(
        found_in([Some("-"), Some("+"), Some("+")], 500).await,
        failing(10, ProbeKind::Startup)
    );
    assert_eq!(found_in([None, None, Some("+--")], 500).await, failing(20, ProbeKind::Liveness));
    assert!(found_in([None, None, Some("-+")], 500).await.is_empty(), "one is not enough");
    assert!(found_in([None, None, Some("?")], 500).await.is_empty(), "no answer is none");
}

#[tokio::test(start_paused = true)]
async fn the_period_of_a_probe_is_the_time_between_two_however_long_each_takes() {
    // A server that accepts and never answers: asked at 0 and at 10.
    for kind in [ProbeKind::Startup, ProbeKind::Liveness] {
        let found = found_by(probes(kind, 10, "-"), Duration::ZERO, slow(10)).await;
        assert_eq!(found, [(20, ProbeFinding::Failing(kind))]);
    }
    // A command that takes most of its period: asked at 0, 5, 10 and so on.
    let readiness = probes(ProbeKind::Readiness, 5, "+");
    let ready = [4, 9, 14, 19, 24].map(|at| (at, ProbeFinding::Ready(true)));
    assert_eq!(found_by(readiness, Duration::ZERO, slow(4)).await, ready);
    // One that takes longer is asked again at once, and never twice at a time.
    let readiness = probes(ProbeKind::Readiness, 5, "+");
    let ready = [7, 14, 21].map(|at| (at, ProbeFinding::Ready(true)));
    assert_eq!(found_by(readiness, Duration::ZERO, slow(7)).await, ready);
}

/// All at once they are more commands than the node can run within their timeout.
#[tokio::test(start_paused = true)]
async fn after_a_restart_of_the_agent_the_probes_of_the_node_are_spread_over_their_period() {
    let age = Duration::from_secs(600);
    for kind in [ProbeKind::Startup, ProbeKind::Readiness, ProbeKind::Liveness] {
        let mut first = [0; 10];
        for n in 0..50 {
            let mut probes = probes(kind, 10, if kind == ProbeKind::Liveness { "-" } else { "+" });
            probes.spread(&format!("c{n}"));
            let found = found_by(probes, age, slow(0)).await;
            // The second failure comes one period after the first.
            let second = if kind == ProbeKind::Liveness { 10 } else { 0 };
            first[usize::try_from(found[0].0).unwrap() - second] += 1;
        }
        assert!(first.iter().all(|asked| (1..=15).contains(asked)), "{kind:?}: {first:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn readiness_is_followed_until_the_container_is_over() {
    let found = found_in([None, Some("+--+"), None], 35).await;
    let ready = [(0, true), (20, false), (30, true)].map(|(at, is)| (at, ProbeFinding::Ready(is)));
    assert_eq!(found, ready);
}

#[tokio::test(start_paused = true)]
async fn the_initial_delay_counts_from_the_start_of_the_container() {
    let found = async |age, probes| {
        found_after(30, Duration::from_secs(age), probes, (500, 500), false).await
    };
    let ready = |at| [(at, ProbeFinding::Ready(true))];
    for (age, at) in [(0, 30), (12, 18), (40, 0)] {
        assert_eq!(found(age, [None, Some("+"), None]).await[..1], ready(at), "after {age} s");
        let failing = [(at + 10, ProbeFinding::Failing(ProbeKind::Liveness))];
        assert_eq!(found(age, [None, None, Some("-")]).await, failing, "after {age} s");
    }
    // It was over when the startup probe passed.
    assert_eq!(found(0, [Some("-+"), Some("+"), None]).await[1..2], ready(40));
}

#[tokio::test(start_paused = true)]
async fn only_readiness_is_probed_of_a_pod_that_is_asked_to_stop_and_until_it_is_gone() {
    let ready = |at, is| (at, ProbeFinding::Ready(is));
    // Not ready within period x threshold of its first failure; ready again if it serves again.
    let found = found_until([None, Some("+--++--+"), Some("+--")], (5, 65), false).await;
    assert_eq!(
        found,
        [ready(0, true), ready(20, false), ready(30, true), ready(40, true), ready(60, false)]
    );
    // It had not started when it was asked to stop: nothing is ready about it, and nothing is asked.
    assert!(found_until([Some("-+"), Some("+"), None], (5, 65), false).await.is_empty());
    // An earlier agent had seen it start.
    let found = found_until([Some("?"), Some("-"), Some("-")], (5, 30), true).await;
    assert_eq!(found, [ready(15, false), ready(25, false)]);
}

#[test]
fn a_restart_of_the_agent_takes_no_container_out_of_service_and_starts_none_too_soon() {
    let probe = k8s::Probe::default();
    let of = |action| Probe {
        kind: ProbeKind::Startup,
        action,
        schedule: Schedule::of(&probe),
        verdict: ProbeVerdict::of(&probe),
    };
    let startup = Probes { startup: Some(of(())), readiness: Some(of(())), liveness: None };
    for (is_awaited, goes_on) in [(false, true), (true, false)] {
        let mut probe_state = ProbeState::adopted(NotedRun::default());
        assert!(probe_state.is_adopted());
        probe_state.begin(&startup, is_awaited, true);
        assert_eq!(
            (probe_state.started, probe_state.ready),
            (goes_on, true),
            "awaited: {is_awaited}"
        );
        assert!(probe_state.probed && probe_state.failing.is_none() && !probe_state.is_adopted());
        assert_eq!(probe_state.note(ProbeFinding::Started { ready: false }), !goes_on);
        assert!(probe_state.started && probe_state.ready);
    }
    let mut fresh = ProbeState::default();
    fresh.begin(&startup, false, true);
    assert_eq!((fresh.started, fresh.ready, fresh.failing), (false, false, None));
    assert!(fresh.note(ProbeFinding::Ready(true)) && !fresh.note(ProbeFinding::Ready(true)));
    assert!(fresh.note(ProbeFinding::Failing(ProbeKind::Startup)) && fresh.failing.is_some());
}

#[test]
fn what_was_not_ready_is_not_ready_after_a_restart_of_the_agent_before_its_probes_say_so() {
    let probe = k8s::Probe::default();
    let of = |kind| Probe {
        kind,
        action: (),
        schedule: Schedule::of(&probe),
        verdict: ProbeVerdict::of(&probe),
    };
    let (startup, readiness) = (of(ProbeKind::Startup), of(ProbeKind::Readiness));
    let found = [ProbeFinding::Started { ready: true }, ProbeFinding::Ready(true)];
    for (probes, found) in [
        (Probes { startup: Some(startup), readiness: None, liveness: None }, found[0]),
        (Probes { startup: None, readiness: Some(readiness), liveness: None }, found[1]),
    ] {
        let mut probe_state =
            ProbeState::adopted(NotedRun { unready: true, ..NotedRun::default() });
        probe_state.begin(&probes, false, true);
        assert!(!probe_state.serves(), "{found:?}");
        assert!(probe_state.note(found) && probe_state.serves(), "{found:?}");
    }
}

#[test]
fn without_probes_the_post_start_hook_alone_decides() {
    let none = Probes::<()> { startup: None, readiness: None, liveness: None };
    for well in [true, false] {
        let mut probe_state = ProbeState::default();
        probe_state.begin(&none, false, well);
        assert_eq!(
            (probe_state.started, probe_state.ready, probe_state.failing.is_none()),
            (well, well, well)
        );
    }
}
