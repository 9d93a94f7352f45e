//! Objects and buckets: what goes in comes out.

use aws_sdk_s3::types::{Delete, MetadataDirective, ObjectIdentifier};
use bytes::Bytes;
use object_store::path::Path;
use object_store::{Attribute, GetOptions, ObjectStoreExt, PutOptions, PutPayload};
use object_store::{GetRange, ObjectStore};

use super::{BUCKET, TestServer, on_both_stores, refusal};

on_both_stores!(
    buckets_come_and_go,
    objects_of_many_sizes,
    attributes_are_kept,
    ranges,
    reads_under_conditions,
    copies,
    deletes,
    unknown_operations_are_refused,
    absent_buckets_are_named,
    the_sdk_with_its_default_checksums,
    readers_see_whole_objects_while_they_are_replaced,
);

async fn buckets_come_and_go(s: &TestServer) {
    s.sdk.create_bucket().bucket("another").send().await.unwrap();
    let twice = s.sdk.create_bucket().bucket("another").send().await.unwrap_err();
    assert_eq!(refusal(&twice), (409, "BucketAlreadyOwnedByYou"));
    let bad = s.sdk.create_bucket().bucket("No_Bucket").send().await.unwrap_err();
    assert_eq!(refusal(&bad), (400, "InvalidBucketName"));
    let listed = s.sdk.list_buckets().send().await.unwrap();
    let names: Vec<_> = listed.buckets().iter().map(|bucket| bucket.name().unwrap()).collect();
    assert_eq!(names, ["another", BUCKET]);
    s.sdk.head_bucket().bucket("another").send().await.unwrap();

    s.put("key", "value").await;
    let full = s.sdk.delete_bucket().bucket(BUCKET).send().await.unwrap_err();
    assert_eq!(refusal(&full), (409, "BucketNotEmpty"));
    s.sdk.delete_object().bucket(BUCKET).key("key").send().await.unwrap();
    s.sdk.delete_bucket().bucket(BUCKET).send().await.unwrap();
    assert!(s.sdk.head_bucket().bucket(BUCKET).send().await.unwrap_err().into_service_error().is_not_found());
    s.sdk.create_bucket().bucket(BUCKET).send().await.unwrap();
    assert_eq!(s.get("key").await, None);
}

async fn objects_of_many_sizes(s: &TestServer) {
    for unsigned_payload in [true, false] {
        let store = s.object_store(unsigned_payload);
        for size in [0, 1, 1000, 1 << 16, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_000] {
            let body: Bytes = (0..size).map(|i| (i % 251) as u8).collect();
            let key = Path::from(format!("size/{size}"));
            let put = store.put(&key, PutPayload::from(body.clone())).await.unwrap();
            let got = store.get(&key).await.unwrap();
            assert_eq!(got.meta.size, size);
            assert_eq!(got.meta.e_tag, put.e_tag);
            assert!(got.bytes().await.unwrap() == body, "{size} bytes came back different");
            assert_eq!(store.head(&key).await.unwrap().size, size);
            assert!(s.get(key.as_ref()).await.unwrap() == body);
        }
    }
}

