//! Nothing to do costs no processor.

use std::future::{pending, ready};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use super::*;

/// Counts how often a future is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether the future wants to be polled again and again at one moment.
async fn spins(mut future: Pin<&mut impl Future>) -> bool {
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    for _ in 0..100 {
        let before = wakes.0.load(Ordering::Relaxed);
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        // The runtime wakes a future later that has used up its share.
        tokio::task::yield_now().await;
        if wakes.0.load(Ordering::Relaxed) == before {
            return false;
        }
    }
    true
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_at_the_start_keeps_no_processor_busy() {
    let server = with(&["a"]);
    let client = kube::Client::new(server.service(), "default");
    let (outbox, driver) = Outbox::new(&config(None));
    let mut sending = pin!(driver.send_all(&client, pending()));
    assert!(!spins(sending.as_mut()).await);
    tokio::time::advance(Duration::from_secs(3)).await;
    assert!(!spins(sending.as_mut()).await, "it waits for the disk, or for something to send");
    outbox.submit(running("a"));
    assert!(!spins(sending.as_mut()).await);
    assert_eq!(phase(&server, "a"), "Running", "that is sent without the disk");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_due_while_the_server_is_silent_keeps_no_processor_busy() {
    let server = with(&["a", "b"]);
    let client = kube::Client::new(server.service(), "default");
    let (outbox, driver) = Outbox::new(&OutboxConfig { concurrency: 1, ..config(None) });
    let mut sending = pin!(driver.send_all(&client, ready(Ok(Vec::new()))));
    server.fault(Fault::on("*", "*").status(503).times(1));
    outbox.submit(running("a"));
    assert!(!spins(sending.as_mut()).await);
    server.fault(Fault::on("*", "*").hang());
    outbox.submit(running("b"));
    assert!(!spins(sending.as_mut()).await);
    assert_eq!(server.requests().len(), 2, "one failed, and one has no answer");
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(!spins(sending.as_mut()).await, "the first is due, and waits for the second");
    assert_eq!(server.requests().len(), 2);
}
