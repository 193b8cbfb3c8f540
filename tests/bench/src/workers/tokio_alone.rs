//! The floor of the pod workers: a task and a channel for each pod, and no pods.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::Instant;

use super::{PODS, ROUNDS, UPDATES};
use crate::figure::median;
use crate::node::own_program;

/// What tokio alone takes: each time for all tasks together.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Alone {
    pub(super) create: Duration,
    pub(super) update: Duration,
    pub(super) kill: Duration,
}

enum Work {
    Update,
    Kill(oneshot::Sender<()>),
}

/// Measures in a process of its own, whose heap holds nothing else.
pub(super) fn measure() -> std::io::Result<Alone> {
    let program = own_program().map_err(std::io::Error::other)?;
    let ran = std::process::Command::new(program).arg("tokio-alone").output()?;
    serde_json::from_slice(&ran.stdout)
        .map_err(|_| std::io::Error::other(String::from_utf8_lossy(&ran.stderr).into_owned()))
}

/// One process's figures, as JSON.
pub(crate) async fn once() -> Result<String, String> {
    let done = Arc::new(AtomicUsize::new(0));
    let (mut create, mut update, mut kill) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        done.store(0, Ordering::Relaxed);
        let begun = Instant::now();
        let mut tasks = Vec::with_capacity(PODS);
        tasks.extend((0..PODS).map(|_| begin(&done)));
        all_done(&done, PODS).await;
        create.push(begun.elapsed());

        let begun = Instant::now();
        for _ in 0..UPDATES {
            tasks.iter().for_each(|task| drop(task.send(Work::Update)));
        }
        all_done(&done, PODS + PODS * UPDATES).await;
        update.push(begun.elapsed());

        let begun = Instant::now();
        let ends = tasks.iter().map(|task| {
            let (end, ended) = oneshot::channel();
            let _ = task.send(Work::Kill(end));
            ended
        });
        for ended in ends.collect::<Vec<_>>() {
            let _ = ended.await;
        }
        kill.push(begun.elapsed());
    }
    let alone = Alone { create: median(create), update: median(update), kill: median(kill) };
    serde_json::to_string(&alone).map_err(|error| error.to_string())
}

fn begin(done: &Arc<AtomicUsize>) -> mpsc::UnboundedSender<Work> {
    let (task, mut works) = mpsc::unbounded_channel();
    let done = Arc::clone(done);
    tokio::spawn(async move {
        done.fetch_add(1, Ordering::Relaxed);
        while let Some(work) = works.recv().await {
            match work {
                Work::Update => done.fetch_add(1, Ordering::Relaxed),
                Work::Kill(end) => {
                    let _ = end.send(());
                    return;
                }
            };
        }
    });
    task
}

async fn all_done(done: &AtomicUsize, all: usize) {
    while done.load(Ordering::Relaxed) < all {
        yield_now().await;
    }
}
