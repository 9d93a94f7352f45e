//! What can go wrong with a store, sorted by what the reader should do about it.

use std::error::Error;

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};

/// A failure of the store; its text is one line and says which.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Nothing answers.
    #[error("the store does not answer: {detail}; check the endpoint ({place})")]
    Unreachable {
        /// Which store.
        place: String,
        /// What the connection said.
        detail: String,
    },
    /// It answers that it can't just now.
    #[error("{place} fails: {detail}")]
    Failing {
        /// Which store.
        place: String,
        /// What it said.
        detail: String,
    },
    /// The store rejects the key or its signature.
    #[error(
        "the store rejects the credentials ({code}): check the access key and the secret key for {place}"
    )]
    WrongCredentials {
        /// Which store.
        place: String,
        /// S3's error code.
        code: String,
    },
    /// No credentials were found at all.
    #[error(
        "no AWS credentials found ({detail}); set AWS_S3_ACCESS_KEY and AWS_S3_SECRET_ACCESS_KEY, or a profile"
    )]
    NoCredentials {
        /// What the chain said.
        detail: String,
    },
    /// The bucket isn't there.
    #[error("no {place}; create it, or give --create-bucket")]
    NoBucket {
        /// Which bucket where.
        place: String,
    },
    /// The credentials are good but not for this.
    #[error("access denied to {place} ({detail}); the policy must allow list, get, put and delete")]
    Denied {
        /// Which store.
        place: String,
        /// What the store said.
        detail: String,
    },
    /// The store took a conditional PUT whose condition did not hold.
    #[error(
        "{place} ignores `If-None-Match: *` on PUT: two producers would overwrite each other's commits; a Delta queue can't work there"
    )]
    ConditionIgnored {
        /// Which store.
        place: String,
    },
    /// A written object was not listed.
    #[error("{place} does not list an object that was just written; a queue needs consistent listings")]
    StaleList {
        /// Which store.
        place: String,
    },
    /// Somebody else's bench works on this prefix.
    #[error(
        "another bench uses {prefix} ({holder}); choose another --prefix, or wait {wait_seconds} s if it was killed"
    )]
    Locked {
        /// The prefix that both want.
        prefix: String,
        /// Who holds it.
        holder: String,
        /// After how long without a heartbeat it is taken over.
        wait_seconds: u64,
    },
    /// Anything else, with what the store said.
    #[error("{0}")]
    Other(String),
}

/// S3's codes for a key that isn't known or a signature that doesn't fit.
const CREDENTIAL_CODES: &[&str] = &[
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AuthorizationHeaderMalformed",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "RequestTimeTooSkewed",
];

impl StorageError {
    /// Sorts an error of the AWS SDK about `place`.
    pub(super) fn from_sdk<E>(place: String, error: &SdkError<E>) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        if matches!(error, SdkError::DispatchFailure(_) | SdkError::TimeoutError(_)) {
            return Self::Unreachable { place, detail: one_line(error) };
        }
        let status = error.raw_response().map(|response| response.status().as_u16());
        let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
        match (code, status) {
            (Some(code), _) if CREDENTIAL_CODES.contains(&code) => {
                Self::WrongCredentials { place, code: code.to_owned() }
            }
            (Some("NoSuchBucket"), _) => Self::NoBucket { place },
            (Some(code), Some(401 | 403)) => Self::Denied { place, detail: code.to_owned() },
            (None, Some(401 | 403)) => Self::Denied { place, detail: "no reason given".to_owned() },
            (_, Some(429 | 500..)) => Self::Failing { place, detail: one_line(error) },
            _ => Self::Other(format!("{place}: {}", one_line(error))),
        }
    }

    /// Whether the same request may succeed a little later, with nothing else changed.
    pub fn may_heal(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Failing { .. })
    }

    /// Wraps an error of `object_store`, keeping what matters on one line.
    pub fn from_object_store(error: object_store::Error) -> Self {
        Self::Other(one_line(&error))
    }
}

/// Whether what failed may succeed a little later, with nothing else changed: `object_store` is among its
/// causes and had no answer from the store, or one that says "not now" (5xx, 429, 408).
pub fn may_heal(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |cause: &&(dyn Error + 'static)| (*cause).source());
    match causes.find_map(|cause| cause.downcast_ref::<object_store::Error>()) {
        Some(error @ object_store::Error::Generic { .. }) => {
            let text = one_line(error);
            match status(&text) {
                Some(status) => matches!(status, 408 | 429 | 500..),
                None => !text.contains("redirect without LOCATION"),
            }
        }
        // The others are answers.
        Some(_) | None => false,
    }
}

/// The HTTP status that an error of `object_store` tells of, whose type it keeps to itself.
fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("non-2xx status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// An error and its causes on one line: no repetition of what the outer text already says, no line
/// breaks, and of an S3 error body only the code and the message.
pub fn one_line(error: &(dyn Error + 'static)) -> String {
    let mut text = compact(&error.to_string());
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = compact(&cause.to_string());
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

fn compact(text: &str) -> String {
    let text = match (text.find("<?xml").or_else(|| text.find("<Error>")), element(text, "Code")) {
        (Some(start), Some(code)) => {
            let message = element(text, "Message").unwrap_or_default();
            let end = text.rfind("</Error>").map_or(text.len(), |at| at + "</Error>".len());
            format!("{}{code} {message}{}", &text[..start], &text[end..])
        }
        _ => text.to_owned(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let start = text.find(&open)? + open.len();
    let end = text[start..].find(&close)? + start;
    Some(&text[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer: {0}")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn causes_are_said_once_and_on_one_line() {
        let error = Outer(std::io::Error::other("a\n  cause"));
        assert_eq!(one_line(&error), "outer: a cause");
    }

    #[test]
    fn an_error_body_is_cut_to_code_and_message() {
        let body = "status 403: <?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code><Message>No way</Message><HostId>x</HostId></Error> at the end";
        assert_eq!(compact(body), "status 403: AccessDenied No way at the end");
    }
}
