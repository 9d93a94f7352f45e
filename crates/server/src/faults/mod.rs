//! Injected faults: what a store or the network may do to a request, by the rules of a file (`docs/faults.md`).
//! [`Faults`] is the file, checked before the server starts; [`Plan`] decides on each request, counts, and does what was
//! decided around the work itself.

mod bodies;
mod plan;
mod rules;
#[cfg(test)]
mod tests;

pub use plan::FaultCount;
pub(super) use plan::Plan;
pub use rules::{Faults, FaultsError};

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use percent_encoding::percent_decode_str;
use s3s::{Body, HttpError, HttpResponse, StdError};
use tokio::sync::Notify;

use super::refusal::Refusal;
pub(super) use bodies::length;
use bodies::{Bandwidth, cut, exchange, paced};
use plan::{Asked, Hit};
use rules::Action;
use s3mq_clock::{Timer, monotonic_ns};

/// Marks a request whose conditions are ignored.
#[derive(Clone, Copy, Debug)]
pub(super) struct IgnoreCondition;

/// What a fault can do to a request's connection.
#[derive(Debug, Default)]
pub(super) struct Link {
    reset: AtomicBool,
    flushed: Notify,
}

impl Link {
    pub(super) fn is_reset(&self) -> bool {
        self.reset.load(Ordering::Relaxed)
    }

    /// Notes that everything written so far is with the system.
    pub(super) fn note_flushed(&self) {
        self.flushed.notify_waiters();
    }

    fn reset(&self) -> HttpError {
        self.reset.store(true, Ordering::Relaxed);
        HttpError::new(StdError::from("a fault rule resets the connection"))
    }
}

impl Plan {
    /// Does the work of a request, with what the rules have for it.
    pub(super) async fn around<F>(
        &self,
        mut request: Request<Body>,
        link: Arc<Link>,
        work: impl FnOnce(Request<Body>) -> F,
    ) -> Result<HttpResponse, HttpError>
    where
        F: Future<Output = Result<HttpResponse, HttpError>>,
    {
        let asked = Asked::of(&request);
        let decision = self.decide(&asked);
        // As in a slow network: a write takes effect late; a read finds what is there now, and its answer is late.
        let writes = [Method::PUT, Method::POST, Method::DELETE].contains(request.method());
        if writes {
            pause(decision.delay).await;
        }
        for line in &decision.bandwidths {
            request = request.map(|body| paced(body, line.clone()));
        }
        let answer = match decision.hit {
            None => work(request).await,
            Some(hit) => self.strike(hit, &asked, request, link, work).await,
        };
        if !writes {
            pause(decision.delay).await;
        }
        let slowed = |answer, line| exchange(answer, |body| paced(body, line));
        Ok(decision.bandwidths.into_iter().fold(answer?, slowed))
    }

    async fn strike<F>(
        &self,
        hit: Hit<'_>,
        asked: &Asked,
        mut request: Request<Body>,
        link: Arc<Link>,
        work: impl FnOnce(Request<Body>) -> F,
    ) -> Result<HttpResponse, HttpError>
    where
        F: Future<Output = Result<HttpResponse, HttpError>>,
    {
        let method = request.method().clone();
        match &hit.rule.action {
            // They combine with others, and are no hits.
            Action::Delay { .. } | Action::Bandwidth { .. } => work(request).await,
            Action::Status(refusal) => {
                // A connection that is closed on an unread body would be reset before the answer is read.
                drain(request.into_body()).await;
                Ok(refusal.answer(&method))
            }
            Action::Reset {} => Err(link.reset()),
            Action::ApplyThenReset {} => {
                drop(work(request).await);
                Err(link.reset())
            }
            Action::ApplyThenStatus(refusal) => {
                drop(work(request).await?);
                Ok(refusal.answer(&method))
            }
            Action::Stall { seconds: None } if hit.rule.until == Duration::MAX => {
                // Only on a request that came whole does the server notice that its client went away.
                drain(request.into_body()).await;
                std::future::pending().await
            }
            Action::Stall { seconds } => {
                let rest = || hit.rule.until.saturating_sub(self.since_start());
                tokio::time::sleep(seconds.map_or_else(rest, Duration::from_secs_f64)).await;
                work(request).await
            }
            Action::IgnoreCondition {} => {
                request.extensions_mut().insert(IgnoreCondition);
                work(request).await
            }
            action @ (Action::Truncate { .. } | Action::SlowBody { .. } | Action::Hide { .. }) => {
                let answer = work(request).await?;
                let is_longer = |bytes| length(&answer).is_none_or(|length| length > bytes);
                let is_short = matches!(action, Action::Truncate { bytes } if !is_longer(bytes.0));
                if is_short || !answer.status().is_success() {
                    self.withdraw(hit, asked);
                    return Ok(answer);
                }
                self.log(hit, asked);
                Ok(match action {
                    Action::Truncate { bytes } => exchange(answer, |body| cut(body, bytes.0, link)),
                    Action::SlowBody { bytes_per_second } => {
                        exchange(answer, |body| paced(body, Arc::new(Bandwidth::new(bytes_per_second.0))))
                    }
                    _ => {
                        let code = "NoSuchKey".to_owned();
                        Refusal { status: StatusCode::NOT_FOUND, code, message: rules::MESSAGE }
                            .answer(&method)
                    }
                })
            }
        }
    }
}

impl Asked {
    /// Of a request whose path is the bucket and the key.
    fn of(request: &Request<Body>) -> Self {
        let path = request.uri().path();
        let path = path.strip_prefix('/').unwrap_or(path);
        let key = path.split_once('/').map_or("", |(_, key)| key);
        let is_listing = request.method() == Method::GET && key.is_empty();
        let prefix = || {
            let query = request.uri().query().unwrap_or_default();
            let prefix = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "prefix");
            prefix.map(|(_, prefix)| prefix.into_owned()).unwrap_or_default()
        };
        Self {
            method: if is_listing { "LIST" } else { request.method().as_str() }.to_owned(),
            key: if is_listing { prefix() } else { percent_decode_str(key).decode_utf8_lossy().into_owned() },
        }
    }
}

/// Waits to some tens of microseconds, where tokio's timer rounds up to whole milliseconds.
async fn pause(delay: Duration) {
    if !delay.is_zero() {
        Timer::new().until_ns(monotonic_ns() + delay.as_nanos() as u64).await;
    }
}

/// Reads a body to its end, for nothing.
async fn drain(mut body: Body) {
    while let Some(Ok(_)) = body.frame().await {}
}
