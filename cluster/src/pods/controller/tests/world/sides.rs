//! The world as each part of the controller sees it.

use std::collections::VecDeque;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use k8s_openapi::api::core::v1 as api;
use tokio::sync::{broadcast, mpsc};
use tokio::time::{sleep, sleep_until};
use winddown_api_client::equality::is_up_to_date;
use winddown_shared::{
    Grace, Pod, PodRef, PodRuntimeStatus, PodStopped, PodUid, Runtime, RuntimeError, RuntimePod,
    SyncedPod,
};

use super::{Answer, Container, State, World};
use crate::pods::{KeepPods, PrepareError, StatusSide};
use crate::status::StatusUpdate;
use winddown_api_client::node_pods::{PodApi, PodStream, RefusedRequest};
use winddown_api_client::refusal::Refusal;

/// How long a hanging call to the runtime takes.
const HANGS: Duration = Duration::from_secs(60);

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

    async fn get(&self, pod: &PodRef) -> Result<Option<api::Pod>, RefusedRequest> {
        self.called(format!("get {}", pod.uid));
        self.with(|state| {
            state.refuse("read the pod")?;
            let mut all = state.objects.values();
            Ok(all.find(|object| object.metadata.name.as_deref() == Some(&*pod.name)).cloned())
        })
    }

    async fn delete(&self, pod: &PodRef, grace: Duration) -> Result<(), RefusedRequest> {
        let uid = pod.uid.as_str();
        if !grace.is_zero() {
            self.called(format!("request {uid} {}s", grace.as_secs()));
            World::delete(self, uid, grace.as_secs());
            return Ok(());
        }
        self.called(format!("remove {uid}"));
        self.with(|state| {
            if state.denied == uid {
                state.refusals.push_front(Refusal::Denied);
            }
            state.refuse("delete the pod")?;
            if state.running.get(uid).is_some_and(|running| running.exit.is_none()) {
                state.wrong.push(format!("{uid} was removed while it ran"));
            }
            if state.is_held {
                state.wrong.push(format!("{uid} was removed while the node held its volumes"));
            }
            if state.objects.contains_key(uid) && !state.is_over(uid) {
                state.wrong.push(format!("{uid} was removed before its last word was told"));
            }
            Ok(())
        })?;
        match self.object(uid) {
            None => Err(RefusedRequest { what: "", refusal: Refusal::NotFound, source: None }),
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
    ) -> Result<(), RuntimeError> {
        match self.with(|state| of(state).pop_front()) {
            None => Ok(()),
            Some(Answer::Fails(error)) => Err(error),
            Some(Answer::Takes(time)) => {
                sleep(time).await;
                Ok(())
            }
            // A runtime bounds its own calls.
            Some(Answer::Hangs) => {
                sleep(HANGS).await;
                Err(RuntimeError::Timeout { what: "asking".into(), after: HANGS })
            }
        }
    }

    /// A query that the runtime may not be able to answer.
    fn ask<T>(&self, answer: impl FnOnce(&mut State) -> T) -> Result<T, RuntimeError> {
        self.with(|state| match state.runtime_down {
            true => Err(RuntimeError::Failed { what: "down".into(), source: None }),
            false => Ok(answer(state)),
        })
    }

    fn asked_to_end(&self, uid: &PodUid, grace: &Grace) {
        self.called(format!("delete {uid} {}s", grace.remaining().as_secs_f64().round()));
    }
}

impl Runtime for World {
    async fn sync_pod(&self, pod: &Pod) -> Result<SyncedPod, RuntimeError> {
        let uid = pod.uid().as_str();
        let known = self.with(|s| s.running.get(uid).map(|one| is_up_to_date(&one.pod, pod)));
        match known {
            None => {
                self.called(format!("create {uid}"));
                self.with(|state| state.check_create(pod));
                self.answer(|state| &mut state.create).await?;
                let container = Container { pod: pod.clone(), exit: None };
                self.with(|state| {
                    state.running.entry(uid.to_owned()).or_insert(container);
                });
            }
            Some(false) => {
                self.called(format!("update {uid}"));
                self.answer(|state| &mut state.update).await?;
                self.with(|state| {
                    if let Some(running) = state.running.get_mut(uid) {
                        running.pod = pod.clone();
                    }
                });
            }
            Some(true) => {}
        }
        Ok(self.with(|state| state.of(uid)).into())
    }

