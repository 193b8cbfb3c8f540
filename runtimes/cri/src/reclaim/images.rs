//! Selects the images that may be removed.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::super::api;

use winddown_shared::Mutex;

/// The pulls that are remembered: more than a node makes within the youngest age at which an image may be removed.
const MAX_PULLS: usize = 1024;

/// Since when images exist on the node. Runtimes do not report that.
#[derive(Debug)]
pub(crate) struct ImageAges {
    /// When this agent started. Images that exist at its first check count from then.
    began: Instant,
    seen: Mutex<SeenImage>,
}

#[derive(Debug, Default)]
struct SeenImage {
    /// By image ID.
    since: HashMap<String, Instant>,
    has_looked: bool,
    /// Names that this agent pulled, with the time, the newest last; kept until the image is seen.
    pulled: Vec<(String, Instant)>,
}

impl ImageAges {
    /// Records that an image was just pulled.
    pub(crate) fn note_pull(&self, name: &str) {
        let mut seen = self.seen.lock();
        seen.pulled.retain(|(known, _)| known != name);
        // Without a shortage of disk, nothing else removes any.
        if seen.pulled.len() == MAX_PULLS {
            seen.pulled.remove(0);
        }
        seen.pulled.push((name.to_owned(), Instant::now()));
    }

    /// The images that none of the `needed` names or IDs refers to, that are not pinned, and that have
    /// existed for `min_age`; the largest first.
    pub(crate) fn unused<'a>(
        &self,
        images: &'a [api::Image],
        needed: &[String],
        min_age: Duration,
    ) -> Vec<&'a api::Image> {
        let now = Instant::now();
        let needed: Vec<String> = needed.iter().map(|name| resolved(name)).collect();
        let exact: HashSet<&str> = needed.iter().map(String::as_str).collect();
        let mut seen = self.seen.lock();
        seen.update(images, self.began, now);
        let is_old = |image: &api::Image| {
            let since = seen.since.get(&image.id);
            since.is_some_and(|&since| now.saturating_duration_since(since) >= min_age)
        };
        let is_needed = |image: &api::Image| {
            exact.contains(&*image.id)
                || names(image).any(|name| exact.contains(name) || is_meant(name, &needed))
        };
        let free = |image: &&api::Image| {
            !image.pinned && !is_pause(image) && is_old(image) && !is_needed(image)
        };
        let mut unused: Vec<&api::Image> = images.iter().filter(free).collect();
        unused.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.id.cmp(&b.id)));
        unused
    }
}

impl Default for ImageAges {
    fn default() -> Self {
        Self { began: Instant::now(), seen: Mutex::default() }
    }
}

impl SeenImage {
    fn update(&mut self, images: &[api::Image], began: Instant, now: Instant) {
        let first = if self.has_looked { now } else { began };
        self.has_looked = true;
        let mut since = HashMap::with_capacity(images.len());
        for image in images {
            let known = self.since.get(&image.id).copied().unwrap_or(first);
            let is_this = |pulled: &&(String, Instant)| {
                names(image).any(|name| agree(&resolved(&pulled.0), name)) || pulled.0 == image.id
            };
            let pulled = self.pulled.iter().find(is_this).map(|(_, at)| *at);
            since.insert(image.id.clone(), pulled.map_or(known, |at| at.max(known)));
        }
        self.since = since;
        self.pulled.clear();
    }
}

fn names(image: &api::Image) -> impl Iterator<Item = &str> {
    image.repo_tags.iter().chain(&image.repo_digests).map(String::as_str)
}

fn is_meant(name: &str, needed: &[String]) -> bool {
    needed.iter().any(|needed| agree(needed, name))
}

/// A name as runtimes resolve it: a digest makes a tag meaningless, and images of Docker Hub without an owner are in
/// `library`.
fn resolved(name: &str) -> String {
    let (untagged, digest) = match name.split_once('@') {
        Some((tagged, digest)) => {
            let last = tagged.rfind('/').map_or(0, |at| at.saturating_add(1));
            let tag = tagged.rfind(':').filter(|&at| at > last);
            (tag.and_then(|at| tagged.get(..at)).unwrap_or(tagged), Some(digest))
        }
        None => (name, None),
    };
    let of_hub =
        ["docker.io/", "index.docker.io/"].iter().find_map(|hub| untagged.strip_prefix(hub));
    let mut full = match of_hub {
        Some(own) if own.contains('/') => format!("docker.io/{own}"),
        Some(own) => format!("docker.io/library/{own}"),
        None => untagged.to_owned(),
    };
    if let Some(digest) = digest {
        full.extend(["@", digest]);
    }
    full
}

