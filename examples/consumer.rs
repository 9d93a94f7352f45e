//! Prints a queue's messages until its producer ends: `cargo run --release --example consumer -- queues/greetings`.
//!
//! Reads MINIO_S3_ENDPOINT, MINIO_S3_BUCKET, MINIO_S3_ACCESS_KEY and MINIO_S3_SECRET_ACCESS_KEY, which
//! `s3mq serve` prints.

use std::process::ExitCode;

use s3mq_queue::storage::{Backend, Config, Overrides, Store};
use s3mq_queue::{Consumer, ConsumerOptions, Lake, Received};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: consumer PATH")?;
    let config = Config::resolve(Backend::Minio, &Overrides::default(), |name| std::env::var(name).ok())?;
    let lake = Lake::new(&Store::connect(config).await?, path.parse()?)?;

    let mut consumer = Consumer::open(&lake, ConsumerOptions::default()).await?;
    loop {
        match consumer.next().await? {
            Received::Batch(batch) => {
                batch.messages().for_each(|message| println!("{}", String::from_utf8_lossy(message)))
            }
            Received::Lost(file) => {
                eprintln!("lost {} of version {}: {}", file.path, file.version, file.reason)
            }
            Received::End(_) => return Ok(()),
        }
    }
}