    async fn stop_pod(
        &self,
        uid: &PodUid,
        _: Option<&Pod>,
        mut grace: Grace,
    ) -> Result<PodStopped, RuntimeError> {
        self.asked_to_end(uid, &grace);
        self.answer(|state| &mut state.delete).await?;
        let runs = |state: &mut State| {
            state.running.get(uid.as_str()).is_some_and(|running| running.exit.is_none())
        };
        let (ends_after, immortal, runs) =
            self.with(|state| (state.ends_after, state.immortal, runs(state)));
        if !runs {
            return Ok(PodStopped::default());
        }
        let end = async {
            match ends_after {
                Some(after) => sleep(after).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(end);
        let had_time = !grace.remaining().is_zero();
        let code = loop {
            let kill_at = grace.kill_at();
            tokio::select! {
                () = &mut end => break 0,
                () = grace.changed() => self.asked_to_end(uid, &grace),
                () = sleep_until(kill_at) => {
                    if had_time {
                        self.asked_to_end(uid, &grace);
                    }
                    if immortal {
                        return Err(RuntimeError::Failed { what: "stays".into(), source: None });
                    }
                    break 137;
                }
            }
        };
        self.ends(uid.as_str(), code);
        Ok(PodStopped::default())
    }

    async fn clean_pod(&self, _: &PodUid) -> Result<(), RuntimeError> {
        match self.with(|state| state.is_held) {
            true => Err(RuntimeError::Failed { what: "unmounting".into(), source: None }),
            false => Ok(()),
        }
    }

    async fn forget_pod(&self, uid: &PodUid) -> Result<(), RuntimeError> {
        self.called(format!("forget {uid}"));
        self.with(|state| state.running.remove(uid.as_str()));
        Ok(())
    }

    async fn pod_status(&self, uid: &PodUid) -> Result<PodRuntimeStatus, RuntimeError> {
        self.ask(|state| state.of(uid.as_str()))
    }

    async fn list_pods(&self) -> Result<Vec<RuntimePod>, RuntimeError> {
        self.called("list".into());
        let listed = |running: &Container| RuntimePod::of(&running.pod, running.exit.is_none());
        self.ask(|state| state.running.values().map(listed).collect())
    }

    fn changes(&self) -> broadcast::Receiver<PodUid> {
        self.0.changes.subscribe()
    }
}

impl KeepPods for World {
    fn keep(&self, pod: Pod) -> BoxFuture<'_, Result<(), PrepareError>> {
        let what = "no room".to_owned();
        ready(self.with(|state| match state.keeps_nothing {
            true => Err(PrepareError::Unavailable { what, after: None }),
            false => {
                state.kept.insert(pod.uid().to_string(), pod);
                Ok(())
            }
        }))
        .boxed()
    }

    fn remove<'a>(&'a self, uid: &'a PodUid) -> BoxFuture<'a, ()> {
        self.with(|state| state.kept.remove(uid.as_str()));
        ready(()).boxed()
    }

    fn all_known(&self) -> BoxFuture<'_, ()> {
        self.with(|state| state.misses_kept = false);
        ready(()).boxed()
    }
}

impl StatusSide for World {
    fn submit(&self, update: StatusUpdate) {
        let uid = update.pod.uid.as_str().to_owned();
        // Like the outbox: nothing twice, and nothing after the final status.
        let known = self.said(&uid).pop();
        let is_news =
            |known: StatusUpdate| !known.last && (update.last || known.status != update.status);
        if !known.is_none_or(is_news) {
            return;
        }
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

    fn listing(&self) {
        self.with(|state| state.lists += 1);
    }

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

    async fn delivered(&self, _: &PodUid) {
        let _ = self.0.acks.subscribe().wait_for(|on| *on).await;
    }

    fn final_status(&self, uid: &PodUid) -> Option<Arc<api::PodStatus>> {
        assert_ne!(uid.as_str(), "panic", "as the scenario wants it");
        self.with(|state| state.last_words.get(uid.as_str()).cloned())
    }
}
