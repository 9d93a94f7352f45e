//! The socket of a connection: a client that takes nothing of its answer loses it, and a fault can reset it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::faults::Link;

pub(super) struct Socket {
    stream: TcpStream,
    /// How long a client may take nothing of its answer.
    idle_timeout: Duration,
    /// The end of the wait for it.
    idle: Option<Pin<Box<Sleep>>>,
    link: Option<Arc<Link>>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, idle_timeout: Duration, link: Option<Arc<Link>>) -> Self {
        Self { stream, idle_timeout, idle: None, link }
    }

    /// What was polled of a write, or that the client was idle for too long.
    fn in_time(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if polled.is_ready() {
            self.idle = None;
            return polled;
        }
        let idle = self.idle.get_or_insert_with(|| Box::pin(sleep(self.idle_timeout)));
        ready!(idle.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
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
            link.note_flushed();
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
