//! Bounds what an answer of the API server may take.
//!
//! An answer is kept in memory until it is read whole. Without a bound a server that never ends one would take all the
//! memory of a node whose agent the kernel kills last.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Uri;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::Sleep;
use winddown_host::regular::MAX_OBJECT_BYTES;

#[cfg(test)]
mod tests;

/// How long an answer may take from its head to its end, unless it is a watch.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer, which ends with an error where it exceeds its bound.
#[derive(Debug)]
pub(super) struct BoundedBody<B>(Option<(B, Bound)>);

/// Why the rest of an answer is not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum TooMuch {
    #[error("the API server's answer is longer than {} MiB: the rest is not read", MAX_OBJECT_BYTES >> 20)]
    Answer,
    #[error("the API server's answer to a watch has a line of more than {} MiB: the rest is not read", MAX_OBJECT_BYTES >> 20)]
    Line,
    #[error(
        "the API server's answer is not complete within {BODY_TIMEOUT:?}: the rest is not read"
    )]
    Late,
}

#[derive(Debug)]
enum Bound {
    /// Bytes that may still come, and the time by which they have to. The client has them in memory three times. A list
    /// that is longer is asked for in smaller pages.
    Answer { left: u64, until: Pin<Box<Sleep>> },
    /// Bytes of the line that has not ended yet. A line has one object.
    Watch { line: u64 },
}

// === impl BoundedBody ===

impl<B> BoundedBody<B> {
    /// Bounds the body of the answer to a request for `address`. Must be called inside a tokio runtime.
    pub(super) fn new(body: B, address: &Uri) -> Self {
        let parameters = address.query().unwrap_or_default().split('&');
        let bound = match parameters.into_iter().any(|one| matches!(one, "watch=true" | "watch=1"))
        {
            true => Bound::Watch { line: 0 },
            false => {
                let until = Box::pin(tokio::time::sleep(BODY_TIMEOUT));
                Bound::Answer { left: MAX_OBJECT_BYTES, until }
            }
        };
        Self(Some((body, bound)))
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> Body for BoundedBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some((body, bound)) = &mut self.0 else { return Poll::Ready(None) };
        let error = match Pin::new(body).poll_frame(cx) {
            Poll::Pending => {
                ready!(bound.poll_late(cx));
                TooMuch::Late
            }
            Poll::Ready(Some(Ok(frame))) => match frame.data_ref().map(|data| bound.take(data)) {
                Some(Err(error)) => error,
                _ => return Poll::Ready(Some(Ok(frame))),
            },
            Poll::Ready(other) => return Poll::Ready(other.map(|frame| frame.map_err(Into::into))),
        };
        // Closes the connection.
        self.0 = None;
        Poll::Ready(Some(Err(error.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|(body, _)| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |(body, _)| body.size_hint())
    }
}

// === impl Bound ===

impl Bound {
    /// Ready when the answer should have ended.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Answer { until, .. } => until.as_mut().poll(cx),
            Self::Watch { .. } => Poll::Pending,
        }
    }

    fn take(&mut self, data: &[u8]) -> Result<(), TooMuch> {
        match self {
            Self::Answer { left, .. } => {
                *left = left.checked_sub(data.len() as u64).ok_or(TooMuch::Answer)?;
            }
            Self::Watch { line } => {
                for piece in data.split_inclusive(|&byte| byte == b'\n') {
                    *line += piece.len() as u64;
                    if *line > MAX_OBJECT_BYTES {
                        return Err(TooMuch::Line);
                    }
                    if piece.ends_with(b"\n") {
                        *line = 0;
                    }
                }
            }
        }
        Ok(())
    }
}
