//! The embedded store as a process of its own, so that its processor time is not the clients'.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use uuid::Uuid;

use super::LayersError;
use crate::storage::Config;

/// The bucket of the store.
const BUCKET: &str = "s3mq";
/// Longest that it may take to say where it listens.
const READY: Duration = Duration::from_secs(30);
/// Longest that it may take to end in good order.
const GRACE: Duration = Duration::from_secs(2);

/// `s3mq serve`, started by this process. It ends when this process does, however that comes about: its
/// standard input closes.
#[derive(Debug)]
pub struct OwnStore {
    process: Child,
    config: Config,
    _stdin: Option<ChildStdin>,
}

impl OwnStore {
    /// Starts it in memory, with keys of its own, and waits until it listens.
    ///
    /// # Errors
    /// When it doesn't start.
    pub async fn start() -> Result<Self, LayersError> {
        let failed = |what: String| LayersError::OwnStore(what);
        let (access_key, secret_key) = (Uuid::new_v4().to_string(), Uuid::new_v4().to_string());
        let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
        let mut command = Command::new(program);
        // An option of ours in the environment is not for the store.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("S3MQ_")) {
            command.env_remove(name);
        }
        let mut process = command
            .args(["serve", "--exit-on-stdin-eof", "--bucket", BUCKET])
            .env("S3MQ_SERVE_ACCESS_KEY", &access_key)
            .env("S3MQ_SERVE_SECRET_KEY", &secret_key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let stdout = process.stdout.take().ok_or_else(|| failed("it has no standard output".to_owned()))?;
        let stdin = process.stdin.take();
        let mut lines = BufReader::new(stdout).lines();
        let said = async {
            let mut endpoint = None;
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(url) = line.strip_prefix("export MINIO_S3_ENDPOINT=") {
                    endpoint = Some(url.to_owned());
                }
                // The last of its lines: whoever stops reading before would break its output.
                if line.starts_with("export MINIO_S3_SECRET_ACCESS_KEY=") {
                    break;
                }
            }
            endpoint
        };
        let endpoint = tokio::time::timeout(READY, said).await.ok().flatten();
        let endpoint = endpoint.ok_or_else(|| failed("it did not say where it listens".to_owned()))?;
        let config = Config::of_server(&endpoint, BUCKET, &access_key, &secret_key)
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self { process, config, _stdin: stdin })
    }

    /// How to reach it.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Ends it: asks, waits a little, kills.
    pub async fn end(mut self) {
        if let Some(pid) = self.process.id().and_then(|id| Pid::from_raw(id as i32)) {
            let _ = kill_process(pid, Signal::TERM);
        }
        if tokio::time::timeout(GRACE, self.process.wait()).await.is_err() {
            let _ = self.process.kill().await;
        }
    }
}
