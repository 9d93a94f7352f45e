//! Why a server did not start, for the person who started it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A server that could not start, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Another process listens on the address.
    #[error("address {address} is in use; choose another --listen, or port 0 for any free one")]
    AddressInUse {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// The system refused the address.
    #[error("cannot listen on {address}: {source}; choose another --listen")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The data directory cannot be created, read or written.
    #[error("cannot use data directory {}: {source}; make it writable or choose another --data-dir", .path.display())]
    DataDir {
        /// The directory, or what in it failed.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another server has the data directory open.
    #[error("data directory {} is used by another server; stop that one or choose another --data-dir", .path.display())]
    DataDirInUse {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has other contents than a server's.
    #[error("{} holds files that are no server's; choose an empty or a new --data-dir", .path.display())]
    NotADataDir {
        /// The directory.
        path: PathBuf,
    },
    /// A bucket name that S3 does not allow.
    #[error("'{name}' is no bucket name; use 3 to 63 lower-case letters, digits, dots and dashes")]
    InvalidBucket {
        /// The name that was asked for.
        name: String,
    },
    /// A bucket could not be created.
    #[error("cannot create bucket '{name}': {reason}; check the data directory")]
    CreateBucket {
        /// The bucket.
        name: String,
        /// What the store said.
        reason: String,
    },
    /// A fault of this program.
    #[error("the embedded S3 server did not start: {reason}; this is a bug, please report it")]
    Start {
        /// What happened.
        reason: String,
    },
}
