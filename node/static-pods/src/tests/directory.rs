use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use winddown_shared::{WallClock, WallTime};

use super::{manifest, put};
use crate::{DesiredManifests, ManifestDirectory};

/// A directory with a real watch.
struct Watched {
    root: TempDir,
    desired: watch::Receiver<Arc<DesiredManifests>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Watched {
    /// Starts to watch. The periodic scan is far away unless the test is about it.
    fn start(root: TempDir, rescan: Duration) -> Self {
        Self::start_at(root, rescan, WallClock::fixed(WallTime::UNIX_EPOCH))
    }

    fn start_at(root: TempDir, rescan: Duration, wall: WallClock) -> Self {
        let (source, desired) =
            ManifestDirectory::new(root.path().join("pods"), "node1", rescan, wall);
        let stop = CancellationToken::new();
        let task = tokio::spawn(source.run(stop.clone()));
        Self { root, desired, stop, task }
    }

    async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("pods")).unwrap();
        let mut watched = Self::start(root, Duration::from_secs(3600));
        watched.until("the first look", |desired| desired.generation > 0).await;
        watched
    }

    fn pods(&self) -> PathBuf {
        self.root.path().join("pods")
    }

    async fn until(
        &mut self,
        what: &str,
        is_there: impl FnMut(&Arc<DesiredManifests>) -> bool,
    ) -> Arc<DesiredManifests> {
        let waited = tokio::time::timeout(Duration::from_secs(20), self.desired.wait_for(is_there));
        let state = waited.await.unwrap_or_else(|_| panic!("{what} did not happen")).unwrap();
        Arc::clone(&state)
    }

    async fn until_pods(&mut self, names: &[&str]) -> Arc<DesiredManifests> {
        let is_there = |desired: &Arc<DesiredManifests>| {
            desired.pods.iter().map(|pod| &**pod.name()).eq(names.iter().copied())
        };
        self.until(&format!("{names:?}"), is_there).await
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

#[tokio::test]
async fn files_come_change_and_go_without_a_periodic_look() {
    let mut watched = Watched::new().await;
    put(&watched.pods(), "a.yaml", &manifest("web", "ls"));
    let first = watched.until_pods(&["web-node1"]).await;
    std::fs::write(watched.pods().join("b.yaml"), manifest("db", "ls")).unwrap();
    watched.until_pods(&["web-node1", "db-node1"]).await;

    let old = first.pods[0].uid().clone();
    put(&watched.pods(), "a.yaml", &manifest("web", "ps"));
    watched.until("the change", |desired| *desired.pods[0].uid() != old).await;
    std::fs::remove_file(watched.pods().join("a.yaml")).unwrap();
    watched.until_pods(&["db-node1"]).await;
    watched.end().await;
}

#[tokio::test]
async fn a_file_that_is_written_in_pieces_ends_as_the_whole() {
    let mut watched = Watched::new().await;
    let path = watched.pods().join("a.yaml");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(manifest("web", "ls").as_bytes()).unwrap();
    tokio::task::yield_now().await;
    file.write_all(b"    - name: more\n      command: [ps]\n").unwrap();
    drop(file);
    let containers = |desired: &DesiredManifests| {
        desired.pods.first().and_then(|pod| Some(pod.spec.as_ref()?.containers.len()))
    };
    watched.until("both pieces", |desired| containers(desired) == Some(2)).await;
    watched.end().await;
}

#[tokio::test]
async fn the_first_state_has_the_files_that_were_written_just_before() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("pods")).unwrap();
    for name in ["a", "b", "c"] {
        put(&root.path().join("pods"), &format!("{name}.yaml"), &manifest(name, "ls"));
    }
    // The clock stands far behind the files, so that each of them has to settle.
    let mut watched = Watched::start(root, Duration::from_secs(3600));
    let first = watched.until("the first state", |desired| desired.generation > 0).await;
    assert_eq!((first.generation, first.pods.len(), first.complete), (1, 3, true));
    watched.end().await;
}

