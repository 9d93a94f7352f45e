//! The socket of a connection, which a fault can have closed with a reset.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::faults::Link;
use super::patience::Patience;

/// A socket, and what a fault can do to it. A client that takes nothing of its answer for too
/// long loses it.
pub(super) struct Socket {
    stream: TcpStream,
    /// For a client that takes nothing of its answer.
    patience: Patience,
    link: Option<Arc<Link>>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, longest: Duration, link: Option<Arc<Link>>) -> Self {
        Self { stream, patience: Patience::new(longest), link }
    }

    /// What was polled of a write, or that it has waited for too long.
    fn in_time(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let polled = self.patience.poll(cx, polled);
        polled.map(|written| written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.link.as_ref().is_some_and(|link| link.is_reset())
            && let Err(error) = self.stream.set_zero_linger()
        {
            tracing::warn!("a connection is closed rather than reset: {error}");
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.in_time(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(link) = &self.link {
            link.tell_flushed();
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.in_time(cx, polled)
    }
}
