use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use super::*;

/// Pieces of 1 MiB without end, each counted, with a pause before each.
struct Endless {
    piece: Bytes,
    given: Arc<AtomicU64>,
    every: Duration,
    pause: Pin<Box<Sleep>>,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !self.every.is_zero() {
            ready!(self.pause.as_mut().poll(cx));
            let next = Instant::now() + self.every;
            self.pause.as_mut().reset(next);
        }
        self.given.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(self.piece.clone()))))
    }
}

/// Reads the endless answer to a request for `address`, at most 1000 pieces. Returns how many were read, and the error.
async fn read(address: &str, last: u8, every: Duration) -> (u64, Option<String>) {
    let mut piece = vec![b'x'; 1 << 20];
    piece[(1 << 20) - 1] = last;
    let given = Arc::new(AtomicU64::new(0));
    let pause = Box::pin(tokio::time::sleep(every));
    let endless = Endless { piece: piece.into(), given: Arc::clone(&given), every, pause };
    let mut body = BoundedBody::new(endless, &address.parse().unwrap());
    let error = loop {
        let next = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        match next.unwrap() {
            Err(error) => break Some(error.to_string()),
            Ok(_) if given.load(Ordering::Relaxed) > 1000 => break None,
            Ok(_) => {}
        }
    };
    if error.is_some() {
        assert_eq!(Arc::strong_count(&given), 1, "the rest is not read, nor kept");
        let next = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        assert!(next.is_none() && body.is_end_stream());
    }
    (given.load(Ordering::Relaxed), error)
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_end_is_given_up_and_kept_nowhere() {
    let (read_of_list, error) = read("/api/v1/pods?limit=500", b'\n', Duration::ZERO).await;
    assert_eq!((read_of_list, error.unwrap().contains("longer than 16 MiB")), (17, true));
    let (read_of_watch, error) =
        read("/api/v1/pods?limit=1&watch=true", b'x', Duration::ZERO).await;
    assert_eq!((read_of_watch, error.unwrap().contains("a line of more than 16 MiB")), (17, true));
    let began = Instant::now();
    let (_, error) = read("/api/v1/pods", b'\n', Duration::from_secs(50)).await;
    assert!(error.unwrap().contains("is not complete within 120s"));
    assert_eq!(began.elapsed(), BODY_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_watch_may_say_as_much_as_it_likes_and_as_late_in_lines() {
    for every in [Duration::ZERO, Duration::from_secs(300)] {
        let (read, error) = read("/api/v1/pods?watch=1", b'\n', every).await;
        assert_eq!((read, error), (1001, None));
    }
}

/// etcd takes 1.5 MiB, of which each byte may be a `<`, which Go writes as `\u003c`.
#[test]
fn a_watch_may_give_the_largest_object_that_an_api_server_stores() {
    let mut watch = Bound::Watch { line: 0 };
    let piece = [b'x'; 3 << 19];
    for _ in 0..6 {
        watch.take(&piece).unwrap();
    }
    watch.take(&[b'x'; 64 << 10]).unwrap();
    watch.take(b"\n").unwrap();
}
