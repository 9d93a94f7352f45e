//! What can go wrong with a store, in one line that says what to do about it.

use std::error::Error;
use std::io;

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use rustix::io::Errno;
use url::{Position, Url};

use super::retry::{Outcome, RequestFailed, is_not_now};

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
        if is_out_of_files(error) {
            return Self::out_of_files();
        }
        if matches!(error, SdkError::DispatchFailure(_) | SdkError::TimeoutError(_)) {
            return unreachable(&one_line(error));
        }
        let Some(response) = error.raw_response() else {
            return Self::Other(format!("{place}: {}", one_line(error)));
        };
        let header = |name: &str| response.headers().get(name);
        let (status, body) = (response.status().as_u16(), response.body().bytes().unwrap_or_default());
        let answer = Outcome::of(status, header, body);
        let body = String::from_utf8_lossy(body);
        if let Some(words) = WANTS_TLS.iter().find(|words| status == 400 && body.contains(*words)) {
            return unreachable(words);
        }
        // One within the same host leads to a login page.
        let leads_elsewhere = answer.location.as_deref().is_some_and(|location| location.contains("://"));
        let is_no_error = !body.is_empty() && !body.contains("<Error>") && !leads_elsewhere;
        if is_no_error && answer.code.is_none() && matches!(status, 200..=399 | 404 | 405) {
            let kind = header("content-type").map(|kind| format!(", {}", compact(kind))).unwrap_or_default();
            return Self::Other(format!(
                "what answers at {place} is no S3 server (it answers {status}{kind}); check the endpoint, its path too"
            ));
        }
        if let Some(region) = header("x-amz-bucket-region").filter(|_| (300..400).contains(&status)) {
            return Self::wrong_region(&place, &format!("it is in {region}"));
        }
        Self::of_answer(&place, &answer).unwrap_or_else(|| match status {
            401 | 403 => Self::denied(&place, answer.code.as_deref(), answer.message.as_deref()),
            status if is_not_now(status) => Self::Failing(format!("{place} fails: {}", one_line(error))),
            _ => Self::Other(format!("{place}: {}", one_line(error))),
        })
    }

    fn out_of_files() -> Self {
        Self::Other(
            "this process can't open another file or connection; raise the limit (ulimit -n)".to_owned(),
        )
    }

    fn wrong_region(place: &str, detail: &str) -> Self {
        Self::Other(format!(
            "the store is in another region than requests are signed for ({detail}); give --region ({place})"
        ))
    }

    /// The credentials are good, but not for this. The store's own sentence says more than its code.
    fn denied(place: &str, code: Option<&str>, message: Option<&str>) -> Self {
        let said = [code, message].into_iter().flatten().collect::<Vec<_>>().join(": ");
        let said = if said.is_empty() { "no reason given" } else { &said };
        Self::Other(format!(
            "access denied to {place} ({said}); the policy must allow list, get, put and delete"
        ))
    }

    /// What a refusal comes from and what to do about it, where status, code or headers of the answer say that.
    fn of_answer(place: &str, answer: &Outcome) -> Option<Self> {
        if answer.is_out_of_files {
            return Some(Self::out_of_files());
        }
        let code = answer.code.as_deref().unwrap_or_default();
        let message = answer.message.as_deref().unwrap_or_default();
        let said = if message.is_empty() { code.to_owned() } else { format!("{code}: {message}") };
        let is_redirect = answer.status.is_some_and(|status| (300..400).contains(&status));
        if let Some(target) = answer.location.as_deref().filter(|_| is_redirect) {
            let target = Url::parse(target)
                .map_or_else(|_| target.to_owned(), |url| url[..Position::AfterPort].to_owned());
            return Some(Self::Other(format!(
                "{place} redirects to {target}, where signed requests are not sent; if the store is there, give that as \
                 the endpoint"
            )));
        }
        // Where AWS issues credentials, some renew themselves.
        let renewing = match place.contains("on AWS S3") {
            true => "; those of a profile, SSO or an instance role renew themselves",
            false => "",
        };
        let text = match code {
            "AuthorizationHeaderMalformed" if message.contains("region") => {
                return Some(Self::wrong_region(place, message));
            }
            "PermanentRedirect" | "IllegalLocationConstraintException" => {
                return Some(Self::wrong_region(place, &said));
            }
            "" if is_redirect => return Some(Self::wrong_region(place, "it doesn't say which")),
            "NoSuchBucket" => {
                return Some(Self::Other(format!("no {place}; create it, or give --create-bucket")));
            }
            "SecondLevelDomainForbidden" | "VirtualHostDomainRequired" => {
                return Some(Self::Other(format!(
                    "{place} wants the bucket in the host's name ({said}); give --addressing virtual"
                )));
            }
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
            "RequestTimeTooSkewed" => {
                let by = match answer.clock_offset_seconds {
                    Some(seconds @ 1..) => format!("{seconds} s behind the store's"),
                    Some(seconds @ ..0) => format!("{} s ahead of the store's", -seconds),
                    Some(0) | None => "too far from the store's".to_owned(),
                };
                format!("this host's clock is {by} ({code}); set it right ({place})")
            }
            _ => return None,
        };
        Some(Self::Credentials(text))
    }

    /// What a failed request says of its cause, where that is known and won't change by itself.
    pub(crate) fn of_failure(place: &str, error: &(dyn Error + 'static)) -> Option<Self> {
        Self::of_answer(place, &RequestFailed::among_causes(error)?.outcome)
    }

    /// What a request of `what` failed for.
    pub(super) fn of_request(place: &str, what: &str, error: &object_store::Error) -> Self {
        use object_store::Error::{PermissionDenied, Unauthenticated};
        let outcome = RequestFailed::among_causes(error).map(|failed| &failed.outcome);
        match (Self::of_failure(place, error), outcome) {
            (Some(known), _) => known,
            (None, Some(outcome)) if matches!(error, PermissionDenied { .. } | Unauthenticated { .. }) => {
                let message = outcome
                    .message
                    .as_deref()
                    .map_or_else(|| what.to_owned(), |said| format!("{what}: {said}"));
                Self::denied(place, outcome.code.as_deref(), Some(&message))
            }
            _ => Self::Other(format!("{what} on {place}: {}", one_line(error))),
        }
    }

    pub(super) fn from_object_store(error: object_store::Error) -> Self {
        Self::Other(one_line(&error))
    }
}

/// Whether this process, or the system, has as many files open as it may.
pub(super) fn is_out_of_files(error: &(dyn Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |cause| (*cause).source());
    let mut numbers = causes.filter_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error());
    numbers.any(|number| [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error).contains(&number))
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

pub(super) fn compact(text: &str) -> String {
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
        let answer = Outcome { code: Some("ExpiredToken".to_owned()), ..Outcome::default() };
        let expired = |place: &str| StorageError::of_answer(place, &answer).unwrap().to_string();
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
