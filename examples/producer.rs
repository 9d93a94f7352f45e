//! Sends ten messages into a queue: `cargo run --release --example producer -- queues/greetings`.
//!
//! Reads MINIO_S3_ENDPOINT, MINIO_S3_BUCKET, MINIO_S3_ACCESS_KEY and MINIO_S3_SECRET_ACCESS_KEY, which
//! `s3mq serve` prints.

use std::process::ExitCode;

use s3mq_queue::storage::{Backend, Config, Overrides, Store};
use s3mq_queue::{Batch, Lake, Producer, ProducerOptions};

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
    let path = std::env::args().nth(1).ok_or("usage: producer PATH")?;
    let config = Config::resolve(Backend::Minio, &Overrides::default(), |name| std::env::var(name).ok())?;
    let lake = Lake::new(&Store::connect(config).await?, path.parse()?)?;

    let mut producer = Producer::open(&lake, ProducerOptions::default()).await?;
    producer.append(Batch::from_iter((0..10).map(|n| format!("greeting {n}")))).await?;
    let appended = producer.finish().await?;
    println!("{} messages in {} commits", appended.messages, appended.commits);
    Ok(())
}
