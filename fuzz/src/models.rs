//! Files of store models.

use s3mq_server::Model;

use super::is_one_line;

/// A file is refused on one line, or is a model that is none of ours and reads the same each time.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let model = match Model::parse(text) {
        Ok(model) => model,
        Err(error) => return assert!(is_one_line(&error.to_string()), "{error}"),
    };
    assert!(!Model::built_in_names().any(|name| name == model.name()));
    let times = model.operations().values().flat_map(|times| times.values());
    assert!(times.copied().all(|time| time.is_finite() && time > 0.0), "{model:?}");
    assert_eq!(Model::parse(text).as_ref(), Ok(&model));
}
