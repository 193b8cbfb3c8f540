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

use crate::outage::Outage;
use crate::pages::{PAGE, smaller};
use crate::refusal::{self, Refusal};
use crate::watch_backoff::WatchBackoff;

/// The shortest time between two lists. The longest is twice that, so that nodes that started together drift apart.
const RELIST_INTERVAL: Duration = Duration::from_secs(1800);

/// Lists the objects and then watches them. Never ends. Goes on after an error when the next event is requested, so
/// callers wait before that.
///
/// Begins anew with a list when the version has expired, and after a while although nothing has failed: if the
/// server's data was restored from a backup, versions are lower than before, and a watch from a later one is silent
/// without an error (<https://github.com/kubernetes/kubernetes/issues/107457>). And with smaller pages, where the answer
/// with one was too long.
pub fn list_and_watch<K>(
    api: Api<K>,
    config: Config,
) -> BoxStream<'static, watcher::Result<Event<K>>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let begin = move |page| {
        let list_again = sleep(RELIST_INTERVAL.mul_f64(1.0 + fraction()));
        watcher(api.clone(), config.clone().page_size(page)).take_until(list_again).boxed()
    };
    let nothing = stream::empty().boxed();
    stream::unfold((nothing, PAGE, begin), |(mut events, mut page, begin)| async move {
        loop {
            let event: Option<watcher::Result<Event<K>>> = events.next().await;
            let error = event.as_ref().and_then(|event| event.as_ref().err());
            let fewer = match error {
                Some(watcher::Error::InitialListFailed(error)) => smaller(page, error),
                _ => None,
            };
            let is_expired = error.and_then(refusal::of_watch) == Some(Refusal::Expired);
            // This watcher has ended, or would ask for the same page or version again.
            if event.is_none() || fewer.is_some() || is_expired {
                page = fewer.unwrap_or(page);
                events = begin(page);
            }
            if let Some(event) = event.filter(|_| fewer.is_none()) {
                return Some((event, (events, page, begin)));
            }
        }
    })
    .boxed()
}

/// The events of [`list_and_watch`] without its errors. Each of these counts for `outage`, is told to `failed`, and is
/// waited after: for longer and longer, and at least as long as the API server asks.
pub fn events_of<'a, K: Send + 'static>(
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    outage: Outage,
    failed: impl Fn(&watcher::Error) + Send + 'a,
) -> BoxStream<'a, Event<K>> {
    let begin = (events, outage, failed, WatchBackoff::EAGER);
    stream::unfold(begin, |(mut events, outage, failed, mut backoff)| async move {
        loop {
            let error = match events.next().await? {
                Ok(event) => {
                    if backoff.took(&event) {
                        outage.worked();
                    }
                    return Some((event, (events, outage, failed, backoff)));
                }
                Err(error) => error,
            };
            outage.failed(&error);
            failed(&error);
            sleep(backoff.after_failure(&error)).await;
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Node};
    use kube::api::ListParams;
    use serde_json::json;
    use tokio::time::Instant;
    use winddown_apiserver::{ApiServer, Fault};
    use winddown_shared::{WallClock, WallTime};

    use super::*;
    use crate::{ClusterConfig, Connection, Credentials, list_in_pages};

    /// The events of an API server that has no nodes and has this fault.
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

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_too_busy_is_asked_again_when_it_says() {
        let events = events(Fault::on("list", "nodes").times(2).status(429).retry_after(30));
        let mut events = events_of(events, Outage::new("watching"), |_| {});
        let asked = Instant::now();
        while !matches!(events.next().await, Some(Event::InitDone)) {}
        assert!(asked.elapsed() >= Duration::from_secs(60), "{:?}", asked.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_fails_half_way_is_retried_less_and_less_often() {
        let busy = || {
            let status = kube::core::Status { code: 500, ..Default::default() };
            watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)))
        };
        let rounds = stream::iter(0..60).flat_map(move |_| {
            stream::iter([Ok(Event::Init), Ok(Event::InitApply(Node::default())), Err(busy())])
        });
        let began = Instant::now();
        let all: Vec<_> =
            events_of(rounds.boxed(), Outage::new("watching"), |_| {}).collect().await;
        let per_round = began.elapsed() / 60;
        assert_eq!(all.len(), 120);
        assert!(per_round >= Duration::from_secs(5), "{per_round:?} between two lists");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_expires_at_once_begins_less_and_less_often() {
        let events = events(Fault::on("watch", "nodes").status(410));
        let mut events = events_of(events, Outage::new("watching"), |_| {});
        let (began, mut lists) = (Instant::now(), 0);
        while lists < 60 {
            lists += u32::from(matches!(events.next().await, Some(Event::Init)));
        }
        let per_list = began.elapsed() / lists;
        assert!(per_list >= Duration::from_secs(5), "{per_list:?} between two lists");
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

    /// Whoever may create objects can make each as long as etcd takes it, of bytes that JSON writes as six.
    #[tokio::test]
    async fn objects_that_are_longer_together_than_an_answer_may_be_are_all_listed() {
        let (server, dir) = (ApiServer::start().await.unwrap(), tempfile::tempdir().unwrap());
        let long = "\u{1}".repeat(1_400_000);
        for number in 0..9 {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("m{number}")}, "data": {"k": long}});
            server.apply(map).unwrap();
        }
        let token = server.new_token("admin", &["system:masters"], None);
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, server.kubeconfig_with_token(&token)).unwrap();
        let config = ClusterConfig::new(Credentials::Kubeconfig { path, context: None });
        let wall = WallClock::fixed(WallTime::UNIX_EPOCH);
        let client = Connection::open(config, wall).await.unwrap().client();
        let maps = Api::<ConfigMap>::all(client);
        let mut events = list_and_watch(maps.clone(), Config::default());
        let mut listed = 0;
        loop {
            match events.next().await.unwrap().unwrap() {
                Event::Init => listed = 0,
                Event::InitApply(_) => listed += 1,
                other => break assert!(matches!(other, Event::InitDone), "{other:?}"),
            }
        }
        assert_eq!(listed, 9);
        assert_eq!(list_in_pages(&maps, ListParams::default()).await.unwrap().len(), 9);
    }
}