#[tokio::test]
async fn the_directory_may_come_later_go_and_be_replaced() {
    let mut watched = Watched::start(tempfile::tempdir().unwrap(), Duration::from_secs(3600));
    let desired = watched.until("the first look", |desired| desired.generation > 0).await;
    assert!(!desired.complete && desired.errors[0].message.starts_with("does not exist"));

    std::fs::create_dir(watched.pods()).unwrap();
    watched.until("the directory", |desired| desired.complete).await;
    put(&watched.pods(), "a.yaml", &manifest("one", "ls"));
    watched.until_pods(&["one-node1"]).await;

    let old = watched.root.path().join("old");
    std::fs::rename(watched.pods(), &old).unwrap();
    watched.until("the loss", |desired| !desired.complete).await;
    std::fs::create_dir(watched.pods()).unwrap();
    put(&watched.pods(), "b.yaml", &manifest("two", "ls"));
    watched.until_pods(&["two-node1"]).await;
    // The old directory is no longer ours.
    put(&old, "c.yaml", &manifest("three", "ls"));
    put(&watched.pods(), "d.yaml", &manifest("four", "ls"));
    watched.until_pods(&["two-node1", "four-node1"]).await;
    watched.end().await;
}

#[tokio::test]
async fn the_periodic_look_finds_what_no_event_told() {
    // A link's target is elsewhere: its changes give no event here.
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("pods")).unwrap();
    let target = root.path().join("target.yaml");
    std::fs::write(&target, manifest("web", "ls")).unwrap();
    std::os::unix::fs::symlink(&target, root.path().join("pods/a.yaml")).unwrap();
    let mut watched = Watched::start(root, Duration::from_millis(50));
    let old = watched.until_pods(&["web-node1"]).await.pods[0].uid().clone();
    std::fs::write(&target, manifest("web", "ps")).unwrap();
    watched.until("the change", |desired| *desired.pods[0].uid() != old).await;
    watched.end().await;
}

#[tokio::test]
async fn an_empty_file_makes_way_once_it_has_been_empty_for_a_while_without_a_periodic_look() {
    let root = tempfile::tempdir().unwrap();
    let pods = root.path().join("pods");
    std::fs::create_dir(&pods).unwrap();
    put(&pods, "keepalived.yaml", "");
    let written = std::fs::metadata(pods.join("keepalived.yaml")).unwrap().modified().unwrap();
    let (written, begun) = (WallTime::try_from(written).unwrap(), Instant::now());
    let wall = WallClock::new(move || written + begun.elapsed());
    let mut watched = Watched::start_at(root, Duration::from_secs(3600), wall);
    let first = watched.until("the first look", |desired| desired.generation > 0).await;
    assert!(!first.complete && first.errors[0].may_run, "it may be being written");
    let then = watched.until("the end of the doubt", |desired| desired.complete).await;
    assert_eq!((then.errors.len(), then.errors[0].may_run), (1, false));
    watched.end().await;
}

#[tokio::test]
async fn looks_that_find_nothing_new_publish_nothing() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("pods")).unwrap();
    put(&root.path().join("pods"), "a.yaml", &manifest("web", "ls"));
    put(&root.path().join("pods"), "broken.yaml", "kind: Pod");
    // Long ago: it is not being written, which would be news once that is clear.
    let broken = std::fs::File::options().append(true).open(root.path().join("pods/broken.yaml"));
    broken.unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let mut watched = Watched::start(root, Duration::from_millis(20));
    let there =
        |desired: &Arc<DesiredManifests>| desired.pods.len() == 1 && desired.errors.len() == 1;
    let generation = watched.until("both files", there).await.generation;
    // Events that mean nothing, and looks between them.
    for n in 0..20 {
        std::fs::write(watched.pods().join(format!(".hidden{n}")), "").unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(watched.until("what is there", there).await.generation, generation);
    // One that does. A look may come before the event that tells that the file is whole, and says so.
    put(&watched.pods(), "b.yaml", &manifest("db", "ls"));
    let desired = watched.until_pods(&["web-node1", "db-node1"]).await;
    assert!(desired.generation <= generation + 2, "{}", desired.generation);
    watched.end().await;
}

#[tokio::test]
async fn many_changes_at_once_are_seen_in_a_few_steps() {
    let mut watched = Watched::new().await;
    for n in 0..300 {
        put(&watched.pods(), &format!("p{n:03}.yaml"), &manifest(&format!("p{n:03}"), "ls"));
    }
    let desired = watched.until("all of them", |desired| desired.pods.len() == 300).await;
    assert!(desired.generation < 30, "{}", desired.generation);
    watched.end().await;
}
