//! Answers that no store gave, in S3's words.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode};
use s3s::{Body, HttpResponse};

/// The answer of a request that is refused.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    /// S3's word for it: letters, digits, dots and dashes.
    pub(super) code: String,
    /// A sentence without a special character of XML.
    pub(super) message: &'static str,
}

impl Refusal {
    /// The answer, which has no body where HTTP allows none.
    pub(super) fn answer(&self, method: &Method) -> HttpResponse {
        let bodiless = *method == Method::HEAD
            || [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED]
                .contains(&self.status);
        let mut answer = HttpResponse::new(Body::empty());
        *answer.status_mut() = self.status;
        if !bodiless {
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
            *answer.body_mut() = Body::from(format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{}</Code><Message>{}</Message></Error>",
                self.code, self.message
            ));
        }
        answer
    }
}
