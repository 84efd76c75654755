//! What pages of things with a name have in common: those without the rights are shown no control
//! and are not obeyed, another tenant finds nothing, and lists go on page by page.

use reqwest::StatusCode;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::Service;

/// Visitors each of whom lacks something.
pub(super) struct Onlookers {
    /// Only reads.
    pub(super) reader: Visitor,
    /// Reads and operates, and can't emit.
    pub(super) operator: Visitor,
    /// May do everything on another canvas.
    pub(super) theirs: Visitor,
}

impl Onlookers {
    pub(super) async fn of(service: &Service) -> Self {
        let with = async |holder: &str, canvas, scopes: &[Scope]| {
            Visitor::with_key(service, &service.key(holder, canvas, scopes).await).await
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
        let delete = format!("{one}/delete");
        assert_eq!(self.reader.page(&delete).await.status, StatusCode::FORBIDDEN);
        assert_eq!(self.theirs.page(&delete).await.status, StatusCode::NOT_FOUND);
        for path in [list, one] {
            let page = self.reader.page(path).await.found();
            page.says_nothing_of("<details");
            for control in controls.iter().chain([&delete.as_str()]) {
                assert!(!page.offers(control), "{path} offers {control}");
            }
            assert_eq!(self.theirs.page(path).await.status, StatusCode::NOT_FOUND, "{path}");
        }
        let own = self.theirs.get(&on_canvas(OTHER, one)).await;
        assert_eq!(own.status, StatusCode::NOT_FOUND, "{one} on another canvas");
    }

    /// The operator is refused for the lack of `emit`, like the reader for that of more; the other
    /// tenant is told that there is nothing.
    pub(super) async fn may_not_emit(&self, path: &str, form: &[(&str, &str)]) {
        let at = on_canvas(CanvasId::DEFAULT, path);
        let refused = self.operator.post(&at, form).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
        refused.says("emit");
        self.may_not_change(path, form).await;
    }

    /// The reader is refused, and the other tenant is told that there is nothing.
    pub(super) async fn may_not_change(&self, path: &str, form: &[(&str, &str)]) {
        let at = on_canvas(CanvasId::DEFAULT, path);
        assert_eq!(self.reader.post(&at, form).await.status, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(self.theirs.post(&at, form).await.status, StatusCode::NOT_FOUND, "{path}");
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
