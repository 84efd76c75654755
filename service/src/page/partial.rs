//! Parts of pages: what a filter has found, and the next page of a list, without the document
//! around it. A script asks for them (htmx), and puts them in place of what was there.
//!
//! A part is made by the code of its page, for the same address and the same person.

use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::Response;

const REQUEST: HeaderName = HeaderName::from_static("hx-request");
const TARGET: HeaderName = HeaderName::from_static("hx-target");
const REDIRECT: HeaderName = HeaderName::from_static("hx-redirect");

/// The id of the element whose contents are asked for.
pub(super) const RESULTS: &str = "results";

/// Whether a request asks for a part. What the browser loads by itself has no such headers.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let has = |name: HeaderName, value: &str| headers.get(name).is_some_and(|given| given == value);
    has(REQUEST, "true") && has(TARGET, RESULTS)
}

/// A redirect as the browser follows it. It would follow others for the script, which then had a
/// whole document to put into this one.
pub(super) fn redirected(request: &HeaderMap, mut answer: Response) -> Response {
    if !is_wanted(request) || !answer.status().is_redirection() {
        return answer;
    }
    if let Some(to) = answer.headers_mut().remove(header::LOCATION) {
        answer.headers_mut().insert(REDIRECT, to);
        *answer.status_mut() = StatusCode::NO_CONTENT;
    }
    answer
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use axum::response::{IntoResponse, Redirect};

    use super::*;

    #[test]
    fn a_script_is_told_where_the_browser_has_to_go() {
        let script = HeaderMap::from_iter([
            (REQUEST, HeaderValue::from_static("true")),
            (TARGET, HeaderValue::from_static(RESULTS)),
        ]);
        let told = redirected(&script, Redirect::to("/sign-in").into_response());
        assert_eq!(told.status(), StatusCode::NO_CONTENT);
        assert_eq!(told.headers()[REDIRECT], "/sign-in");
        assert!(!told.headers().contains_key(header::LOCATION));
        let browser = redirected(&HeaderMap::new(), Redirect::to("/sign-in").into_response());
        assert_eq!(browser.status(), StatusCode::SEE_OTHER);
        assert_eq!(browser.headers()[header::LOCATION], "/sign-in");
        assert_eq!(redirected(&script, "shown".into_response()).status(), StatusCode::OK);
    }
}
