//! The disk usage of pods, cached between measurements.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use winddown_host::is_on_tmpfs;
use winddown_shared::{DiskUse, Mutex, PodStats, PodUid, PodUidMap, VolumeStats};

use super::disk::{WalkBudget, walk};

/// How long one measurement of all pods may take. Two in succession take less than a result may be used.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(20);

/// The age from which a measurement is not used any more.
const MAX_AGE: Duration = Duration::from_secs(60);

/// The directories of a pod.
#[derive(Clone, Debug)]
pub struct PodDirs {
    /// The UID of the pod.
    pub uid: PodUid,
    /// The log directory of each container.
    pub logs: Vec<(Arc<str>, PathBuf)>,
    /// Volumes that are directories created for the pod.
    pub volumes: Vec<(Arc<str>, PathBuf)>,
    /// The names of those volumes that are in memory.
    pub in_memory: Vec<Arc<str>>,
    /// Volumes with content from an API server. Those that are in memory, as Secrets are, are not counted.
    pub made: Vec<(Arc<str>, PathBuf)>,
    /// Other directories of the pod.
    pub other: Vec<PathBuf>,
}

/// The disk usage of a pod.
#[derive(Clone, Debug, Default)]
struct PodDisk {
    logs: Vec<(Arc<str>, DiskUse)>,
    volumes: Vec<VolumeStats>,
    /// The total without volumes in memory.
    on_disk: DiskUse,
    /// Whether something was left out.
    is_partial: bool,
}

#[derive(Debug)]
struct Measurement {
    at: Instant,
    /// When the pod last had its turn.
    tried: Instant,
    disk: Arc<PodDisk>,
}

type Known = PodUidMap<Measurement>;

/// The latest measurement of each pod.
#[derive(Debug, Default)]
pub struct DiskCache {
    known: Arc<Mutex<Known>>,
    /// Held while measuring: one walk at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl DiskCache {
    /// The latest measurement of a pod, unless it is too old.
    fn get(&self, uid: &PodUid) -> Option<Arc<PodDisk>> {
        let known = self.known.lock();
        let one = known.get(uid).filter(|one| one.at.elapsed() < MAX_AGE)?;
        Some(Arc::clone(&one.disk))
    }

    /// Adds the cached disk usage to a pod's stats if it was measured within the last minute. The containers' `rootfs` must
    /// be set already.
    pub fn enter(&self, uid: &PodUid, stats: &mut PodStats) {
        let Some(disk) = self.get(uid) else { return };
        let mut all = disk.on_disk;
        for container in &mut stats.containers {
            let logs = disk.logs.iter().find(|(name, _)| *name == container.name);
            container.logs = logs.map(|(_, used)| *used);
            all = all.and(container.rootfs.unwrap_or_default());
        }
        stats.volumes.clone_from(&disk.volumes);
        stats.ephemeral = Some(all);
    }

    /// Measures the pods whose cached measurement is missing or at least `age` old, and forgets all pods that are not
    /// in `pods`. Resolves when that is done, which takes at most about 20 s. Each pod has its share of them: what a pod
    /// stores hides none of what another does. Dropping the future does not stop the work; the next call waits for it.
    pub async fn refresh(&self, pods: Vec<PodDirs>, age: Duration) {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let now = Instant::now();
        let mut due = {
            let mut known = self.known.lock();
            let mut kept = PodUidMap::default();
            for pod in &pods {
                kept.extend(known.remove_entry(&pod.uid));
            }
            *known = kept;
            let is_recent =
                |one: &Measurement| now.saturating_duration_since(one.at) < age.min(MAX_AGE);
            let tried = |pod: PodDirs| match known.get(&pod.uid) {
                Some(one) if is_recent(one) => None,
                before => Some((before.map(|one| one.tried), pod)),
            };
            pods.into_iter().filter_map(tried).collect::<Vec<_>>()
        };
        // Every pod gets its turn when time is short.
        due.sort_by_key(|(tried, _)| *tried);
        let known = Arc::clone(&self.known);
        let work = move || {
            let _turn = turn;
            let pods = due.into_iter().map(|(_, pod)| pod);
            let until = Instant::now() + MEASURE_TIMEOUT;
            in_turn(pods.collect(), until, measure, |uid, began, disk| {
                note(&mut known.lock(), uid, began, disk);
            });
        };
        // The only error is a panic, after which the pod is measured next time.
        let _ = tokio::task::spawn_blocking(work).await;
    }
}

