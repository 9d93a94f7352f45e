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
//! * **Nobody fills the memory or holds the server for ever.** Objects, headers and XML have a most, and so has all
//!   that is held in memory ([`Limits`]); a connection on which nothing moves is ended.
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
mod budget;
mod connections;
mod credentials;
mod delays;
mod error;
mod faults;
mod files;
mod listing;
mod memory;
mod model;
mod multipart;
mod objects;
mod patience;
mod proxy;
mod refusal;
mod service;
mod socket;
mod store;
#[cfg(test)]
mod tests;
mod toml_file;

pub use credentials::Credentials;
pub use delays::{Delays, RequestKind};
pub use error::ServerError;
pub use faults::{FaultCount, Faults, FaultsError};
pub use model::{Model, ModelError};
pub use proxy::{Upstream, UpstreamError};
pub use toml_file::read_toml;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use budget::Budget;
use connections::{Work, Worker};
use faults::Injector;
use model::Pacer;
use proxy::Forwarder;
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
    /// Whose times requests take; `None` is this server's own.
    pub model: Option<Model>,
    /// What goes wrong on purpose; `None` is nothing.
    pub faults: Option<Faults>,
    /// What a client may ask of it.
    pub limits: Limits,
}

/// What a client may ask of a server, so that none can fill its memory or hold it for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most that an object may have, and all parts of an upload together, in bytes. More is refused as soon
    /// as it is known, before it is held.
    pub max_object_bytes: u64,
    /// The most that is held in memory: objects where there is no [`Config::data_dir`], bodies that are being sent, parts
    /// of unfinished uploads, and the index, in bytes. A write that there is no room for is answered 400
    /// `InsufficientStorage`.
    pub max_memory_bytes: u64,
    /// The longest pause within a request: from one piece of its headers, its body or its answer to the next, and
    /// between two requests of a connection. Then the connection ends.
    pub patience: Duration,
}

/// The machine's memory in bytes, where the system says.
pub fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

impl Default for Limits {
    /// Objects of a gibibyte, three quarters of the machine's memory, and two minutes: longer than clients keep
    /// connections that they don't use.
    fn default() -> Self {
        let memory = memory_bytes().unwrap_or(u64::MAX);
        Self {
            max_object_bytes: 1 << 30,
            max_memory_bytes: memory - memory / 4,
            patience: Duration::from_secs(120),
        }
    }
}

impl Config {
    /// On a free loopback port, in memory, with one bucket; keys are drawn, and nothing is delayed or fails.
    pub fn in_memory(bucket: &str) -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            data_dir: None,
            buckets: vec![bucket.to_owned()],
            credentials: None,
            delays: Delays::default(),
            model: None,
            faults: None,
            limits: Limits::default(),
        }
    }
}

/// A running server. Dropping it stops it too, without waiting for that.
#[derive(Debug)]
pub struct Server {
    credentials: Credentials,
    running: Running,
}

impl Server {
    /// Starts a server that is bound and accepting when this returns.
    pub async fn start(config: Config) -> Result<Self, ServerError> {
        if let Some(name) = config.buckets.iter().find(|name| !s3s::path::check_bucket_name(name)) {
            return Err(ServerError::InvalidBucket { name: name.clone() });
        }
        let listener = bind(config.listen).await?;
        // Off the async threads: every file of a data directory is looked into.
        let budget = Budget::new(config.limits.max_memory_bytes);
        let store = tokio::task::spawn_blocking(move || open(config.data_dir, &config.buckets, budget))
            .await
            .map_err(|panic| ServerError::Start { reason: panic.to_string() })??;
        let credentials = config.credentials.unwrap_or_else(Credentials::random);
        let worker = Worker::Own(service::build(store, credentials.clone(), config.limits.max_object_bytes));
        let work = Work {
            worker,
            delays: config.delays,
            model: config.model.map(Pacer::new),
            faults: config.faults.map(Injector::new).map(Arc::new),
            patience: config.limits.patience,
        };
        Ok(Self { credentials, running: Running::start(listener, work)? })
    }

