//! Why a server did not start, for the person who started it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A server that could not start, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Another process listens on the address.
    #[error("address {0} is in use; choose another --listen, or port 0 for any free one")]
    AddressInUse(SocketAddr),
    /// The system refused the address.
    #[error("cannot listen on {0}: {1}; choose another --listen")]
    Listen(SocketAddr, #[source] io::Error),
    /// The data directory cannot be created, read or written.
    #[error("cannot use data directory {0}: {1}; make it writable or choose another --data-dir")]
    DataDir(PathBuf, #[source] io::Error),
    /// Another server has the data directory open.
    #[error("data directory {0} is used by another server; stop that one or choose another --data-dir")]
    DataDirInUse(PathBuf),
    /// The directory has other contents than a server's.
    #[error("{0} holds files that are no server's; choose an empty or a new --data-dir")]
    NotADataDir(PathBuf),
    /// A bucket name that S3 does not allow.
    #[error("'{0}' is no bucket name; use 3 to 63 lower-case letters, digits, dots and dashes")]
    InvalidBucket(String),
    /// A bucket could not be created: its name and the reason.
    #[error("cannot create bucket '{0}': {1}; check the data directory")]
    CreateBucket(String, String),
    /// A thread of its own ended early.
    #[error("the server did not start: {0}")]
    Start(String),
}
