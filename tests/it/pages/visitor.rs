//! A browser without scripts: keeps its cookies, follows redirects, and sends the forms that it was
//! shown.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Method, RequestBuilder, StatusCode};
use wakeq::CanvasId;

use crate::support::TIMEOUT;
use crate::support::service::{Answer, Service};

/// A person with a browser.
pub(crate) struct Visitor {
    client: reqwest::Client,
    origin: String,
    cookies: Mutex<BTreeMap<String, String>>,
    /// What each request also has.
    headers: Vec<(&'static str, String)>,
}

/// A page that was shown.
pub(crate) struct Shown {
    pub(crate) status: StatusCode,
    /// The path that it was found at, after redirects.
    pub(crate) path: String,
    pub(crate) html: String,
    pub(crate) headers: reqwest::header::HeaderMap,
}

impl Visitor {
    /// Somebody who has not signed in.
    pub(crate) fn stranger(service: &Service) -> Self {
        Self::at(service.address)
    }

    /// The same at whatever server.
    pub(crate) fn at(address: SocketAddr) -> Self {
        let none = reqwest::redirect::Policy::none();
        let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).redirect(none).build().unwrap();
        let origin = format!("http://{address}");
        Self { client, origin, cookies: Mutex::default(), headers: Vec::new() }
    }

