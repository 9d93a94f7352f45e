//! What the integration tests share: the stores they run on, and what is skipped where it isn't set up.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, missing_docs)]

pub mod streams;

use s3mq_queue::storage::{Backend, Config, Overrides, Store};
use s3mq_server::Server;
use uuid::Uuid;

/// Whether what `variable` turns on is set up; says so where it isn't. With S3MQ_TEST_SKIP_NOTHING set,
/// what isn't set up fails.
pub fn is_set_up(variable: &str, what: &str) -> bool {
    if std::env::var_os(variable).is_some() {
        return true;
    }
    assert!(
        std::env::var_os("S3MQ_TEST_SKIP_NOTHING").is_none(),
        "{what} is not set up ({variable}), and nothing may be skipped"
    );
    eprintln!(
        "skipped: needs {what}; turn it on with: eval \"$(scripts/start-seaweedfs.sh target/seaweedfs)\""
    );
    false
}

/// A store to test on, for as long as it lives.
pub struct TestStore {
    pub store: Store,
    server: Option<Server>,
}

impl TestStore {
    /// The embedded server, in memory.
    pub async fn embedded() -> Self {
        let server = Server::start(s3mq_server::Config::in_memory("s3mq")).await.unwrap();
        let keys = server.credentials();
        let config =
            Config::of_server(&server.endpoint(), "s3mq", &keys.access_key, &keys.secret_key).unwrap();
        Self { store: Store::connect(config).await.unwrap(), server: Some(server) }
    }

    /// SeaweedFS, where it is set up.
    pub async fn seaweedfs() -> Option<Self> {
        if !is_set_up("S3MQ_TEST_SEAWEEDFS", "SeaweedFS") {
            return None;
        }
        let config =
            Config::resolve(Backend::Minio, &Overrides::default(), |name| std::env::var(name).ok()).unwrap();
        Some(Self { store: Store::connect(config).await.unwrap(), server: None })
    }

    /// The variables that reach the store.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let config = self.store.config();
        let s3mq_queue::storage::Credentials::Static { access_key, secret_key } = &config.credentials else {
            panic!("test stores have static keys")
        };
        vec![
            (
                "MINIO_S3_ENDPOINT",
                config.endpoint.as_ref().unwrap().as_str().trim_end_matches('/').to_owned(),
            ),
            ("MINIO_S3_BUCKET", config.bucket.clone()),
            ("MINIO_S3_ACCESS_KEY", access_key.clone()),
            ("MINIO_S3_SECRET_ACCESS_KEY", secret_key.clone()),
        ]
    }
}

/// A place in the bucket that nobody else uses.
pub fn fresh_path(name: &str) -> String {
    format!("tests/{name}-{}", Uuid::new_v4())
}

/// Writes each of these tests twice: `embedded::…`, and `seaweedfs::…` which is skipped where that
/// isn't set up. Each is an `async fn(&TestStore)` of the file.
#[macro_export]
macro_rules! on_every_store {
    ($($test:ident),+ $(,)?) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(&$crate::common::TestStore::embedded().await).await
            })+
        }
        mod seaweedfs {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                if let Some(store) = $crate::common::TestStore::seaweedfs().await {
                    super::$test(&store).await
                }
            })+
        }
    };
}
