//! An embedded S3 server on a loopback port: enough of S3 to carry a Delta Lake table. The `s3s` crate does the protocol.
//! What it guarantees and what it leaves out: `README.md` of this crate.

mod blob;
mod buckets;
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

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use budget::Budget;
use connections::{Work, Worker};
use faults::Injector;
use files::Files;
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
    /// The store whose times requests take; `None` is this server itself.
    pub model: Option<Model>,
    /// The faults that are injected.
    pub faults: Option<Faults>,
    /// What a client may ask of it.
    pub limits: Limits,
}

/// What a client may ask of a server, so that none can fill its memory or hold it for ever.
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
            credentials: None,
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
        let budget = Budget::new(config.limits.max_memory_bytes);
        let store = open(config.data_dir, &config.buckets, budget)?;
        let credentials = config.credentials.unwrap_or_else(Credentials::random);
        let worker = Worker::Own(service::build(store, credentials.clone(), config.limits.max_object_bytes));
        let work = Work {
            worker,
            model: config.model.map(Pacer::new),
            faults: config.faults.map(Injector::new).map(Arc::new),
            idle_timeout: config.limits.idle_timeout,
        };
        Ok(Self { credentials, running: Running::start(listener, work)? })
    }

    /// The URL for a client on this host.
    pub fn endpoint(&self) -> String {
        self.running.endpoint()
    }

    /// The key pair it accepts.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// How often each fault rule matched and fired so far, in the order of the file.
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
    /// The faults that are injected.
    pub faults: Option<Faults>,
    /// As [`Limits::idle_timeout`]. An idle store has its answer ended, or a 504 in place of it.
    pub idle_timeout: Duration,
}

impl ProxyConfig {
    /// On a free loopback port, without faults, with the idle timeout of a server.
    pub fn before(upstream: Upstream) -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            upstream,
            faults: None,
            idle_timeout: Limits::default().idle_timeout,
        }
    }
}

/// A running proxy: another store, with its buckets and keys, and with faults. Dropping it stops it too.
#[derive(Debug)]
pub struct Proxy(Running);

impl Proxy {
    /// Starts a proxy that is accepting when this returns. It sends nothing to the store by itself.
    pub async fn start(config: ProxyConfig) -> Result<Self, ServerError> {
        let listener = bind(config.listen).await?;
        let worker = Worker::Other(Arc::new(Forwarder::new(config.upstream, config.idle_timeout)));
        let work = Work {
            worker,
            model: None,
            faults: config.faults.map(Injector::new).map(Arc::new),
            idle_timeout: config.idle_timeout,
        };
        Ok(Self(Running::start(listener, work)?))
    }

    /// The URL for a client on this host.
    pub fn endpoint(&self) -> String {
        self.0.endpoint()
    }

    /// How often each fault rule matched and fired so far, in the order of the file.
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
        // Not every system connects to the unspecified address.
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
    let (files, found) = data_dir.map(Files::open).transpose()?.unzip();
    let store = Store::new(files, found.unwrap_or_default(), budget);
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
