//! The server of the socket, with which other programs on the node delay its shutdown.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt as _};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use winddown_shared::display::clean;
use winddown_shared::{
    GateReason, GateReasons, Gauge, NodeHandle, Plugin, PluginMetric, PluginName,
    SYSTEM_CRITICAL_PRIORITY, ShutdownPoint, ShutdownWork, WorkContext, WorkError,
};

use super::{
    Holder, Inhibit, ShutdownMessage, SocketAnswer, SocketLineError, SocketLines, SocketRequest,
    Turn,
};

const NAME: PluginName = PluginName::of("inhibitors");
/// The most programs served at once; others wait until one disconnects.
const MAX_PROGRAMS: usize = 64;
/// The longest name, and the longest reason, in bytes.
const MAX_TEXT_BYTES: usize = 256;
/// The timeout for a program to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The time kept for naming the late holders before the work is dropped.
const TO_NAME_THEM: Duration = Duration::from_millis(100);
/// The pause after a failed `accept`, e.g. because of too many open files.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(200);

/// The programs that connect.
pub type Accept = Pin<Box<dyn Stream<Item = io::Result<UnixStream>> + Send + Sync>>;

/// A plug-in that grants locks on a socket. A shutdown waits for each holder at its turn among the pods, and at most
/// `period` for all holders of one turn.
pub struct InhibitorSocket {
    accept: Accept,
    period: Duration,
    locks: Locks,
    held: Gauge,
}

/// The locks, and the turns that have begun. Clones share them.
#[derive(Clone, Default)]
struct Locks(Arc<SocketShared>);

#[derive(Default)]
struct SocketShared {
    held: watch::Sender<BTreeMap<u64, Lock>>,
    /// The turns that have begun, each with its deadline.
    turns: watch::Sender<Vec<(Turn, Instant)>>,
    last: Mutex<u64>,
}

#[derive(Clone, Debug, PartialEq)]
struct Lock {
    who: String,
    why: String,
    turn: Turn,
}

// === impl InhibitorSocket ===

impl InhibitorSocket {
    /// Creates the plug-in for the connections of `accept`. The plan of a shutdown reserves `period` for each turn.
    pub fn new(accept: Accept, period: Duration) -> Self {
        let held = Gauge::new("inhibitors_held", "Locks of other programs that delay a shutdown.");
        Self { accept, period, locks: Locks::default(), held }
    }

    /// Serves connections until it is dropped.
    async fn serve(self, node: NodeHandle) {
        let Self { mut accept, period, locks, held } = self;
        let mut programs = JoinSet::new();
        let mut changes = locks.0.held.subscribe();
        loop {
            tokio::select! {
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let now = changes.borrow_and_update();
                    held.set(f64::from(u32::try_from(now.len()).unwrap_or(u32::MAX)));
                    node.say(told(&now));
                }
                Some(_) = programs.join_next() => {}
                Some(next) = accept.next(), if programs.len() < MAX_PROGRAMS => match next {
                    Ok(stream) => {
                        let program = Program {
                            lines: SocketLines::of(stream),
                            locks: locks.clone(),
                            gate: node.gate(),
                            period,
                        };
                        programs.spawn(program.serve());
                    }
                    Err(error) => {
                        tracing::warn!("the socket for inhibitors: {error}");
                        sleep(ACCEPT_BACKOFF).await;
                    }
                },
            }
        }
    }
}

impl Plugin for InhibitorSocket {
    fn name(&self) -> PluginName {
        NAME
    }

    fn metrics(&self) -> Vec<PluginMetric> {
        vec![(&self.held).into()]
    }

    fn at_shutdown(&self, _node: &NodeHandle) -> Vec<ShutdownWork> {
        let turns = [
            (Turn::BeforePods, ShutdownPoint::BeforePods, "wait for programs that go first"),
            (
                Turn::BeforeSystemPods,
                ShutdownPoint::Before(SYSTEM_CRITICAL_PRIORITY),
                "wait for programs that go before system pods",
            ),
            (Turn::AfterPods, ShutdownPoint::AfterPods, "wait for programs that go last"),
        ];
        let work = |(turn, point, what)| {
            let locks = self.locks.clone();
            ShutdownWork::new(NAME, what, point, self.period, move |context| {
                let locks = locks.clone();
                async move { locks.wait(turn, context).await }
            })
        };
        turns.into_iter().map(work).collect()
    }

    fn run(self: Box<Self>, node: NodeHandle) -> BoxFuture<'static, ()> {
        Box::pin(self.serve(node))
    }
}

impl fmt::Debug for InhibitorSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InhibitorSocket").field("period", &self.period).finish_non_exhaustive()
    }
}

/// Describes the held locks in one line; empty if there are none.
fn told(held: &BTreeMap<u64, Lock>) -> String {
    let each = held.values().map(|lock| match lock.why.is_empty() {
        true => clean(&lock.who).into_owned(),
        false => format!("{} ({})", clean(&lock.who), clean(&lock.why)),
    });
    match held.is_empty() {
        true => String::new(),
        false => format!("a shutdown waits for {}", each.collect::<Vec<_>>().join(", ")),
    }
}

// === impl Locks ===

