//! An embedded S3 server on a loopback port: enough of S3 to carry a Delta Lake table. The `s3s` crate does the protocol.
//! What it guarantees and what it leaves out: `README.md` of this crate.

mod blob;
mod budget;
mod connections;
mod credentials;
mod error;
mod faults;
mod files;
mod idle_timeout;
mod listing;
mod model;
mod multipart;
mod objects;
mod proxy;
mod refusal;
mod service;
mod socket;
mod store;
#[cfg(test)]
mod tests;
mod toml_file;

pub use credentials::Credentials;
pub use error::ServerError;
pub use faults::{FaultCount, Faults, FaultsError};
pub use model::{Model, ModelError};
pub use proxy::{Upstream, UpstreamError};
pub use toml_file::read_toml;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use s3s::S3Error;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};

use budget::Budget;
use connections::{Work, Worker};
use faults::Plan;
use files::Files;
use model::Pacer;
use proxy::Forwarder;
use store::Store;

/// What a server listens on and where it keeps its objects.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address to listen on; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Directory of the objects, created where absent; `None` keeps them in memory.
    pub data_dir: Option<PathBuf>,
    /// Buckets that exist once the server has started.
    pub buckets: Vec<String>,
    /// The store behind a proxy. A proxy has no objects, buckets, keys and model of its own.
    pub upstream: Option<Upstream>,
    /// The one key pair the server accepts; `None` draws one at random.
    pub credentials: Option<Credentials>,
    /// The request times of another store.
    pub model: Option<Model>,
    /// The faults that are injected.
    pub faults: Option<Faults>,
    /// What a client may ask of it.
    pub limits: Limits,
}

/// Limits for clients, so that none can fill the memory or hold a connection for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of an object, and of all parts of an upload together, in bytes. More is refused before it is held.
    pub max_object_bytes: u64,
    /// Of all that is held in memory, in bytes: objects without a [`Config::data_dir`], bodies that are being sent,
    /// unfinished uploads, and the index. A write beyond it is answered 400 `InsufficientStorage`.
    pub max_memory_bytes: u64,
    /// How long nothing may come or be taken, within a request and between two of a connection. Then the connection
    /// ends.
    pub idle_timeout: Duration,
}

impl Default for Limits {
    /// Objects of a gibibyte, three quarters of the memory that the process may have, and two minutes: longer than clients keep
    /// connections that they don't use.
    fn default() -> Self {
        let memory = s3mq_limits::memory_bytes().unwrap_or(u64::MAX);
        Self {
            max_object_bytes: 1 << 30,
            max_memory_bytes: memory - memory / 4,
            idle_timeout: Duration::from_secs(120),
        }
    }
}

impl Config {
    /// On a free loopback port, in memory, with one bucket and random keys, without a model and faults.
    pub fn in_memory(bucket: &str) -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            data_dir: None,
            buckets: vec![bucket.to_owned()],
            upstream: None,
            credentials: None,
            model: None,
            faults: None,
            limits: Limits::default(),
        }
    }

    /// A proxy on a free loopback port, without faults.
    pub fn proxy(upstream: Upstream) -> Self {
        Self { upstream: Some(upstream), buckets: Vec::new(), ..Self::in_memory("") }
    }
}

/// A running server or proxy. Dropping it stops it too, without waiting for that.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    credentials: Credentials,
    faults: Option<Arc<Plan>>,
    stop: oneshot::Sender<()>,
    accepting: JoinHandle<()>,
}

impl Server {
    /// Starts a server that is bound and accepting when this returns. A proxy sends nothing to its store by itself.
    pub async fn start(config: Config) -> Result<Self, ServerError> {
        if let Some(name) = config.buckets.iter().find(|name| !s3s::path::check_bucket_name(name)) {
            return Err(ServerError::InvalidBucket(name.clone()));
        }
        let listener = bind(config.listen).await?;
        let address = listener.local_addr().map_err(|error| ServerError::Listen(config.listen, error))?;
        let credentials = config.credentials.unwrap_or_else(Credentials::random);
        let limits = config.limits;
        let worker = match config.upstream {
            Some(upstream) => Worker::Other(Arc::new(Forwarder::new(upstream, limits.idle_timeout))),
            None => {
                let budget = Budget::new(limits.max_memory_bytes);
                let (data_dir, buckets) = (config.data_dir, config.buckets);
                // It reads something of every object that is there.
                let opened = spawn_blocking(move || open(data_dir, &buckets, budget)).await;
                let store = opened.map_err(|error| ServerError::Start(error.to_string()))??;
                Worker::Own(service::build(store, credentials.clone(), limits.max_object_bytes))
            }
        };
        let faults = config.faults.map(Plan::new).map(Arc::new);
        let (stop, stopped) = oneshot::channel();
        let work = Work {
            worker,
            model: config.model.map(Pacer::new),
            faults: faults.clone(),
            idle_timeout: limits.idle_timeout,
        };
        let accepting = tokio::spawn(connections::serve(listener, work, stopped));
        Ok(Self { address, credentials, faults, stop, accepting })
    }

    /// The URL for a client on this host.
    pub fn endpoint(&self) -> String {
        // Not every system connects to the unspecified address.
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        format!("http://{}", SocketAddr::new(ip, self.address.port()))
    }

    /// The key pair it accepts; of no meaning for a proxy: the store behind it has its own.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// How often each fault rule matched and fired so far, in the order of the file.
    pub fn fault_counts(&self) -> Vec<FaultCount> {
        self.faults.as_ref().map(|faults| faults.counts()).unwrap_or_default()
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
        std::io::ErrorKind::AddrInUse => ServerError::AddressInUse(address),
        _ => ServerError::Listen(address, source),
    })
}

fn open(data_dir: Option<PathBuf>, buckets: &[String], budget: Arc<Budget>) -> Result<Store, ServerError> {
    let (files, found) = data_dir.map(Files::open).transpose()?.unzip();
    let store = Store::new(files, found.unwrap_or_default(), budget);
    for name in buckets {
        if store.bucket(name).is_err() {
            let failed = |error: S3Error| {
                let why = error.message().unwrap_or("no reason given").to_owned();
                ServerError::CreateBucket(name.clone(), why)
            };
            store.create_bucket(name).map_err(failed)?;
        }
    }
    Ok(store)
}
