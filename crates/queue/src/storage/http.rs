//! The HTTP beneath both clients: straight to the endpoint, without the environment's proxies, and with the same
//! certificates believed. The SDK's own client, which `just layers` compares, can't skip the check of a certificate:
//! except with the system's authorities, the SDK sends through `object_store`'s kind of client ([`Borrowed`]).

use std::sync::Arc;

use aws_sdk_s3::primitives::SdkBody;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::{Builder, Connector};
use aws_smithy_runtime_api::client::http::{
    HttpClient as SdkHttpClient, HttpConnector as SdkHttpConnector, HttpConnectorFuture,
    HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::shared::IntoShared;
use bytes::Bytes;
use object_store::client::{HttpClient, HttpErrorKind};
use rand::seq::SliceRandom;
use reqwest::Certificate;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::config::Config;
use super::error::StorageError;

/// Which certificates are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those signed by an authority that the system knows.
    #[default]
    System,
    /// Also those signed by these authorities: the bytes of a PEM file.
    Also(Arc<[u8]>),
    /// All of them: whoever answers is believed to be the store.
    Anyone,
}

impl Trust {
    /// The authorities beside the system's, or what is wrong with the file.
    pub(super) fn authorities(&self) -> Result<Vec<Certificate>, String> {
        let Self::Also(pem) = self else {
            return Ok(Vec::new());
        };
        match Certificate::from_pem_bundle(pem) {
            Ok(found) if found.is_empty() => Err("it has no certificate in PEM form".to_owned()),
            Ok(found) => Ok(found),
            Err(error) => Err(super::one_line(&error)),
        }
    }
}

/// The client of the queue's requests.
pub(super) fn client(config: &Config) -> Result<HttpClient, StorageError> {
    let builder = reqwest::Client::builder()
        .user_agent(concat!("s3mq/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(config.connect_timeout())
        .timeout(config.request_timeout)
        .http1_only()
        // The length of an object is that of its body.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .no_proxy()
        // A signed request is for the endpoint that was given, and no other host gets to see it.
        .redirect(reqwest::redirect::Policy::none())
        // S3's name has many addresses.
        .dns_resolver(Arc::new(ShuffledAddresses))
        .danger_accept_invalid_certs(config.trust == Trust::Anyone);
    // They were read once before, when the configuration was made.
    let authorities = config.trust.authorities().unwrap_or_default();
    let builder = authorities.into_iter().fold(builder, reqwest::ClientBuilder::add_root_certificate);
    let client = builder.build().map_err(|error| StorageError::Other(super::one_line(&error)))?;
    Ok(HttpClient::new(client))
}

struct ShuffledAddresses;

impl Resolve for ShuffledAddresses {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let mut addresses: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            addresses.shuffle(&mut rand::rng());
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

pub(super) fn for_sdk(config: &Config) -> Result<SharedHttpClient, StorageError> {
    match config.trust {
        Trust::System => Ok(direct()),
        Trust::Also(_) | Trust::Anyone => Ok(Borrowed(client(config)?).into_shared()),
    }
}

/// The SDK's own client, less the proxies.
fn direct() -> SharedHttpClient {
    Builder::new().build_with_connector_fn(|settings, components| {
        let mut connector = Connector::builder().tls_provider(Provider::Rustls(CryptoMode::AwsLc));
        connector.set_connector_settings(settings.cloned());
        connector.set_sleep_impl(components.and_then(RuntimeComponents::sleep_impl));
        connector.set_proxy_config(Some(ProxyConfig::disabled()));
        connector.build()
    })
}

/// An HTTP client of `object_store`'s kind, for the SDK.
#[derive(Clone, Debug)]
struct Borrowed(HttpClient);

impl SdkHttpClient for Borrowed {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl SdkHttpConnector for Borrowed {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let client = self.0.clone();
        HttpConnectorFuture::new(async move {
            let user = |error: &dyn std::fmt::Display| ConnectorError::user(error.to_string().into());
            let (parts, body) = request.try_into_http1x().map_err(|error| user(&error))?.into_parts();
            let body = body.bytes().ok_or_else(|| user(&"a body that is not in memory"))?;
            let request = http::Request::from_parts(parts, Bytes::copy_from_slice(body).into());
            let answer = client.execute(request).await.map_err(|error| match error.kind() {
                HttpErrorKind::Timeout => ConnectorError::timeout(error.into()),
                _ => ConnectorError::io(error.into()),
            })?;
            let (parts, body) = answer.into_parts();
            let body = body.bytes().await.map_err(|error| ConnectorError::io(error.into()))?;
            HttpResponse::try_from(http::Response::from_parts(parts, SdkBody::from(body)))
                .map_err(|error| ConnectorError::other(error.into(), None))
        })
    }
}
