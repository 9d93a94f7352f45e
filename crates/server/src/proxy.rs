//! Another store behind this server's address, so that faults can be put in front of it.
//!
//! Requests go on as they came: method, path, query, headers and body, which is streamed. `Host` is left as
//! the client wrote it, since it signed it; only what HTTP says of one connection alone is taken off. The
//! proxy knows no key, checks no signature and holds nothing. A store that takes no more of a request and
//! gives no answer, or stops amid one, is not waited for without end.

use std::error::Error;
use std::pin::{Pin, pin};
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;

use http::header::{
    CONNECTION, HeaderMap, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, StatusCode, Uri, Version};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use s3s::{Body, HttpResponse, StdError};
use tokio::time::{Instant, timeout_at};

use super::patience::Patient;
use super::refusal::Refusal;

/// Where a proxy sends its requests: `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream(Authority);

/// Why an address is none of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be http://host:port, without a path and without a user; before a store that speaks https alone, start \
     something that takes the TLS off, such as stunnel as a client, and give its address"
)]
pub struct UpstreamError;

impl FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.parse::<Uri>().map_err(|_| UpstreamError)?.into_parts();
        let has_path = parts.path_and_query.is_some_and(|path| path != PathAndQuery::from_static("/"));
        let is_plain = |authority: &Authority| {
            let is_host = authority.as_str() == authority.host();
            (is_host || authority.port_u16().is_some()) && !authority.as_str().contains('@')
        };
        match (parts.scheme, parts.authority) {
            (Some(scheme), Some(authority))
                if scheme == Scheme::HTTP && !has_path && is_plain(&authority) =>
            {
                Ok(Self(authority))
            }
            _ => Err(UpstreamError),
        }
    }
}

impl std::fmt::Display for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}", self.0)
    }
}

/// How long a connection to the upstream may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Headers of one connection, not of the request. `Keep-Alive` and `Proxy-Connection` have no constant.
const OF_A_CONNECTION: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Sends requests on.
pub(super) struct Forwarder {
    upstream: Upstream,
    client: Client<HttpConnector, Body>,
    /// How long the upstream may take no more of a request and give no more of an answer.
    patience: Duration,
}

impl Forwarder {
    pub(super) fn new(upstream: Upstream, patience: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        Self { upstream, client: Client::builder(TokioExecutor::new()).build(connector), patience }
    }

    /// The upstream's answer; in its place a 502 where there is none, a 504 where none came in time.
    pub(super) async fn forward(&self, mut request: Request<Body>) -> HttpResponse {
        let method = request.method().clone();
        let path = request.uri().path_and_query().cloned();
        let uri = Uri::builder()
            .scheme(Scheme::HTTP)
            .authority(self.upstream.0.clone())
            .path_and_query(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        let sent = match uri.build() {
            Ok(uri) => {
                *request.uri_mut() = uri;
                *request.version_mut() = Version::HTTP_11;
                take_off_the_connections(request.headers_mut());
                self.send(request).await
            }
            Err(error) => Err(NoAnswer::Failed(error.to_string())),
        };
        match sent {
            Ok(mut answer) => {
                take_off_the_connections(answer.headers_mut());
                *answer.version_mut() = Version::HTTP_11;
                answer.map(|body| Body::http_body(Patient::new(body, self.patience)))
            }
            Err(problem) => {
                tracing::warn!("no answer from {} to a {method}: {problem}", self.upstream);
                problem.in_s3s_words().answer(&method)
            }
        }
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, NoAnswer> {
        let moved = Arc::new(Mutex::new(Instant::now()));
        let request = match request.body().is_end_stream() {
            true => request,
            false => request.map(|body| Body::http_body(Noted { body, moved: moved.clone() })),
        };
        let mut answer = pin!(self.client.request(request));
        loop {
            let end = *moved.lock() + self.patience;
            match timeout_at(end, &mut answer).await {
                Ok(answer) => return answer.map_err(|error| NoAnswer::Failed(chain(&error))),
                // More of the body went on meanwhile.
                Err(_) if *moved.lock() + self.patience > end => {}
                Err(_) => return Err(NoAnswer::TooLate(self.patience)),
            }
        }
    }
}

/// Why an upstream's answer is missing.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error("{0}")]
    Failed(String),
    #[error("nothing moved for {} s", .0.as_secs_f64())]
    TooLate(Duration),
}

impl NoAnswer {
    fn in_s3s_words(&self) -> Refusal {
        let (status, code, message) = match self {
            Self::Failed(_) => {
                (StatusCode::BAD_GATEWAY, "BadGateway", "The store behind this proxy gave no answer.")
            }
            Self::TooLate(_) => (
                StatusCode::GATEWAY_TIMEOUT,
                "GatewayTimeout",
                "The store behind this proxy gave no answer in time.",
            ),
        };
        Refusal { status, code: code.to_owned(), message }
    }
}

/// A request's body, of which is noted when a piece of it went on.
struct Noted {
    body: Body,
    moved: Arc<Mutex<Instant>>,
}

impl hyper::body::Body for Noted {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_ready() {
            *self.moved.lock() = Instant::now();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Takes off what holds for one connection only, by name or because `Connection` names it.
fn take_off_the_connections(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&OF_A_CONNECTION) {
        headers.remove(name);
    }
}

/// An error with what is behind it: hyper's own words alone say little.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text.push_str(&format!(": {source}"));
        cause = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_a_plain_http_address() {
        for right in ["http://127.0.0.1:9000", "http://localhost:9000/", "http://[::1]:9000", "http://store"]
        {
            let upstream: Upstream = right.parse().unwrap();
            assert_eq!(upstream.to_string(), right.trim_end_matches('/'));
        }
        for wrong in [
            "",
            "127.0.0.1:9000",
            "https://127.0.0.1:9000",
            "http://",
            "http://store/path",
            "http://store/?a=b",
            "http://user@store",
            "ftp://store",
            "http://store:port",
        ] {
            assert!(wrong.parse::<Upstream>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_holds_for_a_connection_goes_no_further() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Mine"),
            ("keep-alive", "timeout=5"),
            ("x-mine", "1"),
            ("transfer-encoding", "chunked"),
            ("host", "store"),
            ("if-none-match", "*"),
        ] {
            headers.insert(HeaderName::from_static(name), value.parse().unwrap());
        }
        take_off_the_connections(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["host", "if-none-match"]);
    }
}
