//! Gives terminating containers enough CPU time.
//!
//! All pods are in one cgroup, which competes as a whole with every single process next to it.
//! When many containers stop at the same time, the runtime starts dozens of programs to clean up
//! after the first ones, and the last ones get no CPU for half a second: they are dying, but
//! their exit cannot be reported yet. So while many are being stopped, the pods' cgroup weighs as much as
//! that many processes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use winddown_host::{Durability, kernel, regular, replace_private};
use winddown_shared::error_chain;

use super::CriContext;
use super::config::{CgroupDriver, CriConfig};
use super::spec::pods_cgroup;

/// Number of concurrent stops from which on the weight is raised.
const RAISE_FROM_STOPS: u64 = 8;

/// How long the last containers to exit, for which less weight would do, keep that of all: the runtime takes down the others
/// meanwhile.
const LAST_EXITS: Duration = Duration::from_secs(1);

/// Added to a raised weight, so that the next agent tells it from a configured one, which is a round number.
const RAISED_MARK: u64 = 1;

/// Where an agent that raises a weight leaves the one to restore, in the state directory. It is read only while the
/// weight is raised.
const USUAL: &str = "cpu-weight";

/// The scale on which a cgroup version measures weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scale {
    file: &'static str,
    /// The weight of one process.
    one: u64,
    most: u64,
}

const V1: Scale = Scale { file: "cpu.shares", one: 1024, most: 262_144 };
const V2: Scale = Scale { file: "cpu.weight", one: 100, most: 10_000 };

/// Adjusts the weight of the pods' cgroup to the number of stops in progress. Does nothing if there is no such cgroup
/// or it cannot be written.
pub(super) async fn follow(context: Arc<CriContext>) {
    let config = context.config.clone();
    let restored = tokio::task::spawn_blocking(move || restore(&config)).await;
    if let Ok(Err(error)) = restored {
        note(&error);
    }
    let mut stops = WeighedStops { count: context.cleaning.stops(), weighed: 0 };
    // The weight to restore, while it is raised.
    let mut usual: Option<u64> = None;
    while let Some(count) = stops.next().await {
        if count > 0 {
            let raised = write(&context, move |config, driver| raise(config, driver, count, usual));
            usual = raised.await.or(usual);
        } else if let Some(weight) = usual.take() {
            let as_before = move |config: &CriConfig, driver| put(&group(config, driver)?, weight);
            write(&context, as_before).await;
        }
    }
}

/// The stops in progress for which the weight is raised.
struct WeighedStops {
    count: watch::Receiver<usize>,
    /// How many it was last raised for; 0 while it is not raised.
    weighed: u64,
}

impl WeighedStops {
    /// Returns the number of stops for which the weight is to be raised, 0 for none, once that halves or doubles; if stops
    /// are left, not before [`LAST_EXITS`] without a change. `None` when the sender is gone.
    async fn next(&mut self) -> Option<u64> {
        loop {
            let count = u64::try_from(*self.count.borrow_and_update()).unwrap_or(u64::MAX);
            let wanted = if count >= RAISE_FROM_STOPS { count } else { 0 };
            let is_more = wanted > 0 && wanted >= self.weighed * 2;
            let is_less = self.weighed > 0 && wanted <= self.weighed / 2;
            let changed = match is_less && count > 0 {
                true => timeout(LAST_EXITS, self.count.changed()).await.ok(),
                false if is_more || is_less => None,
                false => Some(self.count.changed().await),
            };
            match changed {
                Some(Ok(())) => {}
                Some(Err(_)) => return None,
                // Also if the write then fails: a later change tries again.
                None => {
                    self.weighed = wanted;
                    return Some(wanted);
                }
            }
        }
    }
}