/// Measures the pods in turn, and then those again that need more than their share of the time, in what the others left.
fn in_turn(
    pods: Vec<PodDirs>,
    until: Instant,
    measure: impl Fn(&PodDirs, Instant) -> PodDisk,
    mut note: impl FnMut(PodUid, Instant, PodDisk),
) {
    let mut cut_short = Vec::new();
    let count = pods.len();
    for (place, pod) in pods.into_iter().enumerate() {
        let began = Instant::now();
        if began >= until {
            break;
        }
        let disk = measure(&pod, turn(until, count - place));
        match disk.is_cut_short() {
            true => cut_short.push((pod, began, disk)),
            false => note(pod.uid, began, disk),
        }
    }
    let count = cut_short.len();
    for (place, (pod, began, disk)) in cut_short.into_iter().enumerate() {
        let now = Instant::now();
        match now < until {
            true => note(pod.uid.clone(), now, measure(&pod, turn(until, count - place))),
            false => note(pod.uid, began, disk),
        }
    }
}

/// The end of a turn, when `left` turns share the time.
fn turn(until: Instant, left: usize) -> Instant {
    let now = Instant::now();
    let left = u32::try_from(left).unwrap_or(u32::MAX);
    now + until.saturating_duration_since(now) / left.max(1)
}

/// Keeps a measurement. A partial one, which says less than there is, does not replace a complete one that still counts.
fn note(known: &mut Known, uid: PodUid, began: Instant, disk: PodDisk) {
    match known.get_mut(&uid) {
        Some(before)
            if disk.is_partial && !before.disk.is_partial && began - before.at < MAX_AGE =>
        {
            before.tried = began;
        }
        before => {
            if disk.is_cut_short() && !before.is_some_and(|before| before.disk.is_cut_short()) {
                tracing::warn!(
                    pod = %uid,
                    "this pod has more files than could be counted in 20s: under disk pressure it counts as above its \
                     request, and its disk limits hold only as far as was counted"
                );
            }
            known.insert(uid, Measurement { at: began, tried: began, disk: Arc::new(disk) });
        }
    }
}

/// Measures a pod. Each directory has its share of the time: what is in one hides nothing of the next.
fn measure(pod: &PodDirs, until: Instant) -> PodDisk {
    let mut disk = PodDisk::default();
    let mut budget = WalkBudget { until, is_partial: false };
    let mut left = pod.logs.len() + pod.volumes.len() + pod.made.len() + pod.other.len();
    let mut walk = |path: &Path| {
        budget.until = turn(until, left);
        left -= 1;
        walk(path, &mut budget)
    };
    for (name, path) in &pod.logs {
        let used = walk(path).unwrap_or_default();
        disk.on_disk = disk.on_disk.and(used);
        disk.logs.push((Arc::clone(name), used));
    }
    for (name, path) in &pod.volumes {
        let Some(used) = walk(path) else { continue };
        if !pod.in_memory.contains(name) {
            disk.on_disk = disk.on_disk.and(used);
        }
        disk.volumes.push(VolumeStats { name: Arc::clone(name), used });
    }
    for (name, path) in pod.made.iter().filter(|(_, path)| !is_on_tmpfs(path).unwrap_or(false)) {
        let Some(used) = walk(path) else { continue };
        disk.on_disk = disk.on_disk.and(used);
        disk.volumes.push(VolumeStats { name: Arc::clone(name), used });
    }
    for path in &pod.other {
        disk.on_disk = disk.on_disk.and(walk(path).unwrap_or_default());
    }
    disk.is_partial = budget.is_partial;
    disk
}

