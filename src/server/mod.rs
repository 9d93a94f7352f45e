//! An embedded S3 server: enough of S3 to carry a Delta Lake table, on a loopback port.
//!
//! It exists so that a measurement needs nothing but this binary, and so that the store under
//! it is known to the last detail. Clients reach it as they reach any other store: over HTTP, with
//! signed requests, through the same libraries. The protocol (routing, XML, signatures) is the
//! `s3s` crate's; the store beneath is our own.
//!
//! # What it guarantees
//!
//! * **Conditions are atomic.** `If-None-Match` and `If-Match` of a PUT, a completed multipart
//!   upload, a copy or a DELETE are checked and acted on under one lock per key. Of any number of
//!   clients that create the same key at once, one succeeds and the others get a 412.
//! * **Read after write, list after write.** An acknowledged write is seen by every later request.
//! * **Whole objects.** A reader gets one write's bytes, never a mix of two.
//! * **Every request is signed.** Anonymous requests are refused; unsigned payloads in a signed
//!   request are accepted, as S3 does.
//! * With [`Config::data_dir`], **objects outlive the process**: whatever was acknowledged is there
//!   after a `kill -9`. Nothing is fsynced, so a power cut may lose the last seconds of writes;
//!   a store whose every PUT waits for the disk is another measurement.
//!
//! # What it does not do
//!
//! No versions, access policies, encryption, tags or lifecycle: those answer `NotImplemented` or,
//! where S3 lets a store ignore a header, are ignored. Checksums that come with a body are not
//! verified (a signed payload hash is). An upload is held in memory until it is complete, in both
//! stores, and the parts of a multipart upload do not outlive the process.

mod blob;
mod buckets;
mod connections;
mod credentials;
mod delays;
mod error;
mod files;
mod listing;
mod memory;
mod multipart;
mod objects;
mod service;
mod store;
#[cfg(test)]
mod tests;

pub use credentials::Credentials;
pub use delays::{Delays, RequestKind};
pub use error::ServerError;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use store::{Store, StoreError};

/// What a server listens on and where it keeps its objects.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address to listen on; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Directory of the objects, created where absent; `None` keeps them in memory.
    pub data_dir: Option<PathBuf>,
    /// Buckets that exist once the server has started.
    pub buckets: Vec<String>,
    /// The one key pair the server accepts; `None` draws one at random.
    pub credentials: Option<Credentials>,
    /// How much longer requests take than they have to.
    pub delays: Delays,
}

/// A running server. Dropping it stops it too, without waiting for that.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    credentials: Credentials,
    stop: oneshot::Sender<()>,
    accepting: JoinHandle<()>,
}

impl Server {
    /// Starts a server that is bound and accepting when this returns.
    pub async fn start(config: Config) -> Result<Self, ServerError> {
        if let Some(name) = config.buckets.iter().find(|name| !s3s::path::check_bucket_name(name)) {
            return Err(ServerError::InvalidBucket { name: name.clone() });
        }
        let listener = bind(config.listen).await?;
        let address =
            listener.local_addr().map_err(|source| ServerError::Listen { address: config.listen, source })?;
        // Off the async threads: every file of a data directory is looked into.
        let store = tokio::task::spawn_blocking(move || open(config.data_dir, &config.buckets))
            .await
            .map_err(|panic| ServerError::Start { reason: panic.to_string() })??;

        let credentials = config.credentials.unwrap_or_else(Credentials::random);
        let service = service::build(store, credentials.clone());
        let (stop, stopped) = oneshot::channel();
        let accepting = tokio::spawn(connections::serve(listener, service, config.delays, stopped));
        Ok(Self { address, credentials, stop, accepting })
    }

    /// The address it listens on, with the port it got.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The URL for a client on this host.
    pub fn endpoint(&self) -> String {
        // Listening on every address is not an address one can connect to everywhere.
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        format!("http://{}", SocketAddr::new(ip, self.address.port()))
    }

    /// The key pair it accepts.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Stops accepting, lets requests in flight finish for a second, and ends.
    pub async fn shutdown(self) {
        drop(self.stop);
        if let Err(panic) = self.accepting.await {
            tracing::error!("the embedded S3 server ended abnormally: {panic}");
        }
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, ServerError> {
    TcpListener::bind(address).await.map_err(|source| match source.kind() {
        std::io::ErrorKind::AddrInUse => ServerError::AddressInUse { address },
        _ => ServerError::Listen { address, source },
    })
}

fn open(data_dir: Option<PathBuf>, buckets: &[String]) -> Result<Store, ServerError> {
    let store = match data_dir {
        None => Store::new(memory::Memory),
        Some(path) => {
            let (files, found) = files::Files::open(path)?;
            Store::with_objects(files, found)
        }
    };
    for name in buckets {
        match store.create_bucket(name) {
            Ok(()) | Err(StoreError::BucketExists) => {}
            Err(source) => {
                return Err(ServerError::CreateBucket { name: name.clone(), reason: source.to_string() });
            }
        }
    }
    Ok(store)
}
