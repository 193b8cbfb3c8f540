//! The polling loop that all metadata services share.

use std::time::Duration;

use tokio::time::sleep;
use winddown_shared::{WallClock, WallTime};

use super::http::MetadataRequestError;
use super::seen::{CloudEvent, SeenEvents};
use crate::{NoticePublisher, Uptime};

/// The shortest interval between polls, whatever the service answers.
pub(super) const MIN_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The longest backoff after failures: the shortest notice of a cloud is 30 s, and most of it belongs to the pods.
const MAX_POLL_DELAY: Duration = Duration::from_secs(10);

/// Clocks that differ by less than this are taken to agree.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(2);

pub(super) trait Service: Send {
    /// Fetches everything that the service announces now. Bounded in time.
    fn ask(&mut self) -> impl Future<Output = Result<Announced, MetadataRequestError>> + Send;
}

/// The result of one poll.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Announced {
    /// The announced events, in any order.
    pub(super) events: Vec<CloudEvent>,
    /// The time of the service's own clock, which its dates refer to.
    pub(super) server_time: Option<WallTime>,
}

/// The clocks that the dates in a response are compared with.
pub(super) struct Clocks {
    pub(super) wall: WallClock,
    pub(super) uptime: Uptime,
}

/// Returns the events that were understood, and logs the others. An error if there are only others: they withdraw
/// nothing.
pub(super) fn understood(
    listed: Vec<Result<CloudEvent, String>>,
) -> Result<Vec<CloudEvent>, String> {
    let (mut events, mut odd) = (Vec::new(), None);
    for event in listed {
        match event {
            Ok(event) => events.push(event),
            Err(why) => odd = Some(why),
        }
    }
    match odd {
        Some(why) if events.is_empty() => return Err(why),
        Some(why) => tracing::warn!("ignored an event of the metadata service: {why}"),
        None => {}
    }
    Ok(events)
}

/// Polls forever, every `every`, and publishes the earliest event that lies ahead of this boot.
pub(super) async fn follow(
    mut service: impl Service,
    publisher: &NoticePublisher,
    every: Duration,
    clocks: &Clocks,
    mut seen: SeenEvents,
) {
    let mut failures = 0_u32;
    loop {
        match service.ask().await {
            Ok(told) => {
                if failures > 0 {
                    tracing::info!("the metadata service answers again");
                }
                failures = 0;
                publisher.problem(None);
                let now = clock(clocks.wall.now(), told.server_time);
                let booted = (clocks.uptime)().and_then(|up| now.checked_sub(up).ok());
                match seen.earliest(&told.events, booted) {
                    Some(event) => publisher.publish(&event.announced, now),
                    None => publisher.withdraw(),
                }
                // Published first: the disk may be slow.
                seen.take(&told.events, booted).await;
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                let why = winddown_shared::error_chain(&error);
                if failures == 1 {
                    tracing::warn!("cannot query the metadata service: {why}; retrying");
                }
                publisher.problem(Some(&why));
            }
        }
        sleep(pause(every, failures)).await;
    }
}

/// Returns the pause after this many consecutive failures.
fn pause(every: Duration, failures: u32) -> Duration {
    let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
    match failures {
        0 => every,
        _ => every.saturating_mul(factor).min(MAX_POLL_DELAY).max(every),
    }
}

/// Returns the time that dates are compared with: the machine's own, which has fractions of seconds,
/// unless it is clearly wrong.
fn clock(own: WallTime, server: Option<WallTime>) -> WallTime {
    match server {
        Some(server) if own.duration_since(server).unsigned_abs() > CLOCK_TOLERANCE => server,
        _ => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_never_shrink_below_the_interval() {
        let secs = Duration::from_secs;
        let of = |every, failures| pause(secs(every), failures);
        assert_eq!([0, 1, 2, 3, 4, 400].map(|n| of(5, n)), [5, 10, 10, 10, 10, 10].map(secs));
        assert_eq!([0, 1, 5].map(|n| of(1, n)), [1, 2, 10].map(secs));
        assert_eq!([0, 1, 9].map(|n| of(600, n)), [600, 600, 600].map(secs));
    }

    #[test]
    fn a_clock_that_is_plainly_wrong_is_not_asked() {
        let at = |text: &str| text.parse::<WallTime>().expect("a time");
        let server = at("2026-11-20T12:00:00Z");
        let close = at("2026-11-20T12:00:01.7Z");
        assert_eq!(clock(close, Some(server)), close);
        assert_eq!(clock(at("1970-01-01T00:00:00Z"), Some(server)), server);
        assert_eq!(clock(at("2026-11-20T12:00:10Z"), Some(server)), server);
        assert_eq!(clock(close, None), close);
    }
}