    /// The address it listens on, with the port it got.
    pub fn local_addr(&self) -> SocketAddr {
        self.running.address
    }

    /// The URL for a client on this host.
    pub fn endpoint(&self) -> String {
        self.running.endpoint()
    }

    /// The key pair it accepts.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// How often each fault rule's turn came so far, in the order of their file.
    pub fn fault_counts(&self) -> Vec<FaultCount> {
        self.running.fault_counts()
    }

    /// Stops accepting, lets requests in flight finish for a second, and ends.
    pub async fn shutdown(self) {
        self.running.shutdown().await;
    }
}

/// What a proxy listens on and what it is in front of.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// Address to listen on; port 0 takes any free one.
    pub listen: SocketAddr,
    /// The store behind it.
    pub upstream: Upstream,
    /// How much longer requests take than they have to.
    pub delays: Delays,
    /// What goes wrong on purpose; `None` is nothing.
    pub faults: Option<Faults>,
    /// The longest pause within a request, as [`Limits::patience`]: of the client, whose connection ends then, and of
    /// the store, in whose place a 504 is answered, or whose answer ends halfway.
    pub patience: Duration,
}

impl ProxyConfig {
    /// On a free loopback port, without delays and faults, and as patient as a server.
    pub fn before(upstream: Upstream) -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            upstream,
            delays: Delays::default(),
            faults: None,
            patience: Limits::default().patience,
        }
    }
}

/// A running proxy: another store with this server's delays and faults, whose buckets and keys it has.
/// Dropping it stops it too, without waiting for that.
#[derive(Debug)]
pub struct Proxy(Running);

impl Proxy {
    /// Starts a proxy that is bound and accepting when this returns. It doesn't try the store out.
    pub async fn start(config: ProxyConfig) -> Result<Self, ServerError> {
        let listener = bind(config.listen).await?;
        let worker = Worker::Other(Arc::new(Forwarder::new(config.upstream, config.patience)));
        let work = Work {
            worker,
            delays: config.delays,
            model: None,
            faults: config.faults.map(Injector::new).map(Arc::new),
            patience: config.patience,
        };
        Ok(Self(Running::start(listener, work)?))
    }

    /// The URL for a client on this host.
    pub fn endpoint(&self) -> String {
        self.0.endpoint()
    }

    /// How often each fault rule's turn came so far, in the order of their file.
    pub fn fault_counts(&self) -> Vec<FaultCount> {
        self.0.fault_counts()
    }

    /// Stops accepting, lets requests in flight finish for a second, and ends.
    pub async fn shutdown(self) {
        self.0.shutdown().await;
    }
}

/// What a server and a proxy have in common.
#[derive(Debug)]
struct Running {
    address: SocketAddr,
    faults: Option<Arc<Injector>>,
    stop: oneshot::Sender<()>,
    accepting: JoinHandle<()>,
}

impl Running {
    fn start(listener: TcpListener, work: Work) -> Result<Self, ServerError> {
        let address =
            listener.local_addr().map_err(|error| ServerError::Start { reason: error.to_string() })?;
        let faults = work.faults.clone();
        let (stop, stopped) = oneshot::channel();
        let accepting = tokio::spawn(connections::serve(listener, work, stopped));
        Ok(Self { address, faults, stop, accepting })
    }

    fn endpoint(&self) -> String {
        // Listening on every address is not an address one can connect to everywhere.
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        format!("http://{}", SocketAddr::new(ip, self.address.port()))
    }

    fn fault_counts(&self) -> Vec<FaultCount> {
        self.faults.as_ref().map(|faults| faults.counts()).unwrap_or_default()
    }

    async fn shutdown(self) {
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

fn open(data_dir: Option<PathBuf>, buckets: &[String], budget: Arc<Budget>) -> Result<Store, ServerError> {
    let store = match data_dir {
        None => Store::new(memory::Memory(budget.clone()), budget),
        Some(path) => {
            let (files, found) = files::Files::open(path)?;
            Store::with_objects(files, found, budget)
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
