//! Tables of other writers, and other writers' changes to a table while it is read.

use s3mq_queue::{Consumer, ConsumerOptions, Lake, Producer, ProducerOptions, QueueError, Received};

use crate::common::TestStore;
use crate::common::streams::*;

on_every_store!(
    columns_may_be_added_while_reading,
    a_change_that_takes_data_away_is_named,
    features_that_we_lack_are_named_at_open_and_while_reading,
    deletion_vectors_that_no_feature_declares_are_refused,
    a_feature_that_is_not_in_use_is_no_hindrance,
    partitions_that_take_a_column_out_of_the_files_are_refused,
);

const DATA: (&str, &str) = ("data", "binary");

/// The `metaData` alone.
fn change(fields: &[(&str, &str)], partitions: &str, properties: &str) -> String {
    table(PLAIN_PROTOCOL, fields, partitions, properties).lines().nth(1).unwrap().to_owned()
}

async fn columns_may_be_added_while_reading(store: &TestStore) {
    let lake = lake(store, "columns-added");
    let first = send_each(&lake, 2).await;
    let mut early = Consumer::open(&lake, options()).await.unwrap();
    receive(&mut early, 1).await;
    // One before `data`, one after; and a property.
    let wider = [("day", "date"), DATA, ("producer", "integer"), ("seq", "long"), ("extra", "string")];
    put(store, &entry(&lake, 4), &change(&wider, "[]", r#"{"delta.appendOnly":"true"}"#)).await;
    let second = send(&lake, 1, 2).await;
    assert_in_order(&receive(&mut early, 1).await.0[&second]);
    let mut late = Consumer::open(&lake, options()).await.unwrap();
    let messages = receive(&mut late, 2).await.0;
    assert_in_order(&messages[&first]);
    assert_in_order(&messages[&second]);
}

/// What a reader, and a producer that comes later, say of a table whose version 3 is this.
async fn said_of(store: &TestStore, name: &str, version_3: &str) -> [String; 3] {
    let lake = lake(store, name);
    send(&lake, 0, 1).await;
    let mut early = Consumer::open(&lake, options()).await.unwrap();
    put(store, &entry(&lake, 3), version_3).await;
    let unsupported = |error: QueueError| {
        assert!(matches!(error, QueueError::Unsupported { .. }), "{version_3}: {error}");
        error.to_string()
    };
    [
        unsupported(error_of(&mut early).await),
        unsupported(opening_error(&lake).await),
        unsupported(Producer::open(&lake, ProducerOptions::default()).await.unwrap_err()),
    ]
}

async fn opening_error(lake: &Lake) -> QueueError {
    match Consumer::open(lake, options()).await {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

async fn a_change_that_takes_data_away_is_named(store: &TestStore) {
    let other = [("producer", "integer"), ("seq", "long")];
    for (change, named) in [
        (change(&other, "[]", "{}"), "no column `data`"),
        (change(&[("data", "long"), other[0], other[1]], "[]", "{}"), "`data` is long"),
        (change(&[("payload", "binary"), other[0], other[1]], "[]", "{}"), "no column `data`"),
        (change(&[DATA, other[0], other[1]], r#"["data"]"#, "{}"), "partitioned by `data`"),
    ] {
        for said in said_of(store, "data-gone", &change).await {
            assert!(said.contains(named), "{said}");
        }
    }
}

async fn features_that_we_lack_are_named_at_open_and_while_reading(store: &TestStore) {
    let needs = |feature: &str| {
        format!(
            r#"{{"protocol":{{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["{feature}"],"writerFeatures":["{feature}"]}}}}"#
        )
    };
    for feature in ["deletionVectors", "typeWidening", "variantType", "madeUp"] {
        for said in said_of(store, "features", &needs(feature)).await {
            assert!(said.contains(feature), "{said}");
        }
    }
    let far = r#"{"protocol":{"minReaderVersion":9,"minWriterVersion":9}}"#;
    for said in said_of(store, "far-version", far).await {
        assert!(said.contains("version 9"), "{said}");
    }
    // Names in the files are other ones than in the schema.
    let mapped = [
        r#"{"protocol":{"minReaderVersion":2,"minWriterVersion":5}}"#,
        &change(
            &[DATA, ("producer", "integer"), ("seq", "long")],
            "[]",
            r#"{"delta.columnMapping.mode":"name"}"#,
        ),
    ];
    let said = said_of(store, "mapped", &mapped.join("\n")).await;
    for said in &said[..2] {
        assert!(said.contains("columnMapping"), "{said}");
    }
    assert!(said[2].contains("writer version 5"), "{}", said[2]);
}

async fn deletion_vectors_that_no_feature_declares_are_refused(store: &TestStore) {
    let vector = r#"{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^","offset":4,"sizeInBytes":40,"cardinality":6}"#;
    let with = |vector: &str| {
        add("part.parquet", 10).replace(r#""size""#, &format!(r#""deletionVector":{vector},"size""#))
    };
    // With whatever removes go with it passed over, its deleted rows would be delivered.
    let lenient = ConsumerOptions { ignore_removes: true, ..options() };
    let same_rows = with(vector).replace(r#""dataChange":true"#, r#""dataChange":false"#);
    for version_3 in [with(vector), same_rows] {
        let lake = lake(store, "deletion-vectors");
        send(&lake, 0, 1).await;
        put(store, &entry(&lake, 3), &version_3).await;
        let mut consumer = Consumer::open(&lake, lenient.clone()).await.unwrap();
        let error = error_of(&mut consumer).await;
        assert!(matches!(error, QueueError::Unsupported { action: "read", .. }), "{version_3}: {error}");
        assert!(error.to_string().contains("`deletionVectors`"), "{error}");
        assert!(error.to_string().contains("version 3"), "{error}");
    }
    let lake = lake(store, "no-deletion-vectors");
    let by = send(&lake, 0, 1).await;
    put(store, &entry(&lake, 3), &with("null")).await;
    let mut consumer = Consumer::open(&lake, lenient).await.unwrap();
    assert_in_order(&receive(&mut consumer, 1).await.0[&by]);
    assert!(matches!(next(&mut consumer).await.unwrap(), Received::Lost(_)), "it is read as any other");
}

async fn a_feature_that_is_not_in_use_is_no_hindrance(store: &TestStore) {
    for protocol in [
        r#"{"minReaderVersion":2,"minWriterVersion":5}"#,
        r#"{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["columnMapping"],"writerFeatures":["columnMapping"]}"#,
        r#"{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["timestampNtz","vacuumProtocolCheck"],"writerFeatures":["timestampNtz","vacuumProtocolCheck","inCommitTimestamp","changeDataFeed"]}"#,
        r#"{"minReaderVersion":1,"minWriterVersion":4}"#,
    ] {
        let lake = lake(store, "unused-features");
        let by = send_each(&lake, 2).await;
        put(store, &entry(&lake, 4), &format!(r#"{{"protocol":{protocol}}}"#)).await;
        let consumer = Consumer::open(&lake, options()).await;
        let mut consumer = consumer.unwrap_or_else(|error| panic!("{protocol}: {error}"));
        assert_in_order(&receive(&mut consumer, 1).await.0[&by]);
    }
}

async fn partitions_that_take_a_column_out_of_the_files_are_refused(store: &TestStore) {
    let fields = [DATA, ("day", "string"), ("diff", "long")];
    for (partitions, named) in [(r#"["data"]"#, "`data`"), (r#"["day","diff"]"#, "`diff`")] {
        let lake = lake(store, "partitioned");
        put(store, &entry(&lake, 0), &table(PLAIN_PROTOCOL, &fields, partitions, "{}")).await;
        let error = opening_error(&lake).await;
        assert!(error.to_string().contains(&format!("partitioned by {named}")), "{error}");
    }
    let lake = lake(store, "partitioned-otherwise");
    put(store, &entry(&lake, 0), &table(PLAIN_PROTOCOL, &fields, r#"["day"]"#, "{}")).await;
    assert!(Consumer::open(&lake, options()).await.is_ok());
}
