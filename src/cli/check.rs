//! `s3mq check`.

use clap::Args as ClapArgs;

use super::failure::Failure;
use super::role::interrupted;
use super::signals;
use super::storage::{self, StorageArgs};
use crate::console::say;
use crate::exit::Exit;
use s3mq_queue::storage::{Prefix, Store, advice_on_slow_gets, round_trips};

/// Try out what the queue depends on, and measure the store's round trips
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Where to write the objects that are tried with; they are deleted again
    #[arg(long, value_name = "PREFIX", default_value = "adhoc/s3-messaging")]
    prefix: Prefix,

    /// How many round trips of each kind to measure
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    round_trips: u16,

    #[command(flatten)]
    storage: StorageArgs,
}

pub(super) async fn run(args: Args) -> Result<Exit, Failure> {
    let config = args.storage.resolve(None)?;
    let stop = signals::watch(false)?;
    say(&config.describe());
    let body = if config.unsigned_payload() { "left out of signatures" } else { "signed" };
    say(&format!("bodies are {body}, requests signed for region {}", config.region));
    let preflight = storage::preflight(&config, &args.prefix, args.storage.create_bucket, |check| {
        say(&format!("ok  {check}"));
    });
    stop.run_until_cancelled(preflight).await.ok_or_else(interrupted)??;
    let store = Store::connect(config).await?;
    say(&format!(
        "{:<16} {:>9} {:>9}   ({} each, one after the other, 1 KiB)",
        "round trip", "p50 ms", "p99 ms", args.round_trips
    ));
    let count = usize::from(args.round_trips);
    let trips = round_trips(&store, &args.prefix, count, 1024, stop.cancelled()).await?;
    let trips = trips.ok_or_else(interrupted)?;
    for trip in &trips {
        let ms = |percentile| trip.percentile_us(percentile) as f64 / 1e3;
        say(&format!("{:<16} {:>9.2} {:>9.2}", trip.request, ms(50.0), ms(99.0)));
    }
    let p50_us =
        |request| trips.iter().find(|trip| trip.request == request).map(|trip| trip.percentile_us(50.0));
    if let Some(advice) =
        p50_us("GET").zip(p50_us("PUT")).and_then(|(get, put)| advice_on_slow_gets(get, put))
    {
        say(advice);
    }
    if let Some(server) = store.server() {
        say(&format!("the store calls itself {server}"));
    }
    Ok(Exit::Ok)
}
