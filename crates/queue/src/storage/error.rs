//! What can go wrong with a store, in one line that says what to do about it.

use std::error::Error;

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};

use super::retry::RequestFailed;

/// A failure of the store; its text is one line.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// It answers that it can't just now.
    #[error("{0}")]
    Failing(String),
    /// It refuses the credentials: no request succeeds until they are others.
    #[error("{0}")]
    Credentials(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// How servers that speak TLS answer plain HTTP: those written in Go, nginx, Apache.
const WANTS_TLS: &[&str] =
    &["HTTP request to an HTTPS server", "HTTP request was sent to HTTPS port", "SSL-enabled server port"];

/// What to do about an endpoint that doesn't answer, where nothing more is known.
pub(crate) const CHECK: &str = "check the endpoint";

/// What to do about an endpoint that doesn't answer, where the connection's error says enough.
pub(crate) fn advice(detail: &str) -> Option<&'static str> {
    let advice: &[(&[&str], &str)] = &[
        (&["InvalidContentType"], "no TLS is spoken there: is it http://?"),
        (&["invalid HTTP version"], PLAIN_HTTP),
        (WANTS_TLS, PLAIN_HTTP),
        (
            &["CaUsedAsEndEntity"],
            "its certificate is that of an authority; a server needs one that is signed by an authority (--ca-cert)",
        ),
        (&["UnknownIssuer"], "give the certificate of the authority that signed its own as --ca-cert"),
        (
            &["NotValidForName", "not valid for name"],
            "its certificate is that of another host; check the endpoint",
        ),
    ];
    let mut known = advice.iter();
    known.find(|(words, _)| words.iter().any(|word| detail.contains(word))).map(|(_, advice)| *advice)
}

const PLAIN_HTTP: &str = "no plain HTTP is spoken there: is it https://?";

impl StorageError {
    /// Sorts an error of the AWS SDK about `place`.
    pub(super) fn from_sdk<E>(place: String, error: &SdkError<E>) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        let unreachable = |detail: &str| {
            let advice = advice(detail).unwrap_or(CHECK);
            Self::Other(format!("the store does not answer: {detail}; {advice} ({place})"))
        };
        if matches!(error, SdkError::DispatchFailure(_) | SdkError::TimeoutError(_)) {
            return unreachable(&one_line(error));
        }
        let response = error.raw_response();
        let header = |name: &str| response.and_then(|response| response.headers().get(name));
        let status = response.map(|response| response.status().as_u16());
        let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
        let message = error.as_service_error().and_then(ProvideErrorMetadata::message).unwrap_or_default();
        let body = response.and_then(|response| response.body().bytes()).unwrap_or_default();
        let body = String::from_utf8_lossy(body);
        let wrong_region = |detail: String| {
            Self::Other(format!(
                "the store is in another region than requests are signed for ({detail}); give --region ({place})"
            ))
        };
        match (code, status) {
            (None, Some(400)) if let Some(words) = WANTS_TLS.iter().find(|words| body.contains(*words)) => {
                unreachable(words)
            }
            (None, Some(answered @ (200..=399 | 404 | 405)))
                if !body.is_empty() && !body.contains("<Error>") =>
            {
                let kind = header("content-type").map(|kind| format!(", {}", compact(kind)));
                Self::Other(format!(
                    "what answers at {place} is no S3 server (it answers {answered}{}); check the endpoint, its path too",
                    kind.unwrap_or_default()
                ))
            }
            (Some("AuthorizationHeaderMalformed"), _) if message.contains("region") => {
                wrong_region(compact(message))
            }
            (_, Some(301)) | (Some("PermanentRedirect" | "IllegalLocationConstraintException"), _) => {
                wrong_region(match header("x-amz-bucket-region") {
                    Some(region) => format!("it is in {region}"),
                    None if message.is_empty() => "it doesn't say which".to_owned(),
                    None => compact(message),
                })
            }
            (Some(code), _) if let Some(refused) = Self::of_credentials(&place, code) => refused,
            (Some("NoSuchBucket"), _) => {
                Self::Other(format!("no {place}; create it, or give --create-bucket"))
            }
            (_, Some(401 | 403)) => Self::denied(&place, code.unwrap_or("no reason given")),
            (_, Some(429 | 500..)) => Self::Failing(format!("{place} fails: {}", one_line(error))),
            _ => Self::Other(format!("{place}: {}", one_line(error))),
        }
    }

    /// The credentials are good, but not for this.
    pub(super) fn denied(place: &str, detail: &str) -> Self {
        Self::Other(format!(
            "access denied to {place} ({detail}); the policy must allow list, get, put and delete"
        ))
    }

    /// What S3's code says of the credentials, if anything.
    fn of_credentials(place: &str, code: &str) -> Option<Self> {
        // Where AWS issues credentials, some renew themselves.
        let renewing = match place.contains("on AWS S3") {
            true => "; those of a profile, SSO or an instance role renew themselves",
            false => "",
        };
        let text = match code {
            "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "AuthorizationHeaderMalformed"
            | "InvalidToken" => {
                format!(
                    "the store rejects the credentials ({code}): check the access key and the secret key for {place}"
                )
            }
            "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" => format!(
                "the credentials for {place} have expired ({code}); renew them and start again{renewing}"
            ),
            // Signatures carry a time.
            "RequestTimeTooSkewed" => format!(
                "the store finds this host's clock too far from its own ({code}); set the clock ({place})"
            ),
            _ => return None,
        };
        Some(Self::Credentials(text))
    }

    /// What a failed request says of the credentials, if anything.
    pub(crate) fn of_refusal(place: &str, error: &(dyn Error + 'static)) -> Option<Self> {
        Self::of_credentials(place, RequestFailed::among_causes(error)?.outcome.code.as_deref()?)
    }

    pub(super) fn from_object_store(error: object_store::Error) -> Self {
        Self::Other(one_line(&error))
    }
}

/// An error and its causes on one line: each said once, without a backtrace (delta-rs's kernel adds one), and of an S3
/// error body only the code and the message.
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
    fn a_server_that_shows_the_certificate_of_an_authority_is_given_advice() {
        // Given as --ca-cert, it would be refused as well.
        let advice = advice("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))").unwrap();
        assert!(advice.contains("that of an authority") && advice.contains("signed by"), "{advice}");
    }

    #[test]
    fn credentials_that_renew_themselves_are_advised_where_there_are_any() {
        let expired = |place: &str| StorageError::of_credentials(place, "ExpiredToken").unwrap().to_string();
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