async fn attributes_are_kept(s: &TestServer) {
    let request = s.sdk.put_object().bucket(BUCKET).key("key").body(Bytes::from("{}").into());
    let request = request.content_type("application/json").content_encoding("identity");
    let request = request.cache_control("no-store").content_disposition("inline").content_language("en");
    let put = request.metadata("colour", "blue").metadata("shape", "round").send().await.unwrap();

    let got = s.sdk.get_object().bucket(BUCKET).key("key").send().await.unwrap();
    assert_eq!(got.e_tag, put.e_tag);
    assert_eq!(got.content_type(), Some("application/json"));
    assert_eq!(got.content_encoding(), Some("identity"));
    assert_eq!(got.cache_control(), Some("no-store"));
    assert_eq!(got.content_disposition(), Some("inline"));
    assert_eq!(got.content_language(), Some("en"));
    let metadata = got.metadata().unwrap();
    assert_eq!((metadata["colour"].as_str(), metadata["shape"].as_str()), ("blue", "round"));

    let head = s.sdk.head_object().bucket(BUCKET).key("key").send().await.unwrap();
    assert_eq!(head.e_tag, put.e_tag);
    assert_eq!(head.content_length(), Some(2));
    assert_eq!(head.content_type(), Some("application/json"));
    assert_eq!(head.metadata(), got.metadata());
    assert!(head.last_modified().is_some());

    s.put("plain", "x").await;
    let plain = s.sdk.head_object().bucket(BUCKET).key("plain").send().await.unwrap();
    assert!(plain.content_type().is_some());
    let absent = s.sdk.head_object().bucket(BUCKET).key("absent").send().await.unwrap_err();
    assert!(absent.into_service_error().is_not_found());

    let options = PutOptions::from_iter_attribute(Attribute::ContentType, "text/csv");
    s.object_store(true).put_opts(&Path::from("csv"), "1,2".into(), options).await.unwrap();
    let got = s.object_store(true).get(&Path::from("csv")).await.unwrap();
    assert_eq!(got.attributes.get(&Attribute::ContentType).unwrap().as_ref(), "text/csv");
}