/// Runs `write` on a blocking thread. Returns `None` after logging the error if it fails.
async fn write<T: Send + 'static>(
    context: &CriContext,
    write: impl FnOnce(&CriConfig, Option<CgroupDriver>) -> io::Result<T> + Send + 'static,
) -> Option<T> {
    let driver = context.driver.get(context).await.ok()?;
    let config = context.config.clone();
    let written = tokio::task::spawn_blocking(move || write(&config, driver)).await.ok()?;
    written.inspect_err(note).ok()
}

fn note(error: &io::Error) {
    let error = error_chain(error);
    tracing::debug!(error, "cannot set the CPU weight of the pods' control group");
}

/// The file with the weight of the pods' cgroup.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    path: PathBuf,
    scale: Scale,
}

/// Raises the cgroup's weight to that of `count` processes, but never below the weight to restore. Returns the
/// weight to restore: `usual`, or the current one.
fn raise(
    config: &CriConfig,
    driver: Option<CgroupDriver>,
    count: u64,
    usual: Option<u64>,
) -> io::Result<u64> {
    let group = group(config, driver)?;
    let scale = group.scale;
    let has = group.weight()?;
    // An agent that was killed left it.
    let found = if scale.is_raised(has) { left(config, scale) } else { has };
    let is_first = usual.is_none();
    let usual = usual.unwrap_or(found);
    let weight = count.min(scale.most / scale.one - 1) * scale.one + RAISED_MARK;
    put(&group, weight.max(usual))?;
    // Afterwards: a disk may hang, and the weight of most groups is that of one process.
    if is_first && usual != left(config, scale) {
        let (file, text) = (config.paths.state.join(USUAL), usual.to_string());
        if let Err(error) = replace_private(&file, Durability::Process, text.as_bytes()) {
            note(&error);
        }
    }
    Ok(usual)
}

/// Restores the weight that an agent which was killed has left raised. The mark says enough: the runtime need not be
/// asked who manages control groups.
fn restore(config: &CriConfig) -> io::Result<()> {
    for driver in [CgroupDriver::Systemd, CgroupDriver::Cgroupfs] {
        let Ok(group) = group(config, Some(driver)) else { continue };
        if group.scale.is_raised(group.weight()?) {
            put(&group, left(config, group.scale))?;
        }
    }
    Ok(())
}

/// The weight to restore that an agent which was killed has left.
fn left(config: &CriConfig, scale: Scale) -> u64 {
    let text = regular::read_to_string(&config.paths.state.join(USUAL), 64).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(scale.one)
}

impl Scale {
    fn is_raised(self, weight: u64) -> bool {
        weight >= self.one * RAISE_FROM_STOPS && weight % self.one == RAISED_MARK
    }
}

impl Group {
    fn weight(&self) -> io::Result<u64> {
        kernel::read_to_string(&self.path)?.trim().parse().map_err(io::Error::other)
    }
}

fn put(group: &Group, weight: u64) -> io::Result<()> {
    fs::write(&group.path, weight.to_string())
}

