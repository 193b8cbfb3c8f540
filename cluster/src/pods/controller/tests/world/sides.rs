//! The world as each part of the controller sees it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1 as api;
use tokio::sync::mpsc;
use tokio::time::sleep;
use winddown_shared::{Pod, PodLabel, PodUid};

use super::{Answer, State, World, running};
use crate::pods::{PodEvent, PodEvents, StatusSide};
use crate::provider::{Changes, Notify, ProvidedPod, Provider, ProviderError};
use crate::status::StatusUpdate;
use winddown_api_client::node_pods::{PodApi, PodStream, Refused};
use winddown_api_client::refusal::Refusal;

impl PodApi for World {
    fn watch(&self) -> PodStream {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.with(|state| {
            state.watchers.push(sender);
        });
        self.relist();
        stream::unfold(receiver, async |mut receiver| {
            let event = receiver.recv().await?;
            Some((event, receiver))
        })
        .boxed()
    }

    async fn get(&self, pod: &PodLabel) -> Result<Option<api::Pod>, Refused> {
        self.called(format!("get {}", pod.uid));
        self.with(|state| {
            state.refuse("read the pod")?;
            let mut all = state.objects.values();
            Ok(all.find(|object| object.metadata.name.as_deref() == Some(&*pod.name)).cloned())
        })
    }

    async fn delete(&self, pod: &PodLabel, grace: Duration) -> Result<(), Refused> {
        let uid = pod.uid.as_str();
        if !grace.is_zero() {
            self.called(format!("request {uid} {}s", grace.as_secs()));
            World::delete(self, uid, grace.as_secs());
            return Ok(());
        }
        self.called(format!("remove {uid}"));
        self.with(|state| {
            state.refuse("delete the pod")?;
            if state.running.get(uid).is_some_and(|running| !running.ended) {
                state.wrong.push(format!("{uid} was removed while it ran"));
            }
            if state.objects.contains_key(uid) && !state.is_over(uid) {
                state.wrong.push(format!("{uid} was removed before its last word was told"));
            }
            Ok(())
        })?;
        match self.object(uid) {
            None => Err(Refused { what: "", refusal: Refusal::NotFound, source: None }),
            Some(object) if object.metadata.finalizers.is_some() => {
                self.edit(uid, |pod| pod.metadata.deletion_grace_period_seconds = Some(0));
                Ok(())
            }
            Some(_) => {
                self.vanish(uid, |pod| pod.metadata.deletion_grace_period_seconds = Some(0));
                Ok(())
            }
        }
    }
}

impl World {
    async fn answer(
        &self,
        of: fn(&mut State) -> &mut VecDeque<Answer>,
    ) -> Result<(), ProviderError> {
        match self.with(|state| of(state).pop_front()) {
            None => Ok(()),
            Some(Answer::Fails(error)) => Err(error),
            Some(Answer::Takes(time)) => {
                sleep(time).await;
                Ok(())
            }
            Some(Answer::Hangs) => std::future::pending().await,
        }
    }
}

impl Provider for World {
    async fn create_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        self.called(format!("create {}", pod.uid()));
        assert_ne!(&**pod.name(), "panic", "as the scenario wants it");
        self.with(|state| state.check_create(pod));
        self.answer(|state| &mut state.create).await?;
        let provided = ProvidedPod { pod: pod.clone(), status: running(), ended: false };
        self.with(|state| {
            state.running.entry(pod.uid().as_str().to_owned()).or_insert(provided);
        });
        self.0.sender.changed(pod.uid());
        Ok(())
    }

    async fn update_pod(&self, pod: &Pod) -> Result<(), ProviderError> {
        self.called(format!("update {}", pod.uid()));
        self.answer(|state| &mut state.update).await?;
        self.with(|state| match state.running.get_mut(pod.uid().as_str()) {
            Some(running) => {
                running.pod = pod.clone();
                Ok(())
            }
            None => Err(ProviderError::NotFound),
        })
    }

    async fn delete_pod(&self, pod: &Pod, grace: Duration) -> Result<(), ProviderError> {
        let uid = pod.uid().as_str().to_owned();
        self.called(format!("delete {uid} {}s", grace.as_secs_f64().round()));
        self.answer(|state| &mut state.delete).await?;
        let (ends_after, immortal) = self.with(|state| {
            if !state.running.contains_key(&uid) {
                return Err(ProviderError::NotFound);
            }
            Ok((state.ends_after, state.immortal))
        })?;
        let after = if grace.is_zero() && !immortal { Some(Duration::ZERO) } else { ends_after };
        if let Some(after) = after {
            let world = self.clone();
            tokio::spawn(async move {
                sleep(after).await;
                world.ends(&uid, if after.is_zero() { 137 } else { 0 });
            });
        }
        Ok(())
    }

    async fn get_pod(&self, uid: &PodUid) -> Result<Option<ProvidedPod>, ProviderError> {
        self.with(|state| {
            if state.provider_down {
                return Err(ProviderError::Unavailable { what: "down".into(), after: None });
            }
            Ok(state.running.get(uid.as_str()).cloned())
        })
    }

    async fn list_pods(&self) -> Result<Vec<ProvidedPod>, ProviderError> {
        self.called("list".into());
        self.with(|state| {
            if state.provider_down {
                return Err(ProviderError::Unavailable { what: "down".into(), after: None });
            }
            Ok(state.running.values().cloned().collect())
        })
    }

    async fn forget_pod(&self, uid: &PodUid) {
        self.called(format!("forget {uid}"));
        self.with(|state| state.running.remove(uid.as_str()));
    }
}

impl Notify for World {
    fn notifications(&self) -> Changes {
        self.0.changes.lock().unwrap().take().expect("asked for once")
    }
}

impl StatusSide for World {
    fn submit(&self, update: StatusUpdate) {
        let uid = update.pod.uid.as_str().to_owned();
        self.with(|state| {
            if update.last {
                state.last_words.insert(uid, update.status.clone());
            }
            state.said.push(update.clone());
        });
        if *self.0.acks.borrow() {
            self.write(&update);
        }
    }

    fn api_saw(&self, _: &Pod) {}

    fn gone(&self, uid: &PodUid) {
        self.with(|state| {
            state.gone.push(uid.as_str().to_owned());
            state.last_words.remove(uid.as_str());
        });
    }

    async fn recalled(&self) {
        let recall = self.with(|state| state.recall);
        sleep(recall).await;
        self.with(|state| {
            let earlier = std::mem::take(&mut state.earlier_words);
            state.last_words.extend(earlier);
        });
    }

    async fn told(&self, _: &PodUid) {
        let _ = self.0.acks.subscribe().wait_for(|on| *on).await;
    }

    fn last_word(&self, uid: &PodUid) -> Option<Arc<api::PodStatus>> {
        self.with(|state| state.last_words.get(uid.as_str()).cloned())
    }
}

impl PodEvents for World {
    fn pod_event(&self, pod: &PodLabel, event: PodEvent) {
        self.with(|state| state.events.push((pod.uid.as_str().to_owned(), event)));
    }
}
