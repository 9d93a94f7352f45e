//! Connections: accepting them, serving HTTP/1.1 on each, and ending all of them in time. A failing accept never ends
//! the server. An idle client loses its connection.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::SERVER;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use percent_encoding::percent_decode_str;
use s3s::dto::StreamingBlob;
use s3s::service::S3Service;
use s3s::{Body, HttpError, HttpResponse};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::faults::{Link, Plan};
use super::idle_timeout;
use super::model::Pacer;
use super::objects::refuse;
use super::proxy::Forwarder;
use super::refusal::Refusal;
use super::socket::Socket;

/// The server's name.
const NAME: &str = concat!("s3mq/", env!("CARGO_PKG_VERSION"));

/// How long requests in flight may take once the server is to stop.
const GRACE: Duration = Duration::from_secs(1);

/// The pause after a failed accept; its reason (no descriptors left) lasts.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A failing accept is said again after this.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// Of a request's line and headers. S3 allows keys of 1 KiB and 2 KiB of an object's own headers.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// As in S3.
const MAX_KEY_BYTES: usize = 1024;

#[derive(Clone)]
pub(super) enum Worker {
    /// This server's own store.
    Own(S3Service),
    /// Another store.
    Other(Arc<Forwarder>),
}

pub(super) struct Work {
    pub(super) worker: Worker,
    pub(super) model: Option<Pacer>,
    pub(super) faults: Option<Arc<Plan>>,
    /// How long a client may send or take nothing.
    pub(super) idle_timeout: Duration,
}

/// Serves until the sender of `stopped` is dropped or used. No connection outlives the returned
/// future, not even where that is dropped halfway.
pub(super) async fn serve(listener: TcpListener, work: Work, mut stopped: oneshot::Receiver<()>) {
    let injected: Arc<str> = work.injected().into();
    let work = Arc::new(work);
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let mut said = None;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let connection = graceful.watch(connect(stream, work.clone(), Arc::clone(&injected)));
                    connections.spawn(async move {
                        // A client that went away is its own affair.
                        if let Err(error) = connection.await {
                            tracing::trace!("connection ended: {error}");
                        }
                    });
                }
                Err(error) => {
                    if said.is_none_or(|said: Instant| said.elapsed() > SAY_AGAIN) {
                        tracing::warn!("cannot accept a connection: {error}; is the limit of open files too low (ulimit -n)?");
                        said = Some(Instant::now());
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            // Reaps what ended, so that the set does not grow with every connection there was.
            Some(_) = connections.join_next() => {}
            _ = &mut stopped => break,
        }
    }
    drop(listener);
    if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
        tracing::debug!("ending {} connections that are still busy", connections.len());
    }
    connections.shutdown().await;
}

fn connect(
    stream: TcpStream,
    work: Arc<Work>,
    injected: Arc<str>,
) -> http1::Connection<TokioIo<Socket>, Served> {
    // With Nagle's algorithm a small answer waits some 40 ms for the client's delayed acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::warn!("cannot set TCP_NODELAY, small requests will be slow: {error}");
    }
    let link = work.faults.as_ref().map(|_| Arc::<Link>::default());
    let socket = Socket::new(stream, work.idle_timeout, link.clone());
    http1::Builder::new()
        .max_header_size(MAX_HEADER_BYTES)
        .timer(TokioTimer::new())
        .header_read_timeout(work.idle_timeout)
        .serve_connection(TokioIo::new(socket), Served { work, injected, link })
}

/// Adds what is injected to the name of the server, or of the store behind a proxy, as in
/// `s3mq/0.1.0 (modelled: s3-express)`.
fn name(headers: &mut HeaderMap, injected: &str) {
    let server = headers.get(SERVER).map_or(NAME.as_bytes(), HeaderValue::as_bytes);
    if let Ok(name) = HeaderValue::try_from([server, injected.as_bytes()].concat()) {
        headers.insert(SERVER, name);
    }
}

#[derive(Clone)]
struct Served {
    work: Arc<Work>,
    injected: Arc<str>,
    /// Where there are faults.
    link: Option<Arc<Link>>,
}

impl Service<Request<Incoming>> for Served {
    type Response = HttpResponse;
    type Error = HttpError;
    type Future = BoxFuture<'static, Result<HttpResponse, HttpError>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let Self { work, injected, link } = self.clone();
        Box::pin(async move {
            let request = request.map(|body| idle_timeout::limited(body, work.idle_timeout));
            let mut response = match (&work.faults, link) {
                (Some(faults), Some(link)) => {
                    faults.around(request, link, |request| work.answer(request)).await?
                }
                _ => work.answer(request).await?,
            };
            name(response.headers_mut(), &injected);
            Ok(response)
        })
    }
}

fn key_bytes(request: &Request<Body>) -> usize {
    let below_the_bucket = request.uri().path().splitn(3, '/').nth(2);
    percent_decode_str(below_the_bucket.unwrap_or_default()).count()
}

/// Refuses a key as S3 does. The protocol crate would log an error of its own, and leave the body unread.
async fn refuse_key(request: Request<Body>, bytes: usize) -> HttpResponse {
    let method = request.method().clone();
    tracing::warn!("refused a {method} of a key of {bytes} bytes; a key has at most {MAX_KEY_BYTES}");
    let (status, code) = (StatusCode::BAD_REQUEST, "KeyTooLongError".to_owned());
    let too_long = Refusal { status, code, message: "A key has at most 1024 bytes." };
    refuse(StreamingBlob::from(request.into_body()), too_long).await.answer(&method)
}

impl Work {
    /// What is injected; empty if nothing is.
    fn injected(&self) -> String {
        let model = self.model.as_ref().map(|model| format!("modelled: {}", model.name()));
        let faults = self.faults.as_ref().map(|_| "faults injected".to_owned());
        let notes: Vec<_> = model.into_iter().chain(faults).collect();
        if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) }
    }

    async fn answer(&self, request: Request<Body>) -> Result<HttpResponse, HttpError> {
        let work = |request: Request<Body>| async {
            match &self.worker {
                Worker::Own(s3) => match key_bytes(&request) {
                    bytes if bytes > MAX_KEY_BYTES => Ok(refuse_key(request, bytes).await),
                    _ => s3.call(request).await,
                },
                Worker::Other(forwarder) => Ok(forwarder.forward(request).await),
            }
        };
        match &self.model {
            Some(model) => model.around(request, work).await,
            None => work(request).await,
        }
    }
}
