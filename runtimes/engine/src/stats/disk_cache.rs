//! The disk usage of pods, cached between measurements.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use winddown_shared::{DiskUse, Mutex, PodStats, PodUid, PodUidMap, VolumeStats};

use super::disk::{WalkBudget, walk};

/// How long one measurement of all pods may take, and how many entries of one pod it examines.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_ENTRIES_PER_POD: u64 = 500_000;

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
    /// Whether time ran out before everything was measured.
    is_partial: bool,
}

/// The latest measurement of a pod.
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
    /// in `pods`. Resolves when that is done, which takes at most about 30 s; pods that were not reached are measured
    /// next time. Dropping the future does not stop the work; the next call waits for it.
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
            let until = Instant::now() + MEASURE_TIMEOUT;
            for (_, pod) in due {
                let began = Instant::now();
                if began >= until {
                    return;
                }
                let entries = MAX_ENTRIES_PER_POD;
                let disk = measure(&pod, WalkBudget { entries, until, is_partial: false });
                note(&mut known.lock(), pod.uid, began, disk);
            }
        };
        // The only error is a panic, after which the pod is measured next time.
        let _ = tokio::task::spawn_blocking(work).await;
    }
}

/// Keeps a measurement. A partial one, which says less than there is, does not replace a complete one that still counts.
fn note(known: &mut Known, uid: PodUid, began: Instant, disk: PodDisk) {
    match known.get_mut(&uid) {
        Some(before)
            if disk.is_partial && !before.disk.is_partial && began - before.at < MAX_AGE =>
        {
            before.tried = began;
        }
        _ => {
            known.insert(uid, Measurement { at: began, tried: began, disk: Arc::new(disk) });
        }
    }
}

fn measure(pod: &PodDirs, mut budget: WalkBudget) -> PodDisk {
    let mut disk = PodDisk::default();
    for (name, path) in &pod.logs {
        let used = walk(path, &mut budget).unwrap_or_default();
        disk.on_disk = disk.on_disk.and(used);
        disk.logs.push((Arc::clone(name), used));
    }
    for (name, path) in &pod.volumes {
        let Some(used) = walk(path, &mut budget) else { continue };
        if !pod.in_memory.contains(name) {
            disk.on_disk = disk.on_disk.and(used);
        }
        disk.volumes.push(VolumeStats { name: Arc::clone(name), used });
    }
    for path in &pod.other {
        disk.on_disk = disk.on_disk.and(walk(path, &mut budget).unwrap_or_default());
    }
    disk.is_partial = budget.is_partial;
    disk
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

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
        let walked = |until| measure(&pod, WalkBudget { entries: 1000, until, is_partial: false });
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
