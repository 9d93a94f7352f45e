//! Multipart uploads.

use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use super::{BUCKET, TestServer, on_both_stores, refusal};

on_both_stores!(
    parts_become_an_object,
    completion_under_conditions,
    what_is_refused,
    aborted_uploads_are_gone,
    object_store_uploads,
);

const PART: usize = 5 << 20;

async fn begin(s: &TestServer) -> String {
    let request = s.sdk.create_multipart_upload().bucket(BUCKET).key("key").content_type("text/plain");
    request.metadata("colour", "blue").send().await.unwrap().upload_id.unwrap()
}

async fn part(s: &TestServer, id: &str, number: i32, body: Bytes) -> CompletedPart {
    let request = s.sdk.upload_part().bucket(BUCKET).key("key").upload_id(id);
    let etag = request.part_number(number).body(body.into()).send().await.unwrap().e_tag.unwrap();
    CompletedPart::builder().part_number(number).e_tag(etag).build()
}

fn complete(
    s: &TestServer,
    id: &str,
    parts: &[&CompletedPart],
) -> aws_sdk_s3::operation::complete_multipart_upload::builders::CompleteMultipartUploadFluentBuilder {
    let parts = parts.iter().map(|part| (*part).clone()).collect();
    let upload = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
    s.sdk.complete_multipart_upload().bucket(BUCKET).key("key").upload_id(id).multipart_upload(upload)
}

async fn parts_become_an_object(s: &TestServer) {
    let id = begin(s).await;
    let (one, three) = (Bytes::from(vec![1; PART + 3]), Bytes::from("end"));
    // Out of order, one of them twice, and one that is not used.
    let last = part(s, &id, 3, three.clone()).await;
    part(s, &id, 1, Bytes::from("replaced")).await;
    let first = part(s, &id, 1, one.clone()).await;
    part(s, &id, 7, Bytes::from("unused")).await;

    let list = s.sdk.list_parts().bucket(BUCKET).key("key").upload_id(&id).max_parts(2).send().await.unwrap();
    let numbers: Vec<_> = list.parts().iter().map(|part| part.part_number().unwrap()).collect();
    assert_eq!((numbers.as_slice(), list.is_truncated()), ([1, 3].as_slice(), Some(true)));
    assert_eq!(list.parts()[0].size(), Some(one.len() as i64));
    assert_eq!(s.get("key").await, None, "seen before it is complete");

    let done = complete(s, &id, &[&first, &last]).send().await.unwrap();
    let got = s.sdk.get_object().bucket(BUCKET).key("key").send().await.unwrap();
    assert_eq!(got.e_tag(), done.e_tag());
    assert_eq!(got.content_type(), Some("text/plain"));
    assert_eq!(got.metadata().unwrap()["colour"], "blue");
    assert!(got.body.collect().await.unwrap().into_bytes() == [one, three].concat());
    let again = complete(s, &id, &[&first, &last]).send().await.unwrap_err();
    assert_eq!(refusal(&again), (404, "NoSuchUpload"));
}

async fn completion_under_conditions(s: &TestServer) {
    let etag = s.put("key", "old").await;
    let id = begin(s).await;
    let only = part(s, &id, 1, Bytes::from("new")).await;
    let refused = complete(s, &id, &[&only]).if_none_match("*").send().await.unwrap_err();
    assert_eq!(refusal(&refused), (412, "PreconditionFailed"));
    let refused = complete(s, &id, &[&only]).if_match("\"x\"").send().await.unwrap_err();
    assert_eq!(refusal(&refused), (412, "PreconditionFailed"));
    assert_eq!(s.get("key").await, Some(Bytes::from("old")));
    complete(s, &id, &[&only]).if_match(etag).send().await.unwrap();
    assert_eq!(s.get("key").await, Some(Bytes::from("new")));
}

async fn what_is_refused(s: &TestServer) {
    let id = begin(s).await;
    let one = part(s, &id, 1, Bytes::from("small")).await;
    let two = part(s, &id, 2, Bytes::from("small")).await;
    let wrong = CompletedPart::builder().part_number(1).e_tag("\"x\"").build();
    let absent = CompletedPart::builder().part_number(9).e_tag("\"x\"").build();
    let cases: [(&[&CompletedPart], _); 5] = [
        (&[&one, &two], (400, "EntityTooSmall")),
        (&[&two, &one], (400, "InvalidPartOrder")),
        (&[&wrong], (400, "InvalidPart")),
        (&[&absent], (400, "InvalidPart")),
        (&[], (400, "MalformedXML")),
    ];
    for (parts, expected) in cases {
        assert_eq!(refusal(&complete(s, &id, parts).send().await.unwrap_err()), expected);
    }
    for number in [0, 10_001] {
        let request = s.sdk.upload_part().bucket(BUCKET).key("key").upload_id(&id).part_number(number);
        assert_eq!(refusal(&request.send().await.unwrap_err()), (400, "InvalidArgument"));
    }
    let elsewhere = s.sdk.upload_part().bucket(BUCKET).key("other").upload_id(&id).part_number(1);
    assert_eq!(refusal(&elsewhere.send().await.unwrap_err()), (404, "NoSuchUpload"));
    assert_eq!(s.get("key").await, None);
}

async fn aborted_uploads_are_gone(s: &TestServer) {
    let id = begin(s).await;
    let only = part(s, &id, 1, Bytes::from("new")).await;
    let abort = || s.sdk.abort_multipart_upload().bucket(BUCKET).key("key").upload_id(&id).send();
    abort().await.unwrap();
    assert_eq!(refusal(&abort().await.unwrap_err()), (404, "NoSuchUpload"));
    assert_eq!(refusal(&complete(s, &id, &[&only]).send().await.unwrap_err()), (404, "NoSuchUpload"));
    assert_eq!(s.get("key").await, None);
}

async fn object_store_uploads(s: &TestServer) {
    let store = s.object_store(false);
    let key = Path::from("key");
    let mut upload = store.put_multipart(&key).await.unwrap();
    upload.put_part(PutPayload::from(vec![1; PART])).await.unwrap();
    upload.put_part(PutPayload::from(vec![2; 10])).await.unwrap();
    upload.complete().await.unwrap();
    let got = store.get(&key).await.unwrap().bytes().await.unwrap();
    assert!(got == [vec![1; PART], vec![2; 10]].concat());
    let mut upload = store.put_multipart(&Path::from("never")).await.unwrap();
    upload.put_part(PutPayload::from(vec![1; PART])).await.unwrap();
    upload.abort().await.unwrap();
    assert_eq!(s.get("never").await, None);
}
