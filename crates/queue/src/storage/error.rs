//! What can go wrong with a store, sorted by what the reader should do about it.

use std::error::Error;

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};

use super::retry::RequestFailed;

/// A failure of the store; its text is one line and says which.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Nothing answers.
    #[error("the store does not answer: {detail}; {} ({place})", advice(.detail).unwrap_or(CHECK))]
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
    /// What answers there knows no S3.
    #[error("what answers at {place} is no S3 server ({detail}); check the endpoint, its path too")]
    NotS3 {
        /// Which store.
        place: String,
        /// What it answered.
        detail: String,
    },
    /// The store is in another region than requests are signed for.
    #[error(
        "the store is in another region than requests are signed for ({detail}); give --region ({place})"
    )]
    WrongRegion {
        /// Which store.
        place: String,
        /// What the store said.
        detail: String,
    },
    /// The credentials were good once.
    #[error(
        "the credentials for {place} have expired ({code}); renew them and start again{}", renewing(.place)
    )]
    ExpiredCredentials {
        /// Which store.
        place: String,
        /// S3's error code.
        code: String,
    },
    /// Signatures carry a time.
    #[error("the store finds this host's clock too far from its own ({code}); set the clock ({place})")]
    ClockOff {
        /// Which store.
        place: String,
        /// S3's error code.
        code: String,
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
const WRONG: &[&str] =
    &["InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthorizationHeaderMalformed", "InvalidToken"];
/// For a key that isn't good any more.
const EXPIRED: &[&str] = &["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"];
/// For a signature of another time.
const CLOCK: &[&str] = &["RequestTimeTooSkewed"];

/// Where AWS issues credentials, some renew themselves.
fn renewing(place: &str) -> &'static str {
    if place.contains("on AWS S3") {
        "; those of a profile, SSO or an instance role renew themselves"
    } else {
        ""
    }
}

/// How servers that speak TLS answer plain HTTP: those written in Go, nginx, Apache.
const WANTS_TLS: &[&str] =
    &["HTTP request to an HTTPS server", "HTTP request was sent to HTTPS port", "SSL-enabled server port"];

/// What to do where nothing more is known.
pub const CHECK: &str = "check the endpoint";

