//! The operations on buckets, listing their objects among them.

use s3s::dto::*;
use s3s::{S3Result, s3_error};

use super::blob::Object as Stored;
use super::listing::{self, MAX_KEYS, Page, Position, Query, shown};
use super::objects::etag;
use super::service::Service;

/// What a client reads as "no particular region".
const REGION: &str = "us-east-1";

impl Service {
    pub(super) fn all_buckets(&self) -> ListBucketsOutput {
        let bucket = |(name, created)| Bucket {
            name: Some(name),
            creation_date: Some(Timestamp::from(created)),
            ..Bucket::default()
        };
        let owner = Owner { id: Some("s3mq".to_owned()), ..Owner::default() };
        ListBucketsOutput {
            buckets: Some(self.store.bucket_names().into_iter().map(bucket).collect()),
            owner: Some(owner),
            ..ListBucketsOutput::default()
        }
    }

    pub(super) fn describe_bucket(&self, input: &HeadBucketInput) -> S3Result<HeadBucketOutput> {
        self.store.bucket(&input.bucket)?;
        Ok(HeadBucketOutput { bucket_region: Some(REGION.to_owned()), ..HeadBucketOutput::default() })
    }

    pub(super) async fn add_bucket(&self, input: CreateBucketInput) -> S3Result<CreateBucketOutput> {
        let location = Some(format!("/{}", input.bucket));
        self.write(move |store| store.create_bucket(&input.bucket)).await?;
        Ok(CreateBucketOutput { location })
    }

    pub(super) async fn remove_bucket(&self, input: DeleteBucketInput) -> S3Result<DeleteBucketOutput> {
        self.write(move |store| store.delete_bucket(&input.bucket)).await?;
        Ok(DeleteBucketOutput::default())
    }

    pub(super) fn list_v2(&self, input: ListObjectsV2Input) -> S3Result<ListObjectsV2Output> {
        let after = match (&input.continuation_token, &input.start_after) {
            (Some(token), _) => Position::from_token(token).ok_or_else(|| {
                s3_error!(InvalidArgument, "The continuation token is not one of this server's.")
            })?,
            (None, Some(key)) => Position::Key(key.clone()),
            (None, None) => Position::Start,
        };
        let max_keys = max_keys(input.max_keys)?;
        let page = self.page(&input.bucket, &input.prefix, &input.delimiter, after, max_keys)?;
        let url = is_url(&input.encoding_type);
        let next = page.next.as_ref().map(Position::token);
        let key_count = page.objects.len() + page.prefixes.len();
        let (contents, common_prefixes) = rows(page, url);
        Ok(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: Some(shown(input.prefix.unwrap_or_default(), url)),
            delimiter: input.delimiter.map(|delimiter| shown(delimiter, url)),
            start_after: input.start_after.map(|key| shown(key, url)),
            encoding_type: input.encoding_type,
            max_keys: Some(max_keys as i32),
            key_count: Some(key_count as i32),
            continuation_token: input.continuation_token,
            is_truncated: Some(next.is_some()),
            next_continuation_token: next,
            contents: Some(contents),
            common_prefixes: Some(common_prefixes),
            ..ListObjectsV2Output::default()
        })
    }

    pub(super) fn list_v1(&self, input: ListObjectsInput) -> S3Result<ListObjectsOutput> {
        // A marker that is a common prefix, as `NextMarker` may be, has been shown with all its keys.
        let after = match (&input.marker, &input.delimiter) {
            (Some(marker), Some(delimiter)) if !delimiter.is_empty() && marker.ends_with(delimiter) => {
                Position::Prefix(marker.clone())
            }
            (Some(marker), _) => Position::Key(marker.clone()),
            (None, _) => Position::Start,
        };
        let max_keys = max_keys(input.max_keys)?;
        let mut page = self.page(&input.bucket, &input.prefix, &input.delimiter, after, max_keys)?;
        let url = is_url(&input.encoding_type);
        let next = page.next.take().map(|position| shown(position.name(), url));
        let (contents, common_prefixes) = rows(page, url);
        Ok(ListObjectsOutput {
            name: Some(input.bucket),
            prefix: Some(shown(input.prefix.unwrap_or_default(), url)),
            marker: Some(shown(input.marker.unwrap_or_default(), url)),
            delimiter: input.delimiter.map(|delimiter| shown(delimiter, url)),
            encoding_type: input.encoding_type,
            max_keys: Some(max_keys as i32),
            is_truncated: Some(next.is_some()),
            next_marker: next,
            contents: Some(contents),
            common_prefixes: Some(common_prefixes),
            ..ListObjectsOutput::default()
        })
    }

    fn page(
        &self,
        bucket: &str,
        prefix: &Option<String>,
        delimiter: &Option<String>,
        after: Position,
        max_keys: usize,
    ) -> S3Result<Page> {
        let query = Query {
            prefix: prefix.as_deref().unwrap_or_default(),
            // An empty delimiter is none.
            delimiter: delimiter.as_deref().filter(|delimiter| !delimiter.is_empty()),
            after,
            max_keys,
        };
        Ok(listing::page(&self.store.bucket(bucket)?.objects.read(), &query))
    }
}

fn max_keys(asked: Option<i32>) -> S3Result<usize> {
    match asked.map(usize::try_from) {
        None => Ok(MAX_KEYS),
        Some(Ok(count)) => Ok(count.min(MAX_KEYS)),
        Some(Err(_)) => Err(s3_error!(InvalidArgument, "max-keys must not be negative.")),
    }
}

fn is_url(encoding: &Option<EncodingType>) -> bool {
    encoding.as_ref().is_some_and(|encoding| encoding.as_str() == EncodingType::URL)
}

fn rows(page: Page, url: bool) -> (Vec<Object>, Vec<CommonPrefix>) {
    let prefix = |prefix| CommonPrefix { prefix: Some(shown(prefix, url)) };
    let object = |(key, object): (String, std::sync::Arc<Stored>)| Object {
        key: Some(shown(key, url)),
        e_tag: Some(etag(&object.about)),
        size: Some(object.about.size as i64),
        last_modified: Some(Timestamp::from(object.about.modified)),
        storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
        ..Object::default()
    };
    (page.objects.into_iter().map(object).collect(), page.prefixes.into_iter().map(prefix).collect())
}
