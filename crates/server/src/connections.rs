//! Connections: accepting them, serving HTTP/1.1 on each, and ending all of them in time.
//!
//! Every socket gets `TCP_NODELAY`: with Nagle's algorithm a small answer waits for the client's
//! delayed acknowledgement, some 40 ms. A failing accept never ends the server: out of file
//! descriptors, it waits a moment and goes on. A client that stops halfway, or takes nothing, loses its
//! connection.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::SERVER;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use hyper::body::{Body as _, Incoming};
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

use super::delays::{Delays, RequestKind};
use super::faults::{Injector, Link};
use super::model::Pacer;
use super::objects::refuse;
use super::patience::Patient;
use super::proxy::Forwarder;
use super::refusal::Refusal;
use super::socket::Socket;

/// What the server calls itself, where it has no more to say of itself.
const NAME: &str = concat!("s3mq/", env!("CARGO_PKG_VERSION"));

/// How long requests in flight may take once the server is told to stop.
const GRACE: Duration = Duration::from_secs(1);

/// The pause after a failed accept. The reason (no descriptors left) lasts longer than a moment.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The most that a request's line and headers have. S3 allows keys of 1 KiB and 2 KiB of an object's own headers.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// The longest key, as in S3.
const MAX_KEY_BYTES: usize = 1024;

/// Who does the work of a request.
#[derive(Clone)]
pub(super) enum Worker {
    /// This server's own store.
    Own(S3Service),
    /// Another store.
    Other(Arc<Forwarder>),
}

/// What is done with a request, the same on all connections.
pub(super) struct Work {
    pub(super) worker: Worker,
    pub(super) delays: Delays,
    /// Whose times requests take.
    pub(super) model: Option<Pacer>,
    pub(super) faults: Option<Arc<Injector>>,
    /// The longest pause in what a client sends or takes.
    pub(super) patience: Duration,
}

/// Serves until the sender of `stopped` is dropped or used. No connection outlives the returned
/// future, not even where that is dropped halfway.
pub(super) async fn serve(listener: TcpListener, work: Work, mut stopped: oneshot::Receiver<()>) {
    let name = Name::of(&work);
    let work = Arc::new(work);
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let connection = graceful.watch(connect(stream, work.clone(), name.clone()));
                    connections.spawn(async move {
                        // A client that went away is its own affair.
                        if let Err(error) = connection.await {
                            tracing::trace!("connection ended: {error}");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
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

fn connect(stream: TcpStream, work: Arc<Work>, name: Name) -> http1::Connection<TokioIo<Socket>, Served> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::warn!("cannot set TCP_NODELAY, small requests will be slow: {error}");
    }
    let link = work.faults.as_ref().map(|_| Arc::<Link>::default());
    let socket = Socket::new(stream, work.patience, link.clone());
    http1::Builder::new()
        .max_header_size(MAX_HEADER_BYTES)
        .timer(TokioTimer::new())
        .header_read_timeout(work.patience)
        .serve_connection(TokioIo::new(socket), Served { work, name, link })
}

/// What the server calls itself, with what is done on purpose: `s3mq/0.1.0 (modelled: s3-express)`, so that a client
/// that knows nothing else knows what it measures. A proxy adds that to the name of the store behind it.
#[derive(Clone)]
struct Name {
    own: HeaderValue,
    /// Empty where nothing is done on purpose.
    on_purpose: Arc<str>,
}

impl Name {
    fn of(work: &Work) -> Self {
        let delays = work.delays.to_string();
        let notes = [
            work.model.as_ref().map(|model| format!("modelled: {}", model.name())),
            (!delays.is_empty()).then(|| format!("delayed on purpose: {delays}")),
            work.faults.as_ref().map(|_| "faults on purpose".to_owned()),
        ];
        let notes: Vec<_> = notes.into_iter().flatten().collect();
        let on_purpose = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
        let plain = HeaderValue::from_static(NAME);
        let own = HeaderValue::try_from(format!("{NAME}{on_purpose}")).unwrap_or(plain);
        Self { own, on_purpose: on_purpose.into() }
    }

    fn put_on(self, headers: &mut HeaderMap) {
        let name = match headers.get(SERVER) {
            None => self.own,
            Some(_) if self.on_purpose.is_empty() => return,
            Some(other) => {
                let name = [other.as_bytes(), self.on_purpose.as_bytes()].concat();
                HeaderValue::try_from(name).unwrap_or(self.own)
            }
        };
        headers.insert(SERVER, name);
    }
}

/// The service as one connection has it.
#[derive(Clone)]
struct Served {
    work: Arc<Work>,
    name: Name,
    /// Where there are faults.
    link: Option<Arc<Link>>,
}

impl Service<Request<Incoming>> for Served {
    type Response = HttpResponse;
    type Error = HttpError;
    type Future = BoxFuture<'static, Result<HttpResponse, HttpError>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let Self { work, name, link } = self.clone();
        Box::pin(async move {
            let request = request.map(|body| match body.is_end_stream() {
                true => Body::empty(),
                false => Body::http_body(Patient::new(body, work.patience)),
            });
            let mut response = match (&work.faults, link) {
                (Some(faults), Some(link)) => {
                    faults.around(request, link, |request| work.answer(request)).await?
                }
                _ => work.answer(request).await?,
            };
            name.put_on(response.headers_mut());
            Ok(response)
        })
    }
}

/// How long the key is that a path names, which is below a bucket.
fn key_bytes(uri: &Uri) -> usize {
    let below_the_bucket = uri.path().splitn(3, '/').nth(2).unwrap_or_default();
    percent_decode_str(below_the_bucket).count()
}

/// As S3 says it. The protocol crate would log what it thinks of it.
async fn refuse_the_key(request: Request<Body>) -> HttpResponse {
    let method = request.method().clone();
    let length = key_bytes(request.uri());
    tracing::warn!("refused a {method} of a key of {length} bytes; a key has at most {MAX_KEY_BYTES}");
    let too_long = Refusal {
        status: StatusCode::BAD_REQUEST,
        code: "KeyTooLongError".to_owned(),
        message: "A key has at most 1024 bytes.",
    };
    refuse(StreamingBlob::from(request.into_body()), too_long).await.answer(&method)
}

impl Work {
    async fn answer(&self, request: Request<Body>) -> Result<HttpResponse, HttpError> {
        let (method, uri) = (request.method(), request.uri());
        let kind = RequestKind::of(method.as_str(), uri.path(), uri.query());
        let work = |request: Request<Body>| async {
            match &self.worker {
                Worker::Own(_) if key_bytes(request.uri()) > MAX_KEY_BYTES => {
                    Ok(refuse_the_key(request).await)
                }
                Worker::Own(s3) => s3.call(request).await,
                Worker::Other(forwarder) => Ok(forwarder.forward(request).await),
            }
        };
        let answer = async {
            match &self.model {
                Some(model) => model.around(request, work).await,
                None => work(request).await,
            }
        };
        self.delays.around(kind, answer).await
    }
}
