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

const NAME: HeaderValue = HeaderValue::from_static(concat!("s3mq/", env!("CARGO_PKG_VERSION")));

/// How long requests in flight may take once the server is told to stop.
const GRACE: Duration = Duration::from_secs(1);

/// The pause after a failed accept. The reason (no descriptors left) lasts longer than a moment.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until the sender of `stopped` is dropped or used. No connection outlives the returned
/// future, not even where that is dropped halfway.
pub(super) async fn serve(
    listener: TcpListener,
    s3: S3Service,
    delays: Delays,
    mut stopped: oneshot::Receiver<()>,
) {
    let service = Served { s3, delays: Arc::new(delays) };
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let connection = graceful.watch(connect(stream, service.clone()));
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

fn connect(stream: TcpStream, service: Served) -> http1::Connection<TokioIo<TcpStream>, Served> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::warn!("cannot set TCP_NODELAY, small requests will be slow: {error}");
    }
    http1::Builder::new().serve_connection(TokioIo::new(stream), service)
}

/// The service, with the delays asked for and our name in its answers.
#[derive(Clone)]
struct Served {
    s3: S3Service,
    delays: Arc<Delays>,
}

impl Service<Request<Incoming>> for Served {
    type Response = HttpResponse;
    type Error = HttpError;
    type Future = BoxFuture<'static, Result<HttpResponse, HttpError>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let Self { s3, delays } = self.clone();
        Box::pin(async move {
            let (method, uri) = (request.method(), request.uri());
            let kind = RequestKind::of(method.as_str(), uri.path(), uri.query());
            let mut response = delays.around(kind, s3.call(request.map(Body::from))).await?;
            response.headers_mut().insert(SERVER, NAME);
            Ok(response)
        })
    }
}
