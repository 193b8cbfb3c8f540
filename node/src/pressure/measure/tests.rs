use std::sync::atomic::Ordering;

use futures_util::future::BoxFuture;
use winddown_eviction::{Signal, Threshold, ThresholdValue};
use winddown_shared::{Freed, Garbage, MemoryFigure};

use super::super::runtime::Figures;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn policy(hard: &[(Signal, f32)]) -> Arc<Policy> {
    let threshold =
        |(signal, share): &(Signal, f32)| Threshold::new(*signal, ThresholdValue::Share(*share));
    Arc::new(Policy::new(hard.iter().map(threshold).collect(), false))
}

/// Takes a sample and returns when the file system answered.
async fn answered_at(reader: &mut NodeReader) -> Instant {
    let stats = reader.read().await.unwrap();
    assert!(stats.memory.unwrap().at.unwrap() == Instant::now(), "memory is read at each look");
    stats.nodefs.unwrap().at.unwrap()
}

#[tokio::test(start_paused = true)]
async fn calm_looks_ask_the_file_systems_every_ten_seconds_and_a_full_disk_is_asked_each_time() {
    let places = UsagePaths::of_host("/");
    let calm = policy(&[(Signal::MemoryAvailable, 0.0)]);
    let rules = watch::Sender::new(Arc::clone(&calm));
    let mut reader = NodeReader::new(&places, Arc::default(), rules.subscribe());
    let mut answers = Vec::new();
    for _ in 0..62 {
        answers.push(answered_at(&mut reader).await);
        tokio::time::sleep(SECOND).await;
    }
    let ages = answers.windows(2).filter(|pair| pair[0] != pair[1]);
    let ages: Vec<_> = ages.map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert_eq!(ages, [1, 10, 10, 10, 10, 10, 10], "the first two tell the pace");
    // The threshold is the whole disk, so it is always met. The new policy applies from the next sample on.
    rules.send_replace(policy(&[(Signal::NodeFsAvailable, 1.0)]));
    for _ in 0..20 {
        assert_eq!(answered_at(&mut reader).await, Instant::now());
        tokio::time::sleep(SECOND).await;
    }
    rules.send_replace(calm);
    let last = Instant::now() - SECOND;
    for _ in 0..5 {
        assert_eq!(answered_at(&mut reader).await, last, "calm again");
        tokio::time::sleep(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn other_file_systems_are_asked_at_once_and_one_that_does_not_answer_at_each_look() {
    let known = Arc::<OnceLock<UsagePaths>>::default();
    let rules = watch::Sender::new(policy(&[]));
    let places = UsagePaths::of_host("/");
    let mut reader = NodeReader::new(&places, Arc::clone(&known), rules.subscribe());
    for _ in 0..5 {
        answered_at(&mut reader).await;
        tokio::time::sleep(SECOND).await;
    }
    let gone = Some("/nowhere/at/all".into());
    known.set(UsagePaths { imagefs: gone, ..places }).unwrap();
    for _ in 0..5 {
        assert_eq!(answered_at(&mut reader).await, Instant::now());
        tokio::time::sleep(SECOND).await;
    }
}

/// A runtime whose walks through the pods' files take some time, and whatever it is asked.
struct Walks {
    takes: Duration,
    each_takes: Duration,
    begun: std::sync::atomic::AtomicU32,
}

impl EvictionRuntime for Walks {
    fn figures(
        &self,
        disk_age: Option<Duration>,
    ) -> BoxFuture<'_, Result<Option<Figures>, RuntimeError>> {
        Box::pin(async move {
            if disk_age.is_some() {
                self.begun.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(self.takes).await;
            }
            tokio::time::sleep(self.each_takes).await;
            Ok(Some(vec![(PodUid::new("a"), PodStats::default())]))
        })
    }

    fn where_to_measure(&self) -> BoxFuture<'_, Result<RuntimePlaces, RuntimeError>> {
        Box::pin(async { Ok(RuntimePlaces::default()) })
    }

    fn collect(&self, _: Garbage) -> BoxFuture<'_, Result<Freed, RuntimeError>> {
        Box::pin(async { Ok(Freed::default()) })
    }

    fn take_back<'a>(
        &'a self,
        _: &'a PodUid,
        _: MemoryFigure,
        _: u64,
        _: Duration,
    ) -> BoxFuture<'a, Result<Freed, RuntimeError>> {
        Box::pin(async { Ok(Freed::default()) })
    }
}

