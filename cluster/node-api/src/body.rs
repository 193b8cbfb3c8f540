//! The bodies of responses as they are sent: block by block, with an end of their own.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Frame, SizeHint};

use crate::answer::Body;
use crate::connection::{OpenRequest, Place};

/// The most bytes of a block; a frame of HTTP/2.
const MAX_BLOCK_BYTES: usize = 16 * 1024;

/// A body whose end is not sent together with data.
///
/// Go's readers may return the last bytes of a body and its end at the same time, and there are programs that drop the
/// bytes then; the API server does where it passes a log on to a WebSocket. Over HTTP/2 data and end are two reads if
/// they are two frames. Over HTTP/1.1 they are two writes, which is the most that a server can do.
struct Blocks {
    body: Body,
    /// What is left of the data that `body` gave.
    left: Bytes,
    has_ended: bool,
    _held: (OpenRequest, Place),
}

/// Sends `body` in blocks, and holds what its request holds until its end.
pub(crate) fn in_blocks(body: Body, held: (OpenRequest, Place)) -> Body {
    Blocks { body, left: Bytes::new(), has_ended: false, _held: held }.boxed_unsync()
}

impl hyper::body::Body for Blocks {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        while self.left.is_empty() {
            if self.has_ended {
                return Poll::Ready(None);
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)?) {
                Some(frame) => match frame.into_data() {
                    Ok(data) => self.left = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                None => {
                    self.has_ended = true;
                    // While it waits, the connection writes what it has.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
        let length = self.left.len().min(MAX_BLOCK_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.left.split_to(length)))))
    }

    fn size_hint(&self) -> SizeHint {
        let (body, left) = (self.body.size_hint(), self.left.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + left);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + left);
        }
        hint
    }
}
