//! Values of options: rates, lengths of time, percentiles, anchors, places, endpoints.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use s3mq::measure::Percentiles;
use s3mq::units::{Rate, Seconds, parse_bytes, parse_ms, parse_seconds_or_none};
use s3mq_clock::Anchor;
use s3mq_queue::storage::{Backend, Config, LakePath, Overrides, Prefix};

use super::is_one_line;

/// Each value that is taken is within its limits and is the same once it is written and read again.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(rate) = read::<Rate>(text) {
        assert!(rate.per_second() > 0.0 && rate <= Rate::MAX, "{rate}");
        assert!(rate.due_us(0) == 0 && rate.due_us(1) >= 0, "{rate}");
        assert_eq!(rate.sweep(rate, rate).count(), 1);
    }
    if let Some(seconds) = read::<Seconds>(text) {
        assert!(seconds.as_f64() > 0.0 && seconds <= Seconds::MAX, "{seconds}");
        assert!(seconds.as_duration() <= Seconds::MAX.as_duration());
        assert!(Rate::MAX.messages_in(seconds) <= 100_000_000 * 366 * 86_400);
    }
    let _ = (parse_bytes(text), parse_ms(text), parse_seconds_or_none(text));
    if let Some(percentiles) = read::<Percentiles>(text) {
        let values: Vec<_> = percentiles.iter().collect();
        assert!((1..=Percentiles::MAX).contains(&values.len()), "{values:?}");
        assert!(values.is_sorted_by(|a, b| a < b), "{values:?}");
        assert!(values.iter().all(|value| *value > 0.0 && *value <= 100.0), "{values:?}");
    }
    if let Some(anchor) = read::<Anchor>(text) {
        assert_eq!(anchor.since_us(anchor.origin_us()), 0);
        assert!(anchor.now_us() > i64::MIN);
    }
    if let Some(prefix) = read::<Prefix>(text) {
        is_a_place(&prefix);
    }
    if let Some(path) = read::<LakePath>(text) {
        is_a_place(&path.prefix);
        assert!(path.bucket.is_none_or(|bucket| !bucket.is_empty() && !bucket.contains('/')));
    }
    endpoint(text);
}

fn read<T>(text: &str) -> Option<T>
where
    T: FromStr<Err = String> + Display + Debug + PartialEq,
{
    match text.parse::<T>() {
        Ok(value) => {
            assert_eq!(value.to_string().parse().as_ref(), Ok(&value));
            Some(value)
        }
        Err(error) => {
            // It says again what was given.
            assert!(is_one_line(&error) || text.contains('\n'), "{error}");
            None
        }
    }
}

/// Nothing above or beside a prefix is reached through it.
fn is_a_place(prefix: &Prefix) {
    let directory = prefix.directory();
    let inside = directory.strip_suffix('/').unwrap_or_default();
    assert!(!inside.split('/').any(|segment| ["", ".", ".."].contains(&segment)), "{directory}");
    assert_eq!(prefix.join("a/b").to_string(), format!("{directory}a/b"));
}

/// A password in an endpoint is refused, and isn't repeated, wherever it stands.
fn endpoint(text: &str) {
    const PASSWORD: &str = "hunter2";
    let resolve = |endpoint: &str| {
        let overrides = Overrides {
            endpoint: Some(endpoint.to_owned()),
            bucket: Some("bucket".to_owned()),
            ..Overrides::default()
        };
        Config::resolve(Backend::Minio, &overrides, |_| Some("key".to_owned()))
    };
    if let Ok(config) = resolve(text) {
        let url = config.endpoint.as_ref().map(|url| url.as_str()).unwrap_or_default();
        assert!(url.starts_with("http://") || url.starts_with("https://"), "{url}");
        let again = resolve(url).map(|config| config.endpoint);
        assert_eq!(again.as_ref(), Ok(&config.endpoint));
    }
    for with_password in [
        format!("http://user:{PASSWORD}@{text}"),
        format!("{text}://user:{PASSWORD}@host"),
        format!("{text}user:{PASSWORD}@host"),
    ] {
        if let Err(error) = resolve(&with_password) {
            let error = error.to_string();
            assert!(!error.contains(PASSWORD) || text.contains(PASSWORD), "{error}");
        }
    }
}