/// What to do about an endpoint that doesn't answer, where what the connection said tells.
pub fn advice(detail: &str) -> Option<&'static str> {
    let says = |words: &[&str]| words.iter().any(|word| detail.contains(word));
    if says(&["InvalidContentType"]) {
        Some("no TLS is spoken there: is it http://?")
    } else if says(&["invalid HTTP version"]) || says(WANTS_TLS) {
        Some("no plain HTTP is spoken there: is it https://?")
    } else if says(&["CaUsedAsEndEntity"]) {
        Some(
            "its certificate is that of an authority; a server needs one that is signed by an authority (--ca-cert)",
        )
    } else if says(&["UnknownIssuer"]) {
        Some("give the certificate of the authority that signed its own as --ca-cert")
    } else if says(&["NotValidForName", "not valid for name"]) {
        Some("its certificate is that of another host; check the endpoint")
    } else {
        None
    }
}

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
        let message = error.as_service_error().and_then(ProvideErrorMetadata::message).unwrap_or_default();
        let region = error.raw_response().and_then(|response| response.headers().get("x-amz-bucket-region"));
        let body = error.raw_response().and_then(|response| response.body().bytes()).unwrap_or_default();
        let body = String::from_utf8_lossy(body);
        match (code, status) {
            // What listens there speaks TLS.
            (None, Some(400)) if let Some(words) = WANTS_TLS.iter().find(|words| body.contains(*words)) => {
                Self::Unreachable { place, detail: (*words).to_owned() }
            }
            (None, Some(answered @ (200..=399 | 404 | 405)))
                if !body.is_empty() && !body.contains("<Error>") =>
            {
                let kind = error.raw_response().and_then(|response| response.headers().get("content-type"));
                let kind = kind.map(|kind| format!(", {}", compact(kind))).unwrap_or_default();
                Self::NotS3 { place, detail: format!("it answers {answered}{kind}") }
            }
            (Some("AuthorizationHeaderMalformed"), _) if message.contains("region") => {
                Self::WrongRegion { place, detail: compact(message) }
            }
            (_, Some(301)) | (Some("PermanentRedirect" | "IllegalLocationConstraintException"), _) => {
                let detail = match region {
                    Some(region) => format!("it is in {region}"),
                    None if message.is_empty() => "it doesn't say which".to_owned(),
                    None => compact(message),
                };
                Self::WrongRegion { place, detail }
            }
            (Some(code), _) if let Some(refused) = Self::of_credentials(&place, code) => refused,
            (Some("NoSuchBucket"), _) => Self::NoBucket { place },
            (Some(code), Some(401 | 403)) => Self::Denied { place, detail: code.to_owned() },
            (None, Some(401 | 403)) => Self::Denied { place, detail: "no reason given".to_owned() },
            (_, Some(429 | 500..)) => Self::Failing { place, detail: one_line(error) },
            _ => Self::Other(format!("{place}: {}", one_line(error))),
        }
    }

    /// Whether the store answers, and can't do it just now.
    pub fn is_failing(&self) -> bool {
        matches!(self, Self::Failing { .. })
    }

    /// Whether the credentials are what is wrong, so that no request will fare better.
    pub fn is_of_credentials(&self) -> bool {
        matches!(
            self,
            Self::ExpiredCredentials { .. } | Self::ClockOff { .. } | Self::WrongCredentials { .. }
        )
    }

    /// What S3's code says of the credentials, if anything.
    fn of_credentials(place: &str, code: &str) -> Option<Self> {
        let (place, code) = (place.to_owned(), code.to_owned());
        match code.as_str() {
            known if WRONG.contains(&known) => Some(Self::WrongCredentials { place, code }),
            known if EXPIRED.contains(&known) => Some(Self::ExpiredCredentials { place, code }),
            known if CLOCK.contains(&known) => Some(Self::ClockOff { place, code }),
            _ => None,
        }
    }

    /// What a failed request says of the credentials, if anything: no request will fare better until they are others.
    pub fn of_refusal(place: &str, error: &(dyn Error + 'static)) -> Option<Self> {
        Self::of_credentials(place, RequestFailed::among_causes(error)?.outcome.code.as_deref()?)
    }

    /// Wraps an error of `object_store`, keeping what matters on one line.
    pub fn from_object_store(error: object_store::Error) -> Self {
        Self::Other(one_line(&error))
    }
}

/// An error and its causes on one line: no repetition of what the outer text already says, no line
/// breaks, no backtrace (which delta-rs's kernel adds where RUST_BACKTRACE is set), and of an S3 error
/// body only the code and the message.
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
    // A backtrace begins with the line of its frame 0.
    let frame = |line: &&str| line.starts_with(' ') && line.trim_start().starts_with("0: ");
    let text = match text.lines().find(frame) {
        Some(line) => &text[..line.as_ptr() as usize - text.as_ptr() as usize],
        None => text,
    };
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

pub(super) fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
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
    fn a_server_that_shows_the_certificate_of_an_authority_is_told_what_it_needs() {
        // Given as --ca-cert, it would be refused as well.
        let advice = advice("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))").unwrap();
        assert!(advice.contains("that of an authority") && advice.contains("signed by"), "{advice}");
    }

    #[test]
    fn credentials_that_renew_themselves_are_advised_where_there_are_any() {
        let expired = |place: &str| {
            StorageError::ExpiredCredentials { place: place.to_owned(), code: "ExpiredToken".to_owned() }
                .to_string()
        };
        assert!(expired("bucket `b` on AWS S3 in eu-west-1").contains("SSO"));
        assert!(!expired("bucket `b` at http://127.0.0.1:9000").contains("SSO"));
    }

    #[test]
    fn a_backtrace_is_left_out() {
        let error = Outer(std::io::Error::other(
            "a cause\n   0: std::backtrace::create\n             at lib.rs:331:13\n",
        ));
        assert_eq!(one_line(&error), "outer: a cause");
        assert_eq!(compact("at 10: none"), "at 10: none");
    }

    #[test]
    fn an_error_body_is_cut_to_code_and_message() {
        let body = "status 403: <?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code><Message>No way</Message><HostId>x</HostId></Error> at the end";
        assert_eq!(compact(body), "status 403: AccessDenied No way at the end");
    }
}