trait FromAttribute {
    fn from_iter_attribute(attribute: Attribute, value: &'static str) -> Self;
}

impl FromAttribute for PutOptions {
    fn from_iter_attribute(attribute: Attribute, value: &'static str) -> Self {
        [(attribute, value)].into_iter().collect::<object_store::Attributes>().into()
    }
}

async fn ranges(s: &TestServer) {
    let size = (3 << 20) + 7;
    let body: Bytes = (0..size).map(|i| (i % 253) as u8).collect();
    s.put("key", body.clone()).await;
    let last = size - 1;
    let cases = [
        ("bytes=0-0".to_owned(), 0..1),
        ("bytes=1-5".to_owned(), 1..6),
        (format!("bytes=0-{last}"), 0..size),
        (format!("bytes=5-{}", 10 * size), 5..size),
        ("bytes=100-".to_owned(), 100..size),
        (format!("bytes={last}-"), last..size),
        ("bytes=-10".to_owned(), size - 10..size),
        (format!("bytes=-{}", 2 * size), 0..size),
        (format!("bytes={}-{}", 1 << 20, 2 << 20), 1 << 20..(2 << 20) + 1),
    ];
    for (range, expected) in cases {
        let got = s.sdk.get_object().bucket(BUCKET).key("key").range(&range).send().await.unwrap();
        let content_range = format!("bytes {}-{}/{size}", expected.start, expected.end - 1);
        assert_eq!(got.content_range(), Some(content_range.as_str()), "{range}");
        assert_eq!(got.content_length(), Some(expected.len() as i64), "{range}");
        assert!(got.body.collect().await.unwrap().into_bytes() == body.slice(expected), "{range}");
    }
    s.put("empty", "").await;
    let unsatisfiable = [
        ("key", format!("bytes={size}-")),
        ("key", "bytes=-0".into()),
        ("empty", "bytes=0-".into()),
        ("empty", "bytes=-1".into()),
    ];
    for (key, range) in unsatisfiable {
        let refused = s.sdk.get_object().bucket(BUCKET).key(key).range(&range).send().await.unwrap_err();
        assert_eq!(refusal(&refused), (416, "InvalidRange"), "{key} {range}");
    }
    let store = s.object_store(true);
    assert_eq!(store.get_range(&Path::from("key"), 3..9).await.unwrap(), body.slice(3..9));
    let suffix = GetOptions { range: Some(GetRange::Suffix(4)), ..GetOptions::default() };
    let got = store.get_opts(&Path::from("key"), suffix).await.unwrap();
    assert_eq!(got.bytes().await.unwrap(), body.slice(size - 4..));
}

async fn reads_under_conditions(s: &TestServer) {
    let etag = s.put("key", "value").await;
    let get = || s.sdk.get_object().bucket(BUCKET).key("key");
    let head = || s.sdk.head_object().bucket(BUCKET).key("key");
    get().if_match(&etag).if_none_match("\"other\"").send().await.unwrap();
    assert_eq!(refusal(&get().if_match("\"other\"").send().await.unwrap_err()), (412, "PreconditionFailed"));
    assert_eq!(refusal(&get().if_none_match(&etag).send().await.unwrap_err()).0, 304);
    assert_eq!(refusal(&get().if_none_match("*").send().await.unwrap_err()).0, 304);
    assert_eq!(refusal(&head().if_match("\"other\"").send().await.unwrap_err()).0, 412);
    assert_eq!(refusal(&head().if_none_match(&etag).send().await.unwrap_err()).0, 304);

    let modified = head().send().await.unwrap().last_modified.unwrap();
    let earlier = aws_sdk_s3::primitives::DateTime::from_secs(modified.secs() - 1);
    assert_eq!(refusal(&get().if_modified_since(modified).send().await.unwrap_err()).0, 304);
    get().if_modified_since(earlier).send().await.unwrap();
    get().if_unmodified_since(modified).send().await.unwrap();
    assert_eq!(refusal(&get().if_unmodified_since(earlier).send().await.unwrap_err()).0, 412);
    // An ETag outranks a time.
    get().if_match(&etag).if_unmodified_since(earlier).send().await.unwrap();
}

async fn copies(s: &TestServer) {
    let body = Bytes::from(vec![7; (2 << 20) + 1]);
    let put = s.sdk.put_object().bucket(BUCKET).key("a b/ü").body(body.clone().into());
    put.content_type("text/plain").metadata("colour", "blue").send().await.unwrap();
    let source = format!("{BUCKET}/a%20b/%C3%BC");
    let copy = |to: &str| s.sdk.copy_object().bucket(BUCKET).key(to).copy_source(&source);
    copy("kept").send().await.unwrap();
    assert!(s.get("kept").await.unwrap() == body);
    let head = s.sdk.head_object().bucket(BUCKET).key("kept").send().await.unwrap();
    assert_eq!(
        (head.content_type(), head.metadata().unwrap()["colour"].as_str()),
        (Some("text/plain"), "blue")
    );

    let replaced = copy("new").metadata_directive(MetadataDirective::Replace).content_type("text/csv");
    replaced.send().await.unwrap();
    let head = s.sdk.head_object().bucket(BUCKET).key("new").send().await.unwrap();
    assert_eq!(head.content_type(), Some("text/csv"));
    assert!(head.metadata().is_none_or(|metadata| metadata.is_empty()));

    let changed = copy("x").copy_source_if_match("\"other\"").send().await.unwrap_err();
    assert_eq!(refusal(&changed), (412, "PreconditionFailed"));
    let same = copy("x").copy_source_if_none_match(head.e_tag().unwrap()).send().await;
    assert!(same.is_ok());
    let absent = s.sdk.copy_object().bucket(BUCKET).key("y").copy_source(format!("{BUCKET}/none"));
    assert_eq!(refusal(&absent.send().await.unwrap_err()), (404, "NoSuchKey"));

    let store = s.object_store(true);
    store.rename(&Path::from("kept"), &Path::from("renamed")).await.unwrap();
    assert!(s.get("renamed").await.unwrap() == body);
    assert_eq!(s.get("kept").await, None);
}

async fn deletes(s: &TestServer) {
    for key in ["a", "b", "c", "d&<>\"'"] {
        s.put(key, key.to_owned()).await;
    }
    s.sdk.delete_object().bucket(BUCKET).key("a").send().await.unwrap();
    s.sdk.delete_object().bucket(BUCKET).key("a").send().await.unwrap();
    assert_eq!(s.get("a").await, None);

    let many = |keys: &[&str], quiet| {
        let objects = keys.iter().map(|key| ObjectIdentifier::builder().key(*key).build().unwrap());
        let delete = Delete::builder().set_objects(Some(objects.collect())).quiet(quiet).build().unwrap();
        s.sdk.delete_objects().bucket(BUCKET).delete(delete).send()
    };
    let answer = many(&["b", "d&<>\"'", "never"], false).await.unwrap();
    let deleted: Vec<_> = answer.deleted().iter().map(|object| object.key().unwrap()).collect();
    assert_eq!(deleted, ["b", "d&<>\"'", "never"]);
    assert!(many(&["c"], true).await.unwrap().deleted().is_empty());
    for key in ["b", "c", "d&<>\"'"] {
        assert_eq!(s.get(key).await, None);
    }
    s.put("e", "e").await;
    s.object_store(true).delete(&Path::from("e")).await.unwrap();
    assert_eq!(s.get("e").await, None);
}

async fn unknown_operations_are_refused(s: &TestServer) {
    let versioning = s.sdk.get_bucket_versioning().bucket(BUCKET).send().await.unwrap_err();
    assert_eq!(refusal(&versioning), (501, "NotImplemented"));
    let version = s.sdk.get_object().bucket(BUCKET).key("key").version_id("3").send().await.unwrap_err();
    assert_eq!(refusal(&version), (501, "NotImplemented"));
    let append = s.sdk.put_object().bucket(BUCKET).key("key").write_offset_bytes(3).send().await.unwrap_err();
    assert_eq!(refusal(&append), (501, "NotImplemented"));
}

async fn absent_buckets_are_named(s: &TestServer) {
    let expected = (404, "NoSuchBucket");
    assert_eq!(refusal(&s.sdk.get_object().bucket("none").key("k").send().await.unwrap_err()), expected);
    assert_eq!(refusal(&s.sdk.put_object().bucket("none").key("k").send().await.unwrap_err()), expected);
    assert_eq!(refusal(&s.sdk.delete_object().bucket("none").key("k").send().await.unwrap_err()), expected);
    assert_eq!(refusal(&s.sdk.list_objects_v2().bucket("none").send().await.unwrap_err()), expected);
    assert_eq!(refusal(&s.sdk.delete_bucket().bucket("none").send().await.unwrap_err()), expected);
    let upload = s.sdk.create_multipart_upload().bucket("none").key("k").send().await.unwrap_err();
    assert_eq!(refusal(&upload), expected);
}

/// Bodies in signed chunks with a trailing checksum, which is what most SDKs send by themselves.
async fn the_sdk_with_its_default_checksums(s: &TestServer) {
    use aws_sdk_s3::config::{RequestChecksumCalculation, ResponseChecksumValidation};
    let config = s.sdk.config().to_builder();
    let config = config.request_checksum_calculation(RequestChecksumCalculation::WhenSupported);
    let config = config.response_checksum_validation(ResponseChecksumValidation::WhenSupported);
    let sdk = aws_sdk_s3::Client::from_conf(config.build());
    let body = Bytes::from(vec![9; 3_000_000]);
    sdk.put_object().bucket(BUCKET).key("key").body(body.clone().into()).send().await.unwrap();
    let got = sdk.get_object().bucket(BUCKET).key("key").send().await.unwrap();
    assert!(got.body.collect().await.unwrap().into_bytes() == body);
}

async fn readers_see_whole_objects_while_they_are_replaced(s: &TestServer) {
    // Small ones are replaced between a reader's look-up and its opening, large ones while it reads.
    for (size, writes) in [(100, 300), (2_000_000, 20)] {
        s.put("key", vec![0; size]).await;
        let (stop, stopped) = tokio::sync::watch::channel(());
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let (get, stopped) = (s.sdk.get_object().bucket(BUCKET).key("key"), stopped.clone());
                tokio::spawn(async move {
                    while stopped.has_changed().is_ok() {
                        let answer = get.clone().send().await.unwrap();
                        let got = answer.body.collect().await.unwrap().into_bytes();
                        let value = got[0];
                        assert_eq!(got.len(), size + usize::from(value));
                        assert!(got.iter().all(|byte| *byte == value), "a mix of two writes");
                    }
                })
            })
            .collect();
        for i in 1..=writes {
            let value = (i % 250) as u8;
            s.put("key", vec![value; size + usize::from(value)]).await;
        }
        drop(stop);
        for reader in readers {
            reader.await.unwrap();
        }
    }
}
