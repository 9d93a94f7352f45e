//! The embedded S3 server.