/// Whether two names may refer to the same image. Pods may use the short one (`nginx`) and the runtime the full one
/// (`docker.io/library/nginx:latest`), or the other way round, as cri-dockerd does. It errs on the safe side: an image
/// that stays costs space, one that is removed costs a pod.
fn agree(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(|name| name.strip_suffix(":latest").unwrap_or(name));
    let is_short_for = |short: &str, full: &str| {
        let before = full.strip_suffix(short).filter(|_| !short.is_empty());
        before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
    };
    is_short_for(one, other) || is_short_for(other, one)
}

/// Whether this is the sandboxes' image, for runtimes that do not pin it.
fn is_pause(image: &api::Image) -> bool {
    names(image).any(|name| {
        let last = name.rsplit('/').next().unwrap_or(name);
        last.split([':', '@']).next() == Some("pause")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str, tag: &str, size: u64) -> api::Image {
        let repo_tags = if tag.is_empty() { Vec::new() } else { vec![tag.to_owned()] };
        api::Image { id: id.to_owned(), repo_tags, size, ..api::Image::default() }
    }

    fn ids(images: &[&api::Image]) -> Vec<String> {
        images.iter().map(|image| image.id.clone()).collect()
    }

    const OLD: Duration = Duration::from_secs(120);

    #[tokio::test(start_paused = true)]
    async fn images_that_anything_names_in_any_way_stay() {
        let ages = ImageAges::default();
        let images = [
            image("a", "docker.io/library/nginx:latest", 1),
            image("b", "quay.io/app:2", 2),
            image("c", "quay.io/app:3", 3),
            image("d", "", 4),
            image("e", "registry.k8s.io/pause:3.6", 5),
            api::Image { pinned: true, ..image("f", "x/y:1", 6) },
            image("g", "quay.io/myapp:2", 7),
            image("h", "docker.io/library/redis:7", 8),
            api::Image {
                repo_digests: vec!["quay.io/db@sha256:0123".to_owned()],
                ..image("i", "", 9)
            },
            // As cri-dockerd names them.
            image("j", "busybox:1.36", 10),
            image("k", "alpine:latest", 11),
            image("l", "own/alpine:3", 12),
        ];
        let all = [
            "nginx",
            "app:2",
            "d",
            "",
            "docker.io/redis:7",
            "quay.io/db:1.2@sha256:0123",
            "docker.io/library/busybox:1.36",
            "docker.io/alpine",
        ];
        let needed = all.map(str::to_owned);
        assert_eq!(ids(&ages.unused(&images, &needed, Duration::ZERO)), ["l", "g", "c"]);
        let none = ages.unused(&images, &[], Duration::ZERO);
        assert_eq!(ids(&none), ["l", "k", "j", "i", "h", "g", "d", "c", "b", "a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_there_at_the_first_look_is_as_old_as_the_agent() {
        let ages = ImageAges::default();
        let images = [image("a", "x:1", 1)];
        assert!(ages.unused(&images, &[], OLD).is_empty());
        tokio::time::advance(OLD).await;
        assert_eq!(ids(&ages.unused(&images, &[], OLD)), ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_came_later_and_what_was_pulled_is_spared_for_its_time() {
        let ages = ImageAges::default();
        tokio::time::advance(OLD * 2).await;
        ages.note_pull("x:1");
        let first = [image("a", "docker.io/library/x:1", 1), image("b", "y:1", 2)];
        assert_eq!(ids(&ages.unused(&first, &[], OLD)), ["b"], "the other was just pulled");
        let second = [first[0].clone(), image("c", "z:1", 3)];
        tokio::time::advance(OLD).await;
        assert_eq!(ids(&ages.unused(&second, &[], OLD)), ["a"], "the other has just come");
        tokio::time::advance(OLD).await;
        assert_eq!(ids(&ages.unused(&second, &[], OLD)), ["c", "a"]);
    }

    /// The images of a build server, whose disk is large.
    #[tokio::test(start_paused = true)]
    async fn pulls_that_no_check_asks_about_take_no_more_room_than_those_of_a_while() {
        let ages = ImageAges::default();
        for n in 0..3000 {
            ages.note_pull(&format!("build:{n}"));
        }
        assert_eq!(ages.seen.lock().pulled.len(), MAX_PULLS);
        let images = ["build:0", "build:2999"].map(|name| image(name, name, 1));
        tokio::time::advance(OLD).await;
        ages.note_pull("build:2999");
        assert_eq!(ids(&ages.unused(&images, &[], OLD)), ["build:0"], "the newest are known");
    }
}