impl Locks {
    /// Notifies the holders of a turn, and waits until they have released their locks.
    async fn wait(&self, turn: Turn, context: WorkContext) -> Result<(), WorkError> {
        let until = context.until - TO_NAME_THEM;
        let mut held = self.0.held.subscribe();
        let of_turn = move |lock: &&Lock| lock.turn == turn;
        let is_over = |held: &BTreeMap<u64, Lock>| !held.values().any(|lock| of_turn(&lock));
        if is_over(&held.borrow_and_update()) {
            return Ok(());
        }
        let begun = Begun::new(&self.0.turns, turn, until);
        if timeout_at(until, held.wait_for(is_over)).await.is_ok() {
            return Ok(());
        }
        drop(begun);
        let late = held.borrow();
        let late = late.values().filter(of_turn).map(|lock| clean(&lock.who));
        let late = late.collect::<Vec<_>>().join(", ");
        Err(WorkError::Failed(format!("still held by {late}").into()))
    }

    fn take(&self, lock: Lock) -> Held {
        let id = {
            let mut last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
            *last += 1;
            *last
        };
        self.0.held.send_modify(|held| drop(held.insert(id, lock)));
        Held { id, locks: self.clone() }
    }
}

/// A turn that has begun; it is over when this is dropped.
struct Begun<'a>(&'a watch::Sender<Vec<(Turn, Instant)>>, Turn);

impl<'a> Begun<'a> {
    fn new(turns: &'a watch::Sender<Vec<(Turn, Instant)>>, turn: Turn, until: Instant) -> Self {
        turns.send_modify(|turns| turns.push((turn, until)));
        Self(turns, turn)
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|turns| turns.retain(|(turn, _)| *turn != self.1));
    }
}

/// A held lock; released when this is dropped.
struct Held {
    id: u64,
    locks: Locks,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.locks.0.held.send_modify(|held| drop(held.remove(&self.id)));
    }
}

/// A connected program.
struct Program {
    lines: SocketLines,
    locks: Locks,
    gate: watch::Receiver<GateReasons>,
    period: Duration,
}

impl Program {
    async fn serve(mut self) {
        let served = async {
            match timeout(REQUEST_TIMEOUT, self.lines.read()).await {
                Ok(Ok(Some(SocketRequest::Watch))) => self.tell_changes().await,
                Ok(Ok(Some(SocketRequest::Inhibit(asked)))) => self.hold(asked).await,
                Ok(Ok(None)) | Err(_) => Ok(()),
                Ok(Err(SocketLineError::Malformed(reason))) => self.refuse(reason).await,
                Ok(Err(lost)) => Err(lost),
            }
        };
        if let Err(error) = served.await {
            tracing::debug!("a program on the socket for inhibitors: {error}");
        }
    }

    async fn refuse(&mut self, reason: String) -> Result<(), SocketLineError> {
        self.lines.write(&SocketAnswer::Refused { reason }).await
    }

    async fn hold(&mut self, asked: Inhibit) -> Result<(), SocketLineError> {
        let Inhibit { who, why, turn } = asked;
        if who.is_empty() || who.len() > MAX_TEXT_BYTES || why.len() > MAX_TEXT_BYTES {
            let reason =
                format!("who is 1 to {MAX_TEXT_BYTES} bytes long, and why at most as long");
            return self.refuse(reason).await;
        }
        // As in logind: a shutdown that has begun waits only for locks granted before.
        if is_going_down(*self.gate.borrow()) {
            return self.refuse("a shutdown is under way".to_owned()).await;
        }
        let lock = self.locks.take(Lock { who, why, turn });
        self.lines.write(&SocketAnswer::Granted { id: lock.id }).await?;
        let mut turns = self.locks.0.turns.subscribe();
        loop {
            let now = turns.borrow_and_update().iter().find(|(one, _)| *one == turn).copied();
            if let Some((_, until)) = now {
                let left = until.saturating_duration_since(Instant::now());
                self.lines.write(&SocketAnswer::Turn { seconds: left.as_secs_f64() }).await?;
            }
            tokio::select! {
                () = self.lines.closed() => return Ok(()),
                changed = turns.changed() => if changed.is_err() { return Ok(()) },
            }
        }
    }

    async fn tell_changes(&mut self) -> Result<(), SocketLineError> {
        let mut held = self.locks.0.held.subscribe();
        loop {
            let holders = held
                .borrow_and_update()
                .iter()
                .map(|(id, lock)| Holder { id: *id, who: lock.who.clone() })
                .collect();
            let shutdown = ShutdownMessage {
                preparing: is_going_down(*self.gate.borrow_and_update()),
                delay_seconds: self.period.as_secs_f64(),
                inhibitors: Some(holders),
                ..ShutdownMessage::default()
            };
            self.lines.write(&SocketAnswer::Shutdown(shutdown)).await?;
            tokio::select! {
                () = self.lines.closed() => return Ok(()),
                changed = held.changed() => if changed.is_err() { return Ok(()) },
                changed = self.gate.changed() => if changed.is_err() { return Ok(()) },
            }
        }
    }
}

fn is_going_down(reasons: GateReasons) -> bool {
    reasons.contains(GateReason::Shutdown) || reasons.contains(GateReason::UnitStop)
}