fn walking(takes: Duration, each_takes: Duration) -> (Arc<Walks>, Measured) {
    let walks = Arc::new(Walks { takes, each_takes, begun: Default::default() });
    let places = MeasuredPlaces::new(UsagePaths::of_host("/"), walks.clone());
    let measured =
        Measured::new(&places, walks.clone(), watch::Sender::new(policy(&[])).subscribe());
    (walks, measured)
}

/// Whether the one pod was measured, and how long that took.
async fn measured(measured: &Measured, wanted: WantedFigures) -> (bool, Duration) {
    let begun = Instant::now();
    let found = measured.pods(&[winddown_shared::testing::pod("a")], wanted).await;
    (found.at(0).is_some(), begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_choice_by_disk_waits_for_a_walk_and_a_choice_by_memory_does_not() {
    let (walks, signals) = walking(Duration::from_millis(100), Duration::ZERO);
    assert_eq!(measured(&signals, WantedFigures::Kernel).await, (true, Duration::ZERO));
    assert_eq!(walks.begun.load(Ordering::Relaxed), 0);
    assert_eq!(measured(&signals, WantedFigures::Disk).await, (true, Duration::from_millis(100)));
    assert_eq!(
        measured(&signals, WantedFigures::Disk).await,
        (true, Duration::ZERO),
        "it is young"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_too_old_to_choose_by_is_not_told_until_a_walk_has_ended() {
    let (_, signals) = walking(5 * SECOND, Duration::ZERO);
    for _ in 0..2 {
        assert_eq!(
            measured(&signals, WantedFigures::Disk).await,
            (false, WALK_TIMEOUT),
            "nothing is known"
        );
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!(measured(&signals, WantedFigures::Disk).await, (true, Duration::ZERO));
        tokio::time::sleep(30 * SECOND).await;
        assert_eq!(
            measured(&signals, WantedFigures::Disk).await,
            (true, WALK_TIMEOUT),
            "it will do"
        );
        tokio::time::sleep(120 * SECOND).await;
    }
}

/// Of virtual machines, whose memory only the runtime knows. The checks of the pods' own limits wait for 0.5 s.
#[tokio::test(start_paused = true)]
async fn what_is_on_disk_is_known_though_the_runtime_is_slow_to_say_what_is_in_memory() {
    let (_, signals) = walking(Duration::from_millis(100), Duration::from_millis(700));
    assert_eq!(measured(&signals, WantedFigures::Disk).await, (false, WALK_TIMEOUT));
    for _ in 0..3 {
        tokio::time::sleep(9 * SECOND).await;
        let (is_known, took) = measured(&signals, WantedFigures::Disk).await;
        assert!(is_known && took <= WALK_TIMEOUT, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_never_measures_pods_is_told_apart_from_one_that_cannot_now() {
    let runtime = winddown_shared::testing::FakeRuntime::default();
    let shared = Arc::new(runtime.clone());
    let places = MeasuredPlaces::new(UsagePaths::of_host("/"), shared.clone());
    let measured = Measured::new(&places, shared, watch::Sender::new(policy(&[])).subscribe());
    let pods = [winddown_shared::testing::pod("a")];
    for wanted in [WantedFigures::Kernel, WantedFigures::Disk] {
        assert_eq!(measured.pods(&pods, wanted).await, PodFigures::Never);
        runtime.fail(true);
        tokio::time::sleep(WALK_MAX_AGE).await;
        assert_eq!(measured.pods(&pods, wanted).await, PodFigures::UNKNOWN);
        runtime.fail(false);
        tokio::time::sleep(WALK_MAX_AGE).await;
    }
    runtime.uses(pods[0].uid(), PodStats::default());
    assert!(measured.pods(&pods, WantedFigures::Kernel).await.at(0).is_some());
}
