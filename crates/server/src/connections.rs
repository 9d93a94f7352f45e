//! Connections: accepting them, serving HTTP/1.1 on each, and ending all of them in time. A failing accept never ends
//! the server. An idle client loses its connection.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::SERVER;
use http::{HeaderMap, HeaderValue, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use s3s::service::S3Service;
use s3s::{Body, HttpError, HttpResponse};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::faults::{Injector, Link};
use super::idle_timeout;
use super::model::Pacer;
use super::proxy::Forwarder;
use super::socket::Socket;

/// The server's name.
const NAME: &str = concat!("s3mq/", env!("CARGO_PKG_VERSION"));

/// How long requests in flight may take once the server is to stop.
const GRACE: Duration = Duration::from_secs(1);

/// The pause after a failed accept; its reason (no descriptors left) lasts.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Of a request's line and headers. S3 allows keys of 1 KiB and 2 KiB of an object's own headers.
const MAX_HEADER_BYTES: usize = 64 << 10;

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
    pub(super) model: Option<Pacer>,
    pub(super) faults: Option<Arc<Injector>>,
    /// How long a client may send or take nothing.
    pub(super) idle_timeout: Duration,
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
        .serve_connection(TokioIo::new(socket), Served { work, name, link })
}

/// The server's name with what is injected, as in `s3mq/0.1.0 (modelled: s3-express)`. A proxy adds that to the name of
/// the store behind it.
#[derive(Clone)]
struct Name {
    own: HeaderValue,
    /// Empty where nothing is injected.
    injected: Arc<str>,
}

impl Name {
    fn of(work: &Work) -> Self {
        let model = work.model.as_ref().map(|model| format!("modelled: {}", model.name()));
        let faults = work.faults.as_ref().map(|_| "faults injected".to_owned());
        let notes: Vec<_> = model.into_iter().chain(faults).collect();
        let injected = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
        let own = HeaderValue::try_from(format!("{NAME}{injected}"));
        Self { own: own.unwrap_or(HeaderValue::from_static(NAME)), injected: injected.into() }
    }

    fn put_on(self, headers: &mut HeaderMap) {
        let name = match headers.get(SERVER) {
            None => self.own,
            Some(other) => {
                let name = [other.as_bytes(), self.injected.as_bytes()].concat();
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
            let request = request.map(|body| idle_timeout::limited(body, work.idle_timeout));
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

impl Work {
    async fn answer(&self, request: Request<Body>) -> Result<HttpResponse, HttpError> {
        let work = |request: Request<Body>| async {
            match &self.worker {
                Worker::Own(s3) => s3.call(request).await,
                Worker::Other(forwarder) => Ok(forwarder.forward(request).await),
            }
        };
        match &self.model {
            Some(model) => model.around(request, work).await,
            None => work(request).await,
        }
    }
}
