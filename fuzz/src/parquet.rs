//! Data files.

use bytes::Bytes;
use s3mq::hot::decode;

use super::memory::max_bytes;

/// What the decoded rows of a file and its largest page may come to: the header of a page says how many bytes it is
/// once it is decompressed, up to 2 GiB, and the Parquet crate gives it those before it looks. What is
/// decoded has a limit of ours.
const MAX_BYTES: usize = 5 << 30;

/// A file decodes or is refused with a reason, and neither takes more memory than it may.
pub fn check(file: &[u8]) {
    let file = Bytes::copy_from_slice(file);
    let (decoded, bytes) = max_bytes(|| decode(file.clone()));
    assert!(bytes <= MAX_BYTES, "{bytes} bytes for a file of {}", file.len());
    if let Err(error) = &decoded {
        assert!(!error.is_empty());
    }
}
