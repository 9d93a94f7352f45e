//! What a rate costs in requests, from a price table and the attempts that were counted on the wire between "ready" and
//! the end. Failed attempts are priced too, as a store charges for most of them; transfer out of the region is not.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::events::{ProducerSummary, Requests};
use s3mq_queue::IDLE_LIST_INTERVAL;
use s3mq_queue::storage::Purpose;
use s3mq_server::read_toml;

/// Prices of a store, in US dollars. As a file (TOML), every field but `name` and `as_of` is a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Of which store and region.
    pub name: String,
    /// When they were looked up.
    pub as_of: String,
    /// A million PUT, POST, COPY or LIST requests.
    pub put_list_per_million: f64,
    /// A million GET or HEAD requests.
    pub get_per_million: f64,
    /// A gigabyte (10^9 bytes) stored for a month.
    pub storage_gb_month: f64,
}

impl Default for Prices {
    fn default() -> Self {
        Self {
            name: "S3 Standard, us-east-1".to_owned(),
            as_of: "2026-11".to_owned(),
            put_list_per_million: 5.0,
            get_per_million: 0.4,
            storage_gb_month: 0.023,
        }
    }
}

impl Prices {
    /// Reads a price table.
    ///
    /// # Errors
    /// What is wrong with it, on one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let prices: Self = read_toml(text)?;
        for (name, price) in [
            ("put_list_per_million", prices.put_list_per_million),
            ("get_per_million", prices.get_per_million),
            ("storage_gb_month", prices.storage_gb_month),
        ] {
            if !price.is_finite() || price < 0.0 {
                return Err(format!("`{name}` must be a number, 0 or more"));
            }
        }
        Ok(prices)
    }

    /// What these requests cost, in dollars. DELETE is free.
    pub fn of(&self, requests: &Requests) -> f64 {
        requests
            .rows
            .iter()
            .map(|row| {
                let per_million = match row.purpose {
                    Purpose::DataPut | Purpose::CommitPut | Purpose::List | Purpose::Other => {
                        self.put_list_per_million
                    }
                    Purpose::CommitGetHit | Purpose::CommitGetMiss | Purpose::DataGet => self.get_per_million,
                    // Mostly GETs of `_last_checkpoint`; the dearer of the two to be safe.
                    Purpose::Checkpoint => self.put_list_per_million,
                    Purpose::Delete => 0.0,
                };
                row.attempts as f64 * per_million / 1e6
            })
            .sum()
    }
}

/// Costs in US dollars.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Requests of one producer and one consumer, an hour.
    pub requests_usd_per_hour: f64,
    /// The same for a month of 730 hours.
    pub requests_usd_per_month: f64,
    /// Of these, the consumer's.
    pub consumer_usd_per_month: f64,
    /// The same for a million messages; `None` where none were sent.
    pub requests_usd_per_million_messages: Option<f64>,
    /// Storing a month's messages for a month.
    pub storage_usd_per_month: f64,
    /// Requests of one consumer while nothing is sent, a month; calculated, not measured.
    pub idle_usd_per_month: f64,
}

const HOURS_A_MONTH: f64 = 730.0;

impl Cost {
    /// What a rate cost, and what a consumer would while it asks once each `idle_pause` and nothing is sent.
    pub fn of(
        prices: &Prices,
        producer: &ProducerSummary,
        consumer: &Requests,
        idle_pause: Duration,
    ) -> Self {
        let consumed = prices.of(consumer);
        let spent =
            prices.of(&producer.running_requests) + prices.of(&producer.checkpoint_requests) + consumed;
        let seconds = producer.sending_seconds.max(1e-9);
        let month_seconds = HOURS_A_MONTH * 3600.0;
        let requests_usd_per_month = spent / seconds * month_seconds;
        let idle_second = prices.get_per_million / 1e6 / idle_pause.as_secs_f64().max(1e-9)
            + prices.put_list_per_million / 1e6 / IDLE_LIST_INTERVAL.as_secs_f64();
        Self {
            requests_usd_per_hour: requests_usd_per_month / HOURS_A_MONTH,
            requests_usd_per_month,
            consumer_usd_per_month: consumed / seconds * month_seconds,
            requests_usd_per_million_messages: (producer.committed > 0)
                .then(|| spent / producer.committed as f64 * 1e6),
            storage_usd_per_month: producer.file_bytes as f64 / seconds * month_seconds / 1e9
                * prices.storage_gb_month,
            idle_usd_per_month: idle_second * month_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::nothing_measured;
    use s3mq_queue::storage::RequestRow;

    fn requests(rows: &[(Purpose, u64)]) -> Requests {
        let row = |&(purpose, attempts)| RequestRow {
            purpose,
            attempts,
            failed: 0,
            bytes_sent: 0,
            bytes_received: 0,
        };
        Requests { rows: rows.iter().map(row).collect() }
    }

    #[test]
    fn a_second_of_ten_commits_costs_what_it_should() {
        // 20 PUTs, 25 GETs a second: 100 + 10 millionths of a dollar.
        let producer = ProducerSummary {
            running_requests: requests(&[(Purpose::DataPut, 10), (Purpose::CommitPut, 10)]),
            sending_seconds: 1.0,
            committed: 10_000,
            file_bytes: 1_000,
            ..nothing_measured().producer
        };
        let consumer =
            requests(&[(Purpose::CommitGetHit, 10), (Purpose::CommitGetMiss, 5), (Purpose::DataGet, 10)]);
        let of = |producer| Cost::of(&Prices::default(), producer, &consumer, Duration::from_millis(10));
        let cost = of(&producer);
        assert!((cost.requests_usd_per_hour - 0.000_110 * 3600.0).abs() < 1e-9, "{cost:?}");
        assert!((cost.requests_usd_per_month - 0.396 * 730.0).abs() < 1e-6);
        assert!((cost.consumer_usd_per_month - 0.000_010 * 3600.0 * 730.0).abs() < 1e-6);
        assert!((cost.requests_usd_per_million_messages.unwrap() - 0.011).abs() < 1e-12);
        // 100 GETs and a fifth of a LIST a second.
        assert!((cost.idle_usd_per_month - (40e-6 + 1e-6) * 730.0 * 3600.0).abs() < 1e-9);
        let checkpoint_requests = requests(&[(Purpose::Checkpoint, 2), (Purpose::CommitGetHit, 25)]);
        let with_checkpoints = of(&ProducerSummary { checkpoint_requests, ..producer.clone() });
        let more = with_checkpoints.requests_usd_per_hour - cost.requests_usd_per_hour;
        assert!((more - 0.000_020 * 3600.0).abs() < 1e-9, "{more}");
        assert!((cost.storage_usd_per_month - 1_000.0 * 730.0 * 3600.0 / 1e9 * 0.023).abs() < 1e-9);
    }

    #[test]
    fn a_price_table_is_read_or_refused_on_one_line() {
        let text = toml::to_string(&Prices::default()).unwrap();
        assert_eq!(Prices::parse(&text).unwrap(), Prices::default());
        for broken in
            ["", "x", &text.replace("0.4", "-0.4"), &text.replace("0.4", "nan"), &format!("{text}more = 1")]
        {
            let error = Prices::parse(broken).unwrap_err();
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