impl PodDisk {
    /// Whether there is more than could be counted in the time.
    fn is_cut_short(&self) -> bool {
        self.on_disk.is_partial || self.volumes.iter().any(|volume| volume.used.is_partial)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn places(root: &Path, uid: &str) -> PodDirs {
        let at = |name: &str| root.join(uid).join(name);
        for name in ["logs", "volume", "memory", "other"] {
            fs::create_dir_all(at(name)).unwrap();
            fs::write(at(name).join("file"), vec![1; 50_000]).unwrap();
        }
        PodDirs {
            uid: PodUid::new(uid),
            logs: vec![("main".into(), at("logs")), ("gone".into(), at("gone"))],
            volumes: vec![("data".into(), at("volume")), ("quick".into(), at("memory"))],
            in_memory: vec!["quick".into()],
            made: Vec::new(),
            other: vec![at("other")],
        }
    }

    #[tokio::test]
    async fn what_is_in_memory_is_told_and_is_not_on_disk() {
        let root = tempfile::tempdir().unwrap();
        let cache = DiskCache::default();
        let pod = places(root.path(), "a");
        assert!(cache.get(&pod.uid).is_none());
        cache.refresh(vec![pod.clone()], Duration::ZERO).await;
        let disk = cache.get(&pod.uid).unwrap();
        assert_eq!(disk.logs[0].1.inodes, 2);
        assert_eq!(disk.logs[1].1, DiskUse::default(), "no log was written yet");
        assert_eq!(disk.volumes.iter().map(|v| &*v.name).collect::<Vec<_>>(), ["data", "quick"]);
        assert_eq!(disk.on_disk.inodes, 6);
        assert!(disk.on_disk.bytes > 3 * 49_000);
    }

    #[tokio::test]
    async fn a_volume_from_the_api_counts_where_it_is_on_a_disk() {
        // `/tmp` may be in memory.
        let program = std::env::current_exe().unwrap();
        let root = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let cache = DiskCache::default();
        let mut pod = places(root.path(), "a");
        cache.refresh(vec![pod.clone()], Duration::ZERO).await;
        let before = cache.get(&pod.uid).unwrap().on_disk;
        let config = root.path().join("config");
        fs::create_dir(&config).unwrap();
        fs::write(config.join("key"), vec![1; 50_000]).unwrap();
        pod.made = vec![("config".into(), config), ("token".into(), "/dev/shm".into())];
        cache.refresh(vec![pod.clone()], Duration::ZERO).await;
        let disk = cache.get(&pod.uid).unwrap();
        let names: Vec<_> = disk.volumes.iter().map(|v| &*v.name).collect();
        assert_eq!(names, ["data", "quick", "config"]);
        assert!(disk.on_disk.bytes >= before.bytes + 49_000, "{:?}", disk.on_disk);
    }

    #[tokio::test]
    async fn only_what_is_older_is_measured_again_and_pods_that_left_are_forgotten() {
        let root = tempfile::tempdir().unwrap();
        let cache = DiskCache::default();
        let (a, b) = (places(root.path(), "a"), places(root.path(), "b"));
        cache.refresh(vec![a.clone(), b.clone()], Duration::ZERO).await;
        let first = cache.get(&a.uid).unwrap();
        cache.refresh(vec![a.clone()], Duration::from_secs(3600)).await;
        assert!(Arc::ptr_eq(&first, &cache.get(&a.uid).unwrap()));
        assert!(cache.get(&b.uid).is_none());
        cache.refresh(vec![a.clone()], Duration::ZERO).await;
        assert!(!Arc::ptr_eq(&first, &cache.get(&a.uid).unwrap()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_measured_more_than_a_minute_ago_is_unknown() {
        let root = tempfile::tempdir().unwrap();
        let cache = DiskCache::default();
        let pod = places(root.path(), "a");
        cache.refresh(vec![pod.clone()], Duration::ZERO).await;
        let ephemeral = || {
            let mut stats = PodStats::default();
            cache.enter(&pod.uid, &mut stats);
            stats.ephemeral
        };
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(ephemeral().is_some());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(ephemeral(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_walk_that_ran_out_of_time_replaces_no_complete_one_that_still_counts() {
        let root = tempfile::tempdir().unwrap();
        let pod = places(root.path(), "a");
        for n in 0..300 {
            fs::write(pod.other[0].join(n.to_string()), "x").unwrap();
        }
        let began = Instant::now();
        let walked = |until| measure(&pod, until);
        let (all, part) = (|| walked(began + MEASURE_TIMEOUT), || walked(began));
        assert!(part().on_disk.inodes < all().on_disk.inodes);
        let mut known = Known::default();
        let mut inodes_after = |seconds, disk| {
            note(&mut known, pod.uid.clone(), began + Duration::from_secs(seconds), disk);
            known[&pod.uid].disk.on_disk.inodes
        };
        let (all_inodes, part_inodes) = (all().on_disk.inodes, part().on_disk.inodes);
        assert_eq!(inodes_after(0, part()), part_inodes, "more than nothing");
        assert_eq!(inodes_after(10, all()), all_inodes);
        assert_eq!(inodes_after(60, part()), all_inodes);
        assert_eq!(inodes_after(71, part()), part_inodes, "the other is too old");
        assert_eq!(inodes_after(80, all()), all_inodes);
    }

    #[tokio::test]
    async fn a_volume_whose_files_take_all_their_time_hides_nothing_of_the_next() {
        let root = tempfile::tempdir().unwrap();
        let mut pod = places(root.path(), "a");
        pod.in_memory.clear();
        (0..300).for_each(|n| fs::write(pod.volumes[0].1.join(n.to_string()), "x").unwrap());
        // The time is over when a walk looks at the clock.
        let disk = measure(&pod, Instant::now());
        let used: Vec<_> = disk.volumes.iter().map(|volume| volume.used).collect();
        assert!(used[0].is_partial && used[0].inodes < 300, "{used:?}");
        assert!(!used[1].is_partial && used[1].bytes > 49_000, "{used:?}");
        assert!(disk.on_disk.is_partial && disk.is_partial);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_needs_more_than_its_share_gets_what_the_others_left() {
        let root = tempfile::tempdir().unwrap();
        let pods = ["large", "a", "endless", "b"].map(|uid| places(root.path(), uid));
        // As if their walks took 8 s, no time, and for ever.
        let measure = |pod: &PodDirs, until: Instant| {
            let needed = match pod.uid.as_str() {
                "large" => 8,
                "endless" => u64::MAX,
                _ => 0,
            };
            let is_partial = (until - Instant::now()).as_secs() < needed;
            PodDisk { on_disk: DiskUse { is_partial, ..DiskUse::default() }, ..PodDisk::default() }
        };
        let mut noted = Vec::new();
        let until = Instant::now() + Duration::from_secs(20);
        in_turn(pods.to_vec(), until, measure, |uid, _, disk| {
            noted.push((uid.as_str().to_owned(), disk.is_cut_short()));
        });
        let noted: Vec<_> = noted.iter().map(|(uid, is_cut)| (&**uid, *is_cut)).collect();
        assert_eq!(noted, [("a", false), ("b", false), ("large", false), ("endless", true)]);
    }

    #[tokio::test(start_paused = true)]
    async fn turns_share_the_time_that_is_left() {
        let until = Instant::now() + Duration::from_secs(20);
        let share = |left| (turn(until, left) - Instant::now()).as_secs();
        assert_eq!((share(4), share(1), share(0)), (5, 20, 20));
        tokio::time::advance(Duration::from_secs(12)).await;
        assert_eq!(share(2), 4);
        tokio::time::advance(Duration::from_secs(12)).await;
        assert_eq!(share(2), 0);
    }

    #[tokio::test]
    async fn two_who_ask_at_once_do_not_walk_at_once() {
        let root = tempfile::tempdir().unwrap();
        let cache = DiskCache::default();
        let pod = places(root.path(), "a");
        let turn = Arc::clone(&cache.turn).lock_owned().await;
        let refresh = cache.refresh(vec![pod.clone()], Duration::ZERO);
        tokio::pin!(refresh);
        let early = tokio::time::timeout(Duration::from_millis(20), refresh.as_mut()).await;
        assert!(early.is_err() && cache.get(&pod.uid).is_none());
        drop(turn);
        refresh.await;
        assert!(cache.get(&pod.uid).is_some());
    }
}
