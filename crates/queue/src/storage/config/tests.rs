use super::*;

fn minio(name: &str) -> Option<String> {
    let value = match name {
        "MINIO_S3_ENDPOINT" => "http://127.0.0.1:9000/",
        "MINIO_S3_BUCKET" => "queue",
        "MINIO_S3_ACCESS_KEY" => "key",
        "MINIO_S3_SECRET_ACCESS_KEY" => "very-secret",
        _ => return None,
    };
    Some(value.to_owned())
}

#[test]
fn minio_is_read_from_its_variables() {
    let config = Config::resolve(Backend::Minio, &Overrides::default(), minio).unwrap();
    assert_eq!(config.describe(), "bucket `queue` at http://127.0.0.1:9000");
    assert_eq!(config.region, "us-east-1");
    assert!(config.unsigned_payload() && config.plain_http() && config.path_style());
    assert!(!format!("{config:?}").contains("very-secret"));
}

#[test]
fn each_missing_variable_is_named() {
    for missing in
        ["MINIO_S3_ENDPOINT", "MINIO_S3_BUCKET", "MINIO_S3_ACCESS_KEY", "MINIO_S3_SECRET_ACCESS_KEY"]
    {
        let environment = |name: &str| if name == missing { Some(String::new()) } else { minio(name) };
        let error = Config::resolve(Backend::Minio, &Overrides::default(), environment).unwrap_err();
        assert!(error.to_string().starts_with(&format!("{missing} is not set")), "{error}");
    }
    let error = Config::resolve(Backend::S3, &Overrides::default(), |_| None).unwrap_err();
    assert!(error.to_string().contains("AWS_S3_BUCKET"), "{error}");
}

#[test]
fn half_a_key_is_refused() {
    let environment = |name: &str| match name {
        "AWS_S3_BUCKET" => Some("queue".to_owned()),
        "AWS_S3_ACCESS_KEY" => Some("key".to_owned()),
        _ => None,
    };
    let error = Config::resolve(Backend::S3, &Overrides::default(), environment).unwrap_err();
    assert!(error.to_string().contains("AWS_S3_SECRET_ACCESS_KEY"), "{error}");
}

#[test]
fn without_keys_s3_uses_the_default_chain() {
    let environment = |name: &str| (name == "AWS_S3_BUCKET").then(|| "queue".to_owned());
    let config = Config::resolve(Backend::S3, &Overrides::default(), environment).unwrap();
    assert_eq!(config.credentials, Credentials::Chain);
    assert!(config.endpoint.is_none() && config.unsigned_payload());
}

#[test]
fn malformed_endpoints_are_refused_without_echoing_a_password() {
    for endpoint in [
        "127.0.0.1:9000",
        "localhost",
        "ftp://host",
        "http://",
        "http://u:hunter2@host",
        "u:hunter2@host:9000",
        "u:hunter2@x://host",
        "ftp://u:hunter2@host",
        "http://h/?q=1",
        "http://[::1",
    ] {
        let overrides = Overrides { endpoint: Some(endpoint.to_owned()), ..Overrides::default() };
        let error = Config::resolve(Backend::Minio, &overrides, minio).unwrap_err();
        assert!(matches!(error, ConfigError::Endpoint { .. }), "{endpoint}: {error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn only_loopback_and_tls_leave_bodies_unsigned() {
    for (endpoint, unsigned) in [
        ("http://127.0.0.1:1", true),
        ("http://[::1]:1", true),
        ("http://localhost:1", true),
        ("https://minio.example", true),
        ("http://minio.example:9000", false),
    ] {
        let overrides = Overrides { endpoint: Some(endpoint.to_owned()), ..Overrides::default() };
        let config = Config::resolve(Backend::Minio, &overrides, minio).unwrap();
        assert_eq!(config.unsigned_payload(), unsigned, "{endpoint}");
    }
}

#[test]
fn certificates_are_for_https_and_authorities_have_to_be_some() {
    let resolve = |endpoint: &str, trust| {
        let overrides = Overrides { endpoint: Some(endpoint.to_owned()), trust, ..Overrides::default() };
        Config::resolve(Backend::Minio, &overrides, minio)
    };
    let nothing = || Trust::Also((*b"no certificate").into());
    assert!(matches!(resolve("http://h", Trust::Anyone), Err(ConfigError::NoCertificates(_))));
    assert!(matches!(resolve("http://h", nothing()), Err(ConfigError::NoCertificates(_))));
    assert!(matches!(resolve("https://h", nothing()), Err(ConfigError::Authorities(_))));
    let insecure = resolve("https://h", Trust::Anyone).unwrap();
    assert_eq!(insecure.describe(), "bucket `queue` at https://h, certificates not checked");
}

#[test]
fn bucket_names_follow_the_rules() {
    for name in ["ab", "Bucket", "a_b", "-ab", "ab-", "a..b", &"x".repeat(64)] {
        assert!(validate_bucket(name.to_owned()).is_err(), "{name}");
    }
    assert!(validate_bucket("my-bucket.2026".to_owned()).is_ok());
}
