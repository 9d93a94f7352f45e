//! A proxy, so that faults can be put in front of another store. Requests go on as they came, streamed, with the `Host`
//! that the client signed; only the headers of one connection are removed. An idle store is given up.

use std::error::Error;
use std::iter::successors;
use std::pin::pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    CONNECTION, HeaderMap, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, StatusCode, Uri, Version};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use s3s::{Body, HttpResponse};
use tokio::time::{Instant, timeout_at};
use url::{Position, Url};

use super::idle_timeout;
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
        let url = Url::parse(text).map_err(|_| UpstreamError)?;
        let is_plain = url.scheme() == "http" && url[Position::BeforePath..].trim_matches('/').is_empty();
        let has_user = url.authority().contains('@');
        let authority = url.authority().parse().map_err(|_| UpstreamError)?;
        if is_plain && !has_user { Ok(Self(authority)) } else { Err(UpstreamError) }
    }
}

impl std::fmt::Display for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}", self.0)
    }
}

/// How long a connection to the upstream may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Headers of one connection (RFC 9110, 7.6.1). `Keep-Alive` and `Proxy-Connection` have no constant.
const HOP_BY_HOP: [HeaderName; 9] = [
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

/// What is answered in place of the store, and the reason.
type NoAnswer = ((StatusCode, &'static str, &'static str), String);

const FAILED: (StatusCode, &str, &str) =
    (StatusCode::BAD_GATEWAY, "BadGateway", "The store behind this proxy gave no answer.");
const IDLE: (StatusCode, &str, &str) =
    (StatusCode::GATEWAY_TIMEOUT, "GatewayTimeout", "The store behind this proxy gave no answer in time.");

/// Sends requests on.
pub(super) struct Forwarder {
    upstream: Upstream,
    client: Client<HttpConnector, Body>,
    /// How long the upstream may take no more of a request and give no more of an answer.
    idle_timeout: Duration,
}

impl Forwarder {
    pub(super) fn new(upstream: Upstream, idle_timeout: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        Self { upstream, client: Client::builder(TokioExecutor::new()).build(connector), idle_timeout }
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
                remove_hop_by_hop(request.headers_mut());
                self.send(request).await
            }
            Err(error) => Err((FAILED, error.to_string())),
        };
        match sent {
            Ok(mut answer) => {
                remove_hop_by_hop(answer.headers_mut());
                *answer.version_mut() = Version::HTTP_11;
                answer.map(|body| idle_timeout::limited(body, self.idle_timeout))
            }
            Err(((status, code, message), problem)) => {
                tracing::warn!("no answer from {} to a {method}: {problem}", self.upstream);
                Refusal { status, code: code.to_owned(), message }.answer(&method)
            }
        }
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, NoAnswer> {
        let moved = Arc::new(Mutex::new(Instant::now()));
        let request = match request.body().is_end_stream() {
            true => request,
            false => {
                let moved = moved.clone();
                let note = move |frame| {
                    *moved.lock() = Instant::now();
                    frame
                };
                request.map(|body| Body::http_body_unsync(body.map_frame(note)))
            }
        };
        let mut answer = pin!(self.client.request(request));
        loop {
            let end = *moved.lock() + self.idle_timeout;
            match timeout_at(end, &mut answer).await {
                Ok(answer) => return answer.map_err(|error| (FAILED, chain(&error))),
                // More of the body went on meanwhile.
                Err(_) if *moved.lock() + self.idle_timeout > end => {}
                Err(_) => {
                    return Err((IDLE, format!("nothing moved for {} s", self.idle_timeout.as_secs_f64())));
                }
            }
        }
    }
}

/// Removes the headers of one connection, and those that `Connection` names.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// An error with what is behind it: hyper's own words alone say little.
fn chain(error: &dyn Error) -> String {
    let errors = successors(Some(error), |error| (*error).source());
    errors.map(ToString::to_string).collect::<Vec<_>>().join(": ")
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
        remove_hop_by_hop(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["host", "if-none-match"]);
    }
}
