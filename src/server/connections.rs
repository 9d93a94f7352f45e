//! Connections: accepting them, serving HTTP/1.1 on each, and ending all of them in time.
//!
//! Every socket gets `TCP_NODELAY`: with Nagle's algorithm a small answer waits for the client's
//! delayed acknowledgement, some 40 ms. A failing accept never ends the server: out of file
//! descriptors, it waits a moment and goes on.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::SERVER;
use http::{HeaderValue, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use s3s::service::S3Service;
use s3s::{Body, HttpError, HttpResponse};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::delays::{Delays, RequestKind};
use super::faults::{Injector, Link};
use super::proxy::Forwarder;
use super::socket::Socket;

const NAME: HeaderValue = HeaderValue::from_static(concat!("s3mq/", env!("CARGO_PKG_VERSION")));

/// How long requests in flight may take once the server is told to stop.
const GRACE: Duration = Duration::from_secs(1);

/// The pause after a failed accept. The reason (no descriptors left) lasts longer than a moment.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Who does the work of a request.
#[derive(Clone)]
pub(super) enum Worker {
    /// This server's own store.
    Own(S3Service),
    /// Another store.
    Other(Arc<Forwarder>),
}

/// Serves until the sender of `stopped` is dropped or used. No connection outlives the returned
/// future, not even where that is dropped halfway.
pub(super) async fn serve(
    listener: TcpListener,
    worker: Worker,
    delays: Delays,
    faults: Option<Arc<Injector>>,
    mut stopped: oneshot::Receiver<()>,
) {
    let service = Served { worker, delays: Arc::new(delays), faults: None };
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let connection = graceful.watch(connect(stream, service.clone(), faults.clone()));
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

fn connect(
    stream: TcpStream,
    service: Served,
    injector: Option<Arc<Injector>>,
) -> http1::Connection<TokioIo<Socket>, Served> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::warn!("cannot set TCP_NODELAY, small requests will be slow: {error}");
    }
    let faults = injector.map(|injector| Faulty { injector, link: Arc::default() });
    let socket = Socket::new(stream, faults.as_ref().map(|faults| faults.link.clone()));
    http1::Builder::new().serve_connection(TokioIo::new(socket), Served { faults, ..service })
}

/// The service as one connection has it: with the delays and faults asked for, and our name in its answers.
#[derive(Clone)]
struct Served {
    worker: Worker,
    delays: Arc<Delays>,
    faults: Option<Faulty>,
}

/// The faults of one connection.
#[derive(Clone)]
struct Faulty {
    injector: Arc<Injector>,
    link: Arc<Link>,
}

impl Service<Request<Incoming>> for Served {
    type Response = HttpResponse;
    type Error = HttpError;
    type Future = BoxFuture<'static, Result<HttpResponse, HttpError>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let served = self.clone();
        Box::pin(async move {
            let request = request.map(Body::from);
            let mut response = match &served.faults {
                None => served.work(request).await?,
                Some(Faulty { injector, link }) => {
                    injector.around(request, link.clone(), |request| served.work(request)).await?
                }
            };
            response.headers_mut().entry(SERVER).or_insert(NAME);
            Ok(response)
        })
    }
}

impl Served {
    async fn work(&self, request: Request<Body>) -> Result<HttpResponse, HttpError> {
        let (method, uri) = (request.method(), request.uri());
        let kind = RequestKind::of(method.as_str(), uri.path(), uri.query());
        let work = async {
            match &self.worker {
                Worker::Own(s3) => s3.call(request).await,
                Worker::Other(forwarder) => Ok(forwarder.forward(request).await),
            }
        };
        self.delays.around(kind, work).await
    }
}
