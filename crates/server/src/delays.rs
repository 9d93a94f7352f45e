//! Delays that are added on purpose, to find out whether a measurement shows them where they were put.
//!
//! A request is sorted by what it is for, from its method, path and query. The delay of its kind lies on
//! the way of its payload, as in a slow network: a write waits *before* it takes effect, so that nobody
//! sees it sooner; a read answers with what was there when it came, and that answer is late. So whoever
//! waits for a write or for an answer waits at least that much longer. No lock is held meanwhile.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use s3mq_clock::{monotonic_ns, sleep_until_ns};

/// What a request that can be delayed is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// PUT of anything outside `_delta_log`.
    DataPut,
    /// PUT of a log entry.
    CommitPut,
    /// GET of a log entry, whether it is there or not.
    CommitGet,
    /// GET of anything outside `_delta_log`.
    DataGet,
    /// A listing.
    List,
}

impl RequestKind {
    /// All kinds, in the order of a message's way.
    pub const ALL: [Self; 5] = [Self::DataPut, Self::CommitPut, Self::CommitGet, Self::DataGet, Self::List];

    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::DataPut => "data-put",
            Self::CommitPut => "commit-put",
            Self::CommitGet => "commit-get",
            Self::DataGet => "data-get",
            Self::List => "list",
        }
    }

    /// The kind of a request; `None` for what is never delayed. The same rules as those by which clients
    /// count their requests, so that a delay hits exactly what is counted under its name.
    pub(super) fn of(method: &str, path: &str, query: Option<&str>) -> Option<Self> {
        let query = query.unwrap_or_default();
        let in_log = path.contains("/_delta_log/");
        let is_entry = in_log && path.ends_with(".json") && !path.ends_with(".compacted.json");
        match method {
            "GET" if query.contains("list-type=2") => Some(Self::List),
            "GET" if is_entry => Some(Self::CommitGet),
            "PUT" if is_entry => Some(Self::CommitPut),
            // Checkpoints.
            "GET" | "PUT" if in_log => None,
            "GET" => Some(Self::DataGet),
            "PUT" if query.is_empty() || query.starts_with("x-id=") => Some(Self::DataPut),
            _ => None,
        }
    }

    fn writes(self) -> bool {
        matches!(self, Self::DataPut | Self::CommitPut)
    }
}

/// How much longer requests of each kind take; by default none does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    by_kind: [Duration; RequestKind::ALL.len()],
}

impl Delays {
    /// Delays requests of this kind by `delay`.
    pub fn set(&mut self, kind: RequestKind, delay: Duration) {
        self.by_kind[kind as usize] = delay;
    }

    /// The kinds that are delayed, and by how much.
    pub fn iter(&self) -> impl Iterator<Item = (RequestKind, Duration)> {
        let all = RequestKind::ALL.into_iter().zip(self.by_kind);
        all.filter(|(_, delay)| !delay.is_zero())
    }

    /// Does the work of a request with the delay of its kind.
    pub(super) async fn around<T>(&self, kind: Option<RequestKind>, work: impl Future<Output = T>) -> T {
        let Some(kind) = kind else { return work.await };
        let delay = self.by_kind[kind as usize];
        if kind.writes() {
            pause(delay).await;
            work.await
        } else {
            let done = work.await;
            pause(delay).await;
            done
        }
    }
}

/// `commit-put=200ms,list=1500us`; empty where there are none.
impl fmt::Display for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (kind, delay)) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let us = delay.as_micros();
            let (amount, unit) = if us.is_multiple_of(1_000) { (us / 1_000, "ms") } else { (us, "us") };
            write!(f, "{comma}{}={amount}{unit}", kind.name())?;
        }
        Ok(())
    }
}

/// Tokio's timer rounds up to whole milliseconds. It therefore sleeps up to this long before the end of a
/// pause, and a thread that blocks sleeps the rest, which is right to some ten microseconds.
const SLEPT_BY_A_THREAD: Duration = Duration::from_millis(2);

async fn pause(delay: Duration) {
    pause_until(monotonic_ns() + delay.as_nanos() as u64).await;
}

/// Waits until the monotonic clock has reached a time; not at all where that is over.
pub(super) async fn pause_until(until_ns: u64) {
    let left = Duration::from_nanos(until_ns.saturating_sub(monotonic_ns()));
    if left.is_zero() {
        return;
    }
    if let Some(first) = left.checked_sub(SLEPT_BY_A_THREAD) {
        tokio::time::sleep(first).await;
    }
    // It fails only where the runtime ends, and with it the request.
    let _ = tokio::task::spawn_blocking(move || sleep_until_ns(until_ns)).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::pin::pin;

    #[test]
    fn requests_are_sorted_as_clients_count_them() {
        let entry = "/bucket/q/_delta_log/00000000000000000007.json";
        for (method, path, query, kind) in [
            ("PUT", "/bucket/q/part-1.parquet", None, Some(RequestKind::DataPut)),
            ("PUT", "/bucket/q/part-1.parquet", Some("x-id=PutObject"), Some(RequestKind::DataPut)),
            ("PUT", entry, None, Some(RequestKind::CommitPut)),
            ("GET", entry, None, Some(RequestKind::CommitGet)),
            ("GET", "/bucket/q/part-1.parquet", None, Some(RequestKind::DataGet)),
            ("GET", "/bucket", Some("list-type=2&prefix=q%2F_delta_log%2F"), Some(RequestKind::List)),
            ("GET", "/bucket/q/_delta_log/_last_checkpoint", None, None),
            ("PUT", "/bucket/q/_delta_log/00000000000000000007.checkpoint.parquet", None, None),
            ("GET", "/bucket/q/_delta_log/1.7.compacted.json", None, None),
            ("PUT", "/bucket/q/part", Some("partNumber=1&uploadId=x"), None),
            ("POST", "/bucket", Some("delete"), None),
            ("DELETE", entry, None, None),
            ("HEAD", entry, None, None),
        ] {
            assert_eq!(RequestKind::of(method, path, query), kind, "{method} {path}");
        }
    }

    #[test]
    fn delays_are_written_as_they_are_given() {
        let mut delays = Delays::default();
        assert_eq!(delays.to_string(), "");
        delays.set(RequestKind::List, Duration::from_micros(1_500));
        delays.set(RequestKind::CommitPut, Duration::from_millis(200));
        assert_eq!(delays.to_string(), "commit-put=200ms,list=1500us");
    }

    #[tokio::test]
    async fn a_write_takes_effect_after_its_delay_and_a_read_looks_before_it() {
        let mut delays = Delays::default();
        RequestKind::ALL.into_iter().for_each(|kind| delays.set(kind, Duration::from_millis(20)));
        for kind in RequestKind::ALL {
            let (begun_ns, done) = (monotonic_ns(), Cell::new(false));
            let mut request = pin!(delays.around(Some(kind), async { done.set(true) }));
            assert!(futures::poll!(&mut request).is_pending());
            assert_eq!(done.get(), !kind.writes(), "{}", kind.name());
            request.await;
            assert!(done.get());
            assert!(monotonic_ns() - begun_ns >= 20_000_000, "{}", kind.name());
        }
    }

    #[tokio::test]
    async fn what_has_no_delay_does_not_wait_at_all() {
        let mut delays = Delays::default();
        delays.set(RequestKind::CommitPut, Duration::from_secs(60));
        for kind in [None, Some(RequestKind::DataPut), Some(RequestKind::List)] {
            assert!(futures::poll!(pin!(delays.around(kind, async {}))).is_ready());
        }
    }
}
