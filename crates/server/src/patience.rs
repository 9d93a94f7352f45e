//! Waits for a client that must not take for ever: for the next piece of a request's body, and for room to
//! send it more of an answer. Whoever is quick pays nothing for it: the timer begins where something is
//! waited for.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use s3s::StdError;
use tokio::time::Sleep;

/// How long each of a row of waits may take.
pub(super) struct Patience {
    longest: Duration,
    /// The end of the wait that is on.
    wait: Option<Pin<Box<Sleep>>>,
}

/// A client kept the server waiting for too long.
#[derive(Debug)]
pub(super) struct RanOut;

impl fmt::Display for RanOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing came for too long")
    }
}

impl std::error::Error for RanOut {}

impl Patience {
    pub(super) fn new(longest: Duration) -> Self {
        Self { longest, wait: None }
    }

    /// What was polled, or that it has taken too long.
    pub(super) fn poll<T>(&mut self, cx: &mut Context<'_>, polled: Poll<T>) -> Poll<Result<T, RanOut>> {
        match polled {
            Poll::Ready(value) => {
                self.wait = None;
                Poll::Ready(Ok(value))
            }
            Poll::Pending => {
                let longest = self.longest;
                let wait = self.wait.get_or_insert_with(|| Box::pin(tokio::time::sleep(longest)));
                ready!(wait.as_mut().poll(cx));
                self.wait = None;
                Poll::Ready(Err(RanOut))
            }
        }
    }
}

/// The body of a request, which fails where its client stops in the middle of it.
pub(super) struct Patient {
    body: Incoming,
    patience: Patience,
}

impl Patient {
    pub(super) fn new(body: Incoming, longest: Duration) -> Self {
        Self { body, patience: Patience::new(longest) }
    }
}

impl Body for Patient {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match ready!(self.patience.poll(cx, polled)) {
            Ok(frame) => Poll::Ready(frame.map(|frame| frame.map_err(StdError::from))),
            Err(ran_out) => Poll::Ready(Some(Err(ran_out.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
