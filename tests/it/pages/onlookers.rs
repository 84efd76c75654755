//! What pages of things with a name have in common: those without the rights are shown no control
//! and are not obeyed, another tenant finds nothing, and lists go on page by page.

use reqwest::StatusCode;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Shown, Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::Service;

/// Somebody who is signed in, with what makes a form one of the own session.
pub(super) struct Holder {
    pub(super) visitor: Visitor,
    token: String,
}

impl Holder {
    /// Signs in twice: the list of the own sessions then has a form, whatever the key is for.
    pub(super) async fn of(service: &Service, key: &str) -> Self {
        Visitor::with_key(service, key).await;
        let visitor = Visitor::with_key(service, key).await;
        let token = visitor.get("/sessions").await.found().form("/end-others").token();
        Self { visitor, token }
    }

    /// Sends a form that only rights can keep from being obeyed.
    pub(super) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Shown {
        let own = [("form_token", self.token.as_str())];
        self.visitor.post(path, &[&own[..], fields].concat()).await
    }
}

/// Visitors each of whom lacks something.
pub(super) struct Onlookers {
    /// Only reads.
    pub(super) reader: Holder,
    /// Reads and operates, and can't emit.
    pub(super) operator: Holder,
    /// May do everything on another canvas.
    pub(super) theirs: Holder,
}

impl Onlookers {
    pub(super) async fn of(service: &Service) -> Self {
        let with = async |holder: &str, canvas, scopes: &[Scope]| {
            Holder::of(service, &service.key(holder, canvas, scopes).await).await
        };
        Self {
            reader: with("reader", CanvasId::DEFAULT, &[Scope::Read]).await,
            operator: with("operator", CanvasId::DEFAULT, &[Scope::Read, Scope::Operate]).await,
            theirs: with("other", OTHER, &Scope::ALL).await,
        }
    }

    /// The reader finds a list and a page of it, without forms that change anything and without
    /// links to `controls`. The other tenant finds neither of them, nor one of its own.
    pub(super) async fn find_no_controls(&self, list: &str, one: &str, controls: &[&str]) {
        let (reader, theirs) = (&self.reader.visitor, &self.theirs.visitor);
        let delete = format!("{one}/delete");
        assert_eq!(reader.page(&delete).await.status, StatusCode::FORBIDDEN);
        assert_eq!(theirs.page(&delete).await.status, StatusCode::NOT_FOUND);
        for path in [list, one] {
            let page = reader.page(path).await.found();
            page.says_nothing_of("<details");
            for control in controls.iter().chain([&delete.as_str()]) {
                assert!(!page.offers(control), "{path} offers {control}");
            }
            assert_eq!(theirs.page(path).await.status, StatusCode::NOT_FOUND, "{path}");
        }
        let own = theirs.get(&on_canvas(OTHER, one)).await;
        assert_eq!(own.status, StatusCode::NOT_FOUND, "{one} on another canvas");
    }

    /// The operator and the reader are refused for the lack of `emit`, and the other tenant is told
    /// that there is nothing.
    pub(super) async fn may_not_emit(&self, path: &str, form: &[(&str, &str)]) {
        Self::is_refused(&self.operator, Scope::Emit, path, form).await;
        Self::is_refused(&self.reader, Scope::Emit, path, form).await;
        self.is_not_found(path, form).await;
    }

    /// The reader is refused for the lack of `operate`, and the other tenant is told that there is
    /// nothing.
    pub(super) async fn may_not_change(&self, path: &str, form: &[(&str, &str)]) {
        Self::is_refused(&self.reader, Scope::Operate, path, form).await;
        self.is_not_found(path, form).await;
    }

    async fn is_refused(holder: &Holder, lacking: Scope, path: &str, form: &[(&str, &str)]) {
        let refused = holder.post(&on_canvas(CanvasId::DEFAULT, path), form).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
        refused.says(&format!("needs the scope `{lacking}`"));
    }

    async fn is_not_found(&self, path: &str, form: &[(&str, &str)]) {
        let refused = self.theirs.post(&on_canvas(CanvasId::DEFAULT, path), form).await;
        assert_eq!(refused.status, StatusCode::NOT_FOUND, "{path}");
    }
}

/// A list of 101, of which the names are a letter and a number, has a second page.
pub(super) async fn have_two_pages(service: &Service, list: &str, letter: char) {
    let named = |number: u32| format!(">{letter}{number:03}<");
    let visitor = Visitor::with_key(service, &service.key).await;
    let first = visitor.page(list).await.found();
    first.says(&named(0)).says(&named(99)).says_nothing_of(&named(100));
    let next = first.next_page();
    assert_eq!(next, format!("?cursor={letter}099"));
    let next = visitor.page(&format!("{list}{next}")).await.found();
    next.says(&named(100)).says("First page").says_nothing_of(&named(99)).says_nothing_of("Next page");
}
