//! Bodies that take their time, or break off.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::header::CONTENT_LENGTH;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body as _, Frame};
use parking_lot::Mutex;
use s3s::{Body, HttpResponse, StdError};

use super::Link;
use s3mq_clock::monotonic_ns;

/// A line of so many bytes a second, which everything that is sent over it shares.
#[derive(Debug)]
pub(super) struct Bandwidth {
    bytes_per_second: u64,
    /// When what was sent so far is through.
    free_ns: Mutex<u64>,
}

/// Of what is sent as one piece.
const MAX_PIECE_BYTES: u64 = 64 << 10;

impl Bandwidth {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second, free_ns: Mutex::new(0) }
    }

    /// What comes through in a twentieth of a second, so that a slow line trickles rather than jerks.
    fn piece_bytes(&self) -> usize {
        (self.bytes_per_second / 20).clamp(1, MAX_PIECE_BYTES) as usize
    }

    /// Waits until so many bytes are through, in turns with all others.
    async fn send(&self, bytes: usize) {
        let wait_ns = {
            let (mut free_ns, now_ns) = (self.free_ns.lock(), monotonic_ns());
            let takes_ns = u128::from(bytes as u64) * 1_000_000_000 / u128::from(self.bytes_per_second);
            *free_ns = (*free_ns).max(now_ns).saturating_add(u64::try_from(takes_ns).unwrap_or(u64::MAX));
            *free_ns - now_ns
        };
        tokio::time::sleep(Duration::from_nanos(wait_ns)).await;
    }
}

/// The same body over a slow line.
pub(super) fn paced(body: Body, line: Arc<Bandwidth>) -> Body {
    if body.is_end_stream() {
        // A request without a body must stay one.
        return body;
    }
    let pieces = stream::unfold((body, Bytes::new(), line), |(mut body, mut left, line)| async move {
        while left.is_empty() {
            match body.frame().await?.map(Frame::into_data) {
                Ok(Ok(data)) => left = data,
                Ok(Err(trailers)) => return Some((Ok(trailers), (body, left, line))),
                Err(error) => return Some((Err(error), (body, left, line))),
            }
        }
        let piece = left.split_to(left.len().min(line.piece_bytes()));
        line.send(piece.len()).await;
        Some((Ok(Frame::data(piece)), (body, left, line)))
    });
    Body::http_body_unsync(StreamBody::new(pieces))
}

/// The first bytes of a body; then the connection breaks.
pub(super) fn cut(body: Body, bytes: u64, link: Arc<Link>) -> Body {
    let pieces = stream::unfold((body, bytes, link), |(mut body, left, link)| async move {
        let frame = if left == 0 { None } else { body.frame().await };
        match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(mut data) => {
                    data.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                    let left = left - data.len() as u64;
                    Some((Ok(Frame::data(data)), (body, left, link)))
                }
                Err(trailers) => Some((Ok(trailers), (body, left, link))),
            },
            Some(Err(error)) => Some((Err(error), (body, left, link))),
            None => {
                // What was said so far would be thrown away with the connection.
                link.flushed.notified().await;
                Some((Err(StdError::from("a fault rule breaks off")), (body, left, link)))
            }
        }
    });
    Body::http_body_unsync(StreamBody::new(pieces))
}

/// How many bytes an answer's body has, where that is known.
pub(in super::super) fn length(answer: &HttpResponse) -> Option<u64> {
    let said = answer.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    said.or_else(|| answer.body().size_hint().exact())
}

/// Exchanges an answer's body for one of the same length, as the client sees it.
pub(super) fn exchange(answer: HttpResponse, other: impl FnOnce(Body) -> Body) -> HttpResponse {
    let length = length(&answer);
    let mut answer = answer.map(other);
    if let Some(length) = length {
        answer.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    answer
}
