//! A list of objects and then a watch, again and again.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::sleep;
use winddown_shared::fraction;

use crate::refusal::{self, Refusal};

/// The shortest time between two lists. The longest is twice that, so that nodes that started together drift apart.
const RELIST_INTERVAL: Duration = Duration::from_secs(1800);

/// Lists the objects and then watches them. Never ends. Goes on after an error when the next event is requested, so
/// callers wait before that.
///
/// Begins anew with a list when the version has expired, and after a while although nothing has failed: if the
/// server's data was restored from a backup, versions are lower than before, and a watch from a later one is silent
/// without an error (<https://github.com/kubernetes/kubernetes/issues/107457>).
pub fn list_and_watch<K>(
    api: Api<K>,
    config: Config,
) -> BoxStream<'static, watcher::Result<Event<K>>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let begin = move || {
        let list_again = sleep(RELIST_INTERVAL.mul_f64(1.0 + fraction()));
        let events = watcher(api.clone(), config.clone()).take_until(list_again).boxed();
        // Dropped when the version has expired: this watcher would ask for it again.
        stream::unfold(Some(events), |events| async move {
            let mut events = events?;
            let event = events.next().await?;
            let refusal = event.as_ref().err().and_then(refusal::of_watch);
            Some((event, (refusal != Some(Refusal::Expired)).then_some(events)))
        })
    };
    stream::repeat_with(begin).flatten().boxed()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use tokio::time::Instant;
    use winddown_apiserver::{ApiServer, Fault};

    use super::*;

    /// The events of an API server that has no nodes and whose watches have this fault.
    fn events(fault: Fault) -> BoxStream<'static, watcher::Result<Event<Node>>> {
        let server = ApiServer::in_memory().unwrap();
        server.fault(fault);
        let client = kube::Client::new(server.service(), "default");
        list_and_watch(Api::all(client), Config::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_watch_ends_after_a_while_so_that_it_begins_anew_with_a_list() {
        let mut events = events(Fault::on("watch", "nodes").hang());
        let mut listed = Vec::new();
        for _ in 0..3 {
            assert!(matches!(events.next().await, Some(Ok(Event::Init))));
            assert!(matches!(events.next().await, Some(Ok(Event::InitDone))));
            listed.push(Instant::now());
        }
        let hour = Duration::from_secs(3600);
        for pair in listed.windows(2) {
            let silent = pair[1] - pair[0];
            assert!((hour / 2..=hour).contains(&silent), "{silent:?}");
        }
    }

    #[tokio::test]
    async fn an_expired_version_is_not_asked_for_again() {
        let mut events = events(Fault::on("watch", "nodes").status(410));
        for _ in 0..3 {
            assert!(matches!(events.next().await, Some(Ok(Event::Init))));
            assert!(matches!(events.next().await, Some(Ok(Event::InitDone))));
            assert!(matches!(events.next().await, Some(Err(_))));
        }
    }
}
