//! A provider that is asked, on the paused clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use winddown_shared::{Pod, PodUid};

use super::{PollTimes, Polled};
use crate::provider::{Changes, Notify, ProvidedPod, Provider, ProviderError};

const S: Duration = Duration::from_secs(1);

/// A provider that knows its pods and says nothing by itself.
#[derive(Default)]
struct Mute {
    pods: Mutex<BTreeMap<String, ProvidedPod>>,
    lists: Mutex<Vec<Instant>>,
    fails: Mutex<bool>,
}

impl Provider for Mute {
    async fn create_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        let status = Arc::default();
        let provided = ProvidedPod { pod: pod.clone(), status, ended: false };
        self.pods.lock().unwrap().insert(pod.uid().as_str().to_owned(), provided);
        Ok(())
    }

    async fn update_pod(&self, _: &Pod) -> Result<(), ProviderError> {
        Ok(())
    }

    async fn delete_pod(&self, pod: &Pod, _: Duration) -> Result<(), ProviderError> {
        self.set(pod.uid().as_str(), "Succeeded", true);
        Ok(())
    }

    async fn get_pod(&self, uid: &PodUid) -> Result<Option<ProvidedPod>, ProviderError> {
        Ok(self.pods.lock().unwrap().get(uid.as_str()).cloned())
    }

    async fn list_pods(&self) -> Result<Vec<ProvidedPod>, ProviderError> {
        self.lists.lock().unwrap().push(Instant::now());
        if *self.fails.lock().unwrap() {
            return Err(ProviderError::NotFound);
        }
        Ok(self.pods.lock().unwrap().values().cloned().collect())
    }
}

impl Mute {
    fn set(&self, uid: &str, phase: &str, ended: bool) {
        if let Some(pod) = self.pods.lock().unwrap().get_mut(uid) {
            pod.ended = ended;
            pod.status =
                Arc::new(api::PodStatus { phase: Some(phase.into()), ..Default::default() });
        }
    }
}

fn pod(uid: &str) -> Pod {
    let metadata = ObjectMeta {
        name: Some("a".into()),
        namespace: Some("default".into()),
        uid: Some(uid.into()),
        ..ObjectMeta::default()
    };
    Pod::new(api::Pod { metadata, ..api::Pod::default() }).unwrap()
}

fn start() -> (Arc<Polled<Mute>>, Changes) {
    let polled = Arc::new(Polled::new(Mute::default(), PollTimes::default()));
    let changes = polled.notifications();
    tokio::spawn({
        let polled = polled.clone();
        async move { polled.drive(CancellationToken::new()).await }
    });
    (polled, changes)
}

async fn next(changes: &mut Changes, within: Duration) -> Option<String> {
    timeout(within, changes.next()).await.ok()?.map(|uid| uid.as_str().to_owned())
}

#[tokio::test(start_paused = true)]
async fn what_changes_is_told_once_and_what_does_not_is_not() {
    let (polled, mut changes) = start();
    polled.create_pod(&pod("u1")).await.unwrap();
    assert_eq!(next(&mut changes, 6 * S).await.as_deref(), Some("u1"));
    assert_eq!(next(&mut changes, 60 * S).await, None);
    polled.inner().set("u1", "Running", false);
    assert_eq!(next(&mut changes, 6 * S).await.as_deref(), Some("u1"));
    assert_eq!(next(&mut changes, 60 * S).await, None);
    polled.inner().pods.lock().unwrap().clear();
    assert_eq!(next(&mut changes, 6 * S).await.as_deref(), Some("u1"), "it vanished");
    assert_eq!(next(&mut changes, 60 * S).await, None);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_was_asked_for_is_heard_within_a_second() {
    let (polled, mut changes) = start();
    polled.create_pod(&pod("u1")).await.unwrap();
    next(&mut changes, 6 * S).await;
    tokio::time::sleep(100 * S).await;
    polled.delete_pod(&pod("u1"), S).await.unwrap();
    assert_eq!(next(&mut changes, S).await.as_deref(), Some("u1"));
}

#[tokio::test(start_paused = true)]
async fn a_calm_provider_is_asked_every_five_seconds() {
    let (polled, _changes) = start();
    tokio::time::sleep(100 * S).await;
    let lists = polled.inner().lists.lock().unwrap().clone();
    assert!((20..=22).contains(&lists.len()), "{}", lists.len());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_not_an_empty_one() {
    let (polled, mut changes) = start();
    polled.create_pod(&pod("u1")).await.unwrap();
    next(&mut changes, 6 * S).await;
    *polled.inner().fails.lock().unwrap() = true;
    assert_eq!(next(&mut changes, 60 * S).await, None);
    *polled.inner().fails.lock().unwrap() = false;
    assert_eq!(next(&mut changes, 60 * S).await, None);
}