/// The weight file that exists, in the unified hierarchy or in that of the CPU controller.
fn group(config: &CriConfig, driver: Option<CgroupDriver>) -> io::Result<Group> {
    let (Some(root), Some(driver)) = (&config.cgroups.parent, driver) else {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "pods have no control group in common",
        ));
    };
    let pods = pods_cgroup(root, driver);
    let pods = Path::new(pods.trim_start_matches('/'));
    let mount = &config.cgroups.mount;
    let at = |hierarchy: &str, scale: Scale| {
        let path = mount.join(hierarchy).join(pods).join(scale.file);
        Group { path, scale }
    };
    let places = [at("", V2), at("cpu", V1), at("cpu,cpuacct", V1)];
    let found = places.into_iter().find(|group| group.path.exists());
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the pods' control group"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

    use tokio::sync::mpsc;
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_of_many_to_exit_have_the_weight_of_all_unless_they_take_long() {
        let (stops, seen) = watch::channel(0);
        let (set, mut weights) = mpsc::unbounded_channel();
        let follows = tokio::spawn(async move {
            let mut stops = WeighedStops { count: seen, weighed: 0 };
            while let Some(count) = stops.next().await {
                set.send(count).unwrap();
            }
        });
        let ms = Duration::from_millis;
        let mut after = async |count, wait| {
            stops.send_replace(count);
            sleep(wait).await;
            std::iter::from_fn(|| weights.try_recv().ok()).collect::<Vec<_>>()
        };
        for (count, wait, wanted) in [
            (7, ms(10), vec![]),
            (80, ms(10), vec![80]),
            (70, ms(10), vec![]),
            (40, ms(900), vec![]),
            (7, ms(900), vec![]),
            (1, ms(900), vec![]),
            (0, ms(10), vec![0]),
            (80, ms(10), vec![80]),
            (30, ms(1100), vec![30]),
            (3, ms(900), vec![]),
            (2, ms(1100), vec![0]),
            (0, ms(10), vec![]),
        ] {
            assert_eq!(after(count, wait).await, wanted, "{count}");
        }
        drop(stops);
        follows.await.unwrap();
    }

    fn config(mount: &Path) -> CriConfig {
        let mut config = CriConfig::below(mount);
        config.cgroups.mount = mount.to_owned();
        config
    }

    #[test]
    fn the_group_weighs_as_much_as_what_ends_in_it_and_then_as_before() {
        use CgroupDriver::{Cgroupfs, Systemd};
        for (dir, file, driver, before, raised) in [
            ("cpu/winddown", "cpu.shares", Cgroupfs, "1024", "81921"),
            ("cpu,cpuacct/winddown.slice", "cpu.shares", Systemd, "2048", "81921"),
            ("winddown.slice", "cpu.weight", Systemd, "100", "8001"),
            ("winddown.slice", "cpu.weight", Systemd, "800", "8001"),
        ] {
            let mount = tempfile::tempdir().unwrap();
            let config = config(mount.path());
            assert!(raise(&config, Some(driver), 80, None).is_err(), "there is none yet");
            fs::create_dir_all(&config.paths.state).unwrap();
            fs::create_dir_all(mount.path().join(dir)).unwrap();
            let path = mount.path().join(dir).join(file);
            fs::write(&path, format!("{before}\n")).unwrap();
            let usual = raise(&config, Some(driver), 80, None).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), raised);
            assert_eq!(usual.to_string(), before);
            // Again after some have exited, and by an agent that does not know of the first time.
            assert_eq!(raise(&config, Some(driver), 20, Some(usual)).unwrap(), usual);
            assert_eq!(raise(&config, Some(driver), 20, None).unwrap(), usual);
            let group = group(&config, Some(driver)).unwrap();
            put(&group, usual).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), before);
        }
    }

    #[test]
    fn the_next_agent_restores_what_one_that_was_killed_has_raised_and_nothing_else() {
        let driver = Some(CgroupDriver::Systemd);
        for usual in ["300", "100"] {
            let mount = tempfile::tempdir().unwrap();
            let config = config(mount.path());
            restore(&config).expect("without a group there is nothing to restore");
            let path = mount.path().join("winddown.slice/cpu.weight");
            for directory in [path.parent().unwrap(), &config.paths.state] {
                fs::create_dir_all(directory).unwrap();
            }
            let has = || fs::read_to_string(&path).unwrap();
            fs::write(&path, format!("{usual}\n")).unwrap();
            raise(&config, driver, 80, None).unwrap();
            assert_eq!(has(), "8001");
            restore(&config).unwrap();
            assert_eq!(has(), usual);
            // What an operator has set since then.
            fs::write(&path, "900\n").unwrap();
            restore(&config).unwrap();
            assert_eq!(has(), "900\n");
        }
    }

    #[test]
    fn pods_without_a_group_in_common_are_left_alone() {
        let mount = tempfile::tempdir().unwrap();
        let mut config = config(mount.path());
        assert!(group(&config, None).is_err());
        config.cgroups.parent = None;
        assert!(group(&config, Some(CgroupDriver::Systemd)).is_err());
    }
}
