//! The idle timeout of bodies: how long the next piece of one may take.

use std::time::Duration;

use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body as _, Incoming};
use s3s::{Body, StdError};
use tokio::time::timeout;

/// The same body, which fails if its sender stops in the middle of it.
pub(super) fn limited(body: Incoming, idle_timeout: Duration) -> Body {
    if body.is_end_stream() {
        return Body::empty();
    }
    let frames = stream::unfold(body, move |mut body| async move {
        let frame = match timeout(idle_timeout, body.frame()).await {
            Ok(frame) => frame?.map_err(StdError::from),
            Err(_) => Err(StdError::from("nothing came for too long")),
        };
        Some((frame, body))
    });
    Body::http_body_unsync(StreamBody::new(frames))
}