    /// Sends a header with each request, as a proxy or a browser adds it.
    pub(crate) fn sending(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Somebody who has signed in with a key.
    pub(crate) async fn with_key(service: &Service, key: &str) -> Self {
        let visitor = Self::stranger(service);
        let shown = visitor.post("/sign-in", &[("key", key)]).await;
        assert!(visitor.cookie("wakeq_session").is_some(), "{}", shown.html);
        visitor
    }

    /// A page, after redirects.
    pub(crate) async fn get(&self, path: &str) -> Shown {
        self.follow(Method::GET, path, None).await
    }

    /// A page of the default canvas: `/events` for example.
    pub(crate) async fn page(&self, path: &str) -> Shown {
        self.get(&on_canvas(CanvasId::DEFAULT, path)).await
    }

    /// Sends these fields, as a form of nobody's.
    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Shown {
        self.follow(Method::POST, path, Some(encoded(fields))).await
    }

    /// Fills in a form of a page and sends it: the one for `action`, with its hidden fields.
    #[track_caller]
    pub(crate) fn send<'v>(
        &'v self,
        page: &Shown,
        action: &str,
        fields: &[(&str, &str)],
    ) -> impl Future<Output = Shown> + 'v {
        let form = page.form(action);
        // A field that is given takes the place of a hidden one.
        let mut all = form.hidden.clone();
        all.retain(|(hidden, _)| fields.iter().all(|(name, _)| name != hidden));
        all.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let pairs: Vec<_> = all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let (body, action) = (encoded(&pairs), form.action);
        async move { self.follow(Method::POST, &action, Some(body)).await }
    }

    async fn follow(&self, method: Method, path: &str, body: Option<String>) -> Shown {
        let (mut method, mut path, mut body) = (method, path.to_owned(), body);
        for _ in 0..5 {
            let answer = self.once(&method, &path, body.take()).await;
            self.keep(&answer);
            match answer.headers.get(LOCATION) {
                Some(to) if answer.status.is_redirection() => {
                    (method, path) = (Method::GET, to.to_str().unwrap().to_owned());
                }
                _ => {
                    let Answer { status, text: html, headers, .. } = answer;
                    return Shown { status, path, html, headers };
                }
            }
        }
        panic!("redirects without end, the last to {path}");
    }

    /// A request with what the browser sends, whose redirect is not followed.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let cookies =
            self.cookies().iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
        let request = self.client.request(method, format!("{}{path}", self.origin));
        let request = request.header(COOKIE, cookies.join("; "));
        self.headers.iter().fold(request, |request, (name, value)| request.header(*name, value))
    }

    async fn once(&self, method: &Method, path: &str, body: Option<String>) -> Answer {
        let request = self.request(method.clone(), path);
        let kind = "application/x-www-form-urlencoded";
        Answer::of(match body {
            Some(body) => request.header("content-type", kind).body(body),
            None => request,
        })
        .await
    }

    fn keep(&self, answer: &Answer) {
        for cookie in answer.headers.get_all(SET_COOKIE) {
            let (pair, rest) = cookie.to_str().unwrap().split_once(';').unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            match rest.contains("Max-Age=0") {
                true => self.cookies().remove(name),
                false => self.cookies().insert(name.to_owned(), value.to_owned()),
            };
        }
    }

    /// The value of a cookie.
    pub(crate) fn cookie(&self, name: &str) -> Option<String> {
        self.cookies().get(name).cloned()
    }

    /// Sets a cookie by hand.
    pub(crate) fn set_cookie(&self, name: &str, value: &str) {
        self.cookies().insert(name.to_owned(), value.to_owned());
    }

    fn cookies(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.cookies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A form of a page.
pub(crate) struct PageForm {
    action: String,
    hidden: Vec<(String, String)>,
}

impl PageForm {
    /// The field by which the session is known.
    pub(crate) fn token(&self) -> String {
        self.hidden("form_token")
    }

    /// The key by which the form is known if it is sent twice.
    pub(crate) fn key(&self) -> String {
        self.hidden("form_key")
    }

    fn hidden(&self, sought: &str) -> String {
        self.hidden.iter().find(|(name, _)| name == sought).unwrap().1.clone()
    }
}

impl Shown {
    /// The form with this action, or with one that ends like this.
    #[track_caller]
    pub(crate) fn form(&self, action: &str) -> PageForm {
        let forms = self.html.split("<form").skip(1).map(|form| form.split("</form>").next().unwrap());
        let found = forms.into_iter().find_map(|form| {
            let own = attribute(form.split('>').next().unwrap(), "action")?;
            own.ends_with(action).then(|| {
                let inputs = form.split("<input").skip(1).map(|input| input.split('>').next().unwrap());
                let hidden = inputs.filter(|input| input.contains("type=\"hidden\""));
                let pair = |input| Some((attribute(input, "name")?, attribute(input, "value")?));
                PageForm { action: own, hidden: hidden.filter_map(pair).collect() }
            })
        });
        found.unwrap_or_else(|| panic!("no form for {action} in {}", self.html))
    }

    /// The query of the list's next page.
    #[track_caller]
    pub(crate) fn next_page(&self) -> String {
        let links = self.html.split("<a ").skip(1).filter_map(|link| link.split('>').next());
        let next = links.into_iter().find(|link| link.contains("rel=\"next\""));
        next.and_then(|link| attribute(link, "href"))
            .unwrap_or_else(|| panic!("no next page in {}", self.html))
    }

    /// Whether there is a form or a link for this address.
    pub(crate) fn offers(&self, address: &str) -> bool {
        self.html.contains(&format!("{address}\""))
    }

    #[track_caller]
    pub(crate) fn says(&self, words: &str) -> &Self {
        assert!(self.html.contains(words), "{} {words:?} is not in {}", self.status, self.html);
        self
    }

    #[track_caller]
    pub(crate) fn says_nothing_of(&self, words: &str) -> &Self {
        assert!(!self.html.contains(words), "{words:?} is in {}", self.html);
        self
    }

    #[track_caller]
    pub(crate) fn found(self) -> Self {
        assert_eq!(self.status, StatusCode::OK, "{} {}", self.path, self.html);
        self
    }
}

/// The address of a page of a canvas.
pub(crate) fn on_canvas(canvas: CanvasId, path: &str) -> String {
    format!("/canvases/{canvas}{path}")
}

fn encoded(pairs: &[(&str, &str)]) -> String {
    let encode = |text: &str| {
        text.bytes()
            .map(|byte| match byte.is_ascii_alphanumeric() {
                true => char::from(byte).to_string(),
                false => format!("%{byte:02X}"),
            })
            .collect::<String>()
    };
    pairs
        .iter()
        .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
        .collect::<Vec<_>>()
        .join("&")
}

/// An attribute of a tag, with its escapes undone.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let value = tag.split(&format!("{name}=\"")).nth(1)?.split('"').next()?;
    Some(value.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
}
