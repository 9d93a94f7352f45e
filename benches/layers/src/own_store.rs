//! The embedded store as a process of its own, so that its processor time is not the clients'. It is this program once
//! more, with another first argument.

use std::process::Stdio;
use std::time::Duration;

use s3mq::cli::{Failure, say};
use s3mq::exit::Exit;
use s3mq_queue::storage::Config;
use s3mq_server::{Credentials, Server};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use uuid::Uuid;

use super::LayersError;

/// The bucket of the store.
const BUCKET: &str = "s3mq";
/// The first argument of the store's process; its keys come after it.
const SERVE: &str = "serve";
/// Longest that it may take to say where it listens.
const READY: Duration = Duration::from_secs(30);
/// Longest that it may take to end in good order.
const GRACE: Duration = Duration::from_secs(2);

/// The store's process. It ends when this one does, however that comes about: its standard input closes.
#[derive(Debug)]
pub struct OwnStore {
    process: Child,
    config: Config,
}

impl OwnStore {
    /// Whether this process is the store.
    pub fn is_meant() -> bool {
        std::env::args().nth(1).is_some_and(|first| first == SERVE)
    }

    /// Is the store, in memory, until standard input closes.
    ///
    /// # Errors
    /// When the server doesn't start.
    pub async fn serve() -> Result<Exit, Failure> {
        let keys: Vec<_> = std::env::args().skip(2).collect();
        let [access_key, secret_key] =
            <[String; 2]>::try_from(keys).map_err(|_| Failure::usage("the store's two keys are missing"))?;
        let credentials = Some(Credentials { access_key, secret_key });
        let server =
            Server::start(s3mq_server::Config { credentials, ..s3mq_server::Config::in_memory(BUCKET) });
        let server = server.await?;
        say(&server.endpoint());
        let mut byte = [0];
        while tokio::io::stdin().read(&mut byte).await.is_ok_and(|read| read > 0) {}
        server.shutdown().await;
        Ok(Exit::Ok)
    }

    /// Starts it, with keys of its own, and waits until it listens.
    ///
    /// # Errors
    /// When it doesn't start.
    pub async fn start() -> Result<Self, LayersError> {
        let failed = |what: String| LayersError::OwnStore(what);
        let (access_key, secret_key) = (Uuid::new_v4().to_string(), Uuid::new_v4().to_string());
        let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
        let mut process = Command::new(program)
            .args([SERVE, &access_key, &secret_key])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let stdout = process.stdout.take().ok_or_else(|| failed("it has no standard output".to_owned()))?;
        let mut lines = BufReader::new(stdout).lines();
        let endpoint =
            tokio::time::timeout(READY, lines.next_line()).await.ok().and_then(Result::ok).flatten();
        let endpoint = endpoint.ok_or_else(|| failed("it did not say where it listens".to_owned()))?;
        let config = Config::of_server(&endpoint, BUCKET, &access_key, &secret_key)
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self { process, config })
    }

    /// How to reach it.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Ends it: asks, waits a little, kills.
    pub async fn end(mut self) {
        drop(self.process.stdin.take());
        if tokio::time::timeout(GRACE, self.process.wait()).await.is_err() {
            let _ = self.process.kill().await;
        }
    }
}
