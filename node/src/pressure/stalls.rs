//! Wakes eviction when tasks wait for memory.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::sync::Notify;
use winddown_host::{Armed, PsiPlace, PsiTrigger, PsiWatch, Unarmed};
use winddown_shared::{doubled, error_chain};

#[cfg(test)]
mod tests;

/// The first and the longest pause if a cgroup reports no pressure. In the meantime the whole machine is watched.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);
const MAX_LISTEN_PAUSE: Duration = Duration::from_secs(30);

/// Where the kernel reports memory pressure (PSI).
#[derive(Clone, Debug)]
pub(super) struct StallPlaces {
    pub(super) proc: PathBuf,
    pub(super) cgroup: PathBuf,
    /// The cgroup that counts as the node.
    pub(super) node: String,
}

/// A result of watching memory pressure.
#[derive(Debug)]
enum StallEvent {
    /// The kernel reports pressure in this place from now on.
    Armed(PsiPlace, Armed),
    /// The kernel does not report pressure in this place.
    Unarmed(PsiPlace, Unarmed),
    /// Tasks have stalled on memory.
    Pressed,
}

struct Listening {
    place: PsiPlace,
    watch: PsiWatch,
}

/// Wakes eviction at memory pressure, for as long as the kernel reports it. Without that, eviction samples by the
/// clock alone.
pub(super) async fn wake(places: StallPlaces, wake: &Notify) {
    let mut unarmed = Vec::new();
    let tell = |told| match told {
        StallEvent::Pressed => {
            tracing::debug!("tasks wait for memory: eviction checks at once");
            wake.notify_one();
        }
        StallEvent::Armed(place, Armed { trigger, as_asked }) => {
            unarmed.clear();
            tracing::info!(%place, %trigger, as_asked, "memory pressure wakes eviction at once");
        }
        // A cgroup that does not exist is retried, but logged only once.
        StallEvent::Unarmed(place, error) if !unarmed.contains(&place) => {
            let why = error_chain(&error);
            tracing::info!(%place, why, "cannot watch memory pressure: eviction relies on sampling");
            unarmed.push(place);
        }
        StallEvent::Unarmed(..) => {}
    };
    follow(places, tell).await;
}

/// Watches the node's cgroup, or the whole machine while the cgroup reports nothing, and retries the cgroup. Returns
/// when the kernel reports neither and never will.
async fn follow(places: StallPlaces, mut tell: impl FnMut(StallEvent)) {
    let wanted = match &*places.node {
        "/" => PsiPlace::Node,
        cgroup => PsiPlace::Cgroup(cgroup.to_owned()),
    };
    let mut failures = 0;
    let mut instead: Option<Listening> = None;
    loop {
        let may_come = match listen(&places, &wanted, &mut tell).await {
            Ok(heard) => {
                instead = None;
                failures = 0;
                while heard.next(&mut tell).await {}
                true
            }
            // The cgroup may be created, or created again.
            Err(comes) => comes && wanted != PsiPlace::Node,
        };
        if instead.is_none() && wanted != PsiPlace::Node {
            instead = listen(&places, &PsiPlace::Node, &mut tell).await.ok();
        }
        let again = tokio::time::sleep(doubled(LISTEN_PAUSE, MAX_LISTEN_PAUSE, failures));
        failures += 1;
        tokio::pin!(again);
        loop {
            let heard = instead.as_ref().map(|machine| machine.next(&mut tell));
            tokio::select! {
                () = &mut again, if may_come => break,
                Some(tells) = OptionFuture::from(heard) => {
                    if !tells {
                        instead = None;
                    }
                }
                else => return,
            }
        }
    }
}

/// Starts watching a place. The error is whether that may succeed later.
async fn listen(
    places: &StallPlaces,
    place: &PsiPlace,
    tell: &mut impl FnMut(StallEvent),
) -> Result<Listening, bool> {
    let (at, of) = (places.clone(), place.clone());
    let start = move || PsiWatch::start(&at.proc, &at.cgroup, &of, PsiTrigger::default());
    let Ok(started) = tokio::task::spawn_blocking(start).await else { return Err(true) };
    match started {
        Ok((watch, armed)) => {
            tell(StallEvent::Armed(place.clone(), armed));
            Ok(Listening { place: place.clone(), watch })
        }
        Err(error) => {
            let may_come = matches!(error, Unarmed::Missing { .. } | Unarmed::NoWaiting { .. });
            tell(StallEvent::Unarmed(place.clone(), error));
            Err(may_come)
        }
    }
}

// === impl Listening ===

impl Listening {
    /// Forwards the next alarm. Returns false if there will be no more. Cancel-safe.
    async fn next(&self, tell: &mut impl FnMut(StallEvent)) -> bool {
        let pressed = self.watch.stalled().await;
        match pressed {
            true => tell(StallEvent::Pressed),
            false => {
                tracing::debug!(place = %self.place, "memory pressure is no longer reported here");
            }
        }
        pressed
    }
}
