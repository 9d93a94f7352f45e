//! Price files.

use s3mq::report::Prices;

use super::is_one_line;

/// A file is refused on one line, or has prices that are numbers from 0 on and reads as the same once it is written.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let prices = match Prices::parse(text) {
        Ok(prices) => prices,
        Err(error) => return assert!(is_one_line(&error.to_string()), "{error}"),
    };
    for price in [prices.put_list_per_million, prices.get_per_million, prices.storage_gb_month] {
        assert!(price.is_finite() && price >= 0.0, "{price}");
    }
    let written = toml::to_string(&prices).unwrap_or_else(|error| panic!("{error}: {prices:?}"));
    match Prices::parse(&written) {
        Ok(again) => assert_eq!(again, prices, "{written}"),
        Err(error) => panic!("{error} in {written}"),
    }
}
