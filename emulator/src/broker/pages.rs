//! Paginated lists. A page token names the resource after which the next page begins, so that a
//! list stays complete whatever is created or deleted between two pages.
//!
//! A token belongs to one list: any other refuses it.

use std::ops::Bound;

use super::{Answer, Name, Refusal, limits};

const DEFAULT_PAGE: usize = 100;
const LARGEST_PAGE: usize = 1_000;

/// A request for a page of a list.
pub(super) struct Page<'list> {
    /// Identifies the list: the prefix of its names, or the name of its owner.
    list: &'list str,
    size: usize,
    after: Option<String>,
}

impl<'list> Page<'list> {
    /// Refuses a negative size, and a token that this list did not issue.
    pub(super) fn of(list: &'list str, size: i32, token: &str) -> Answer<Self> {
        let size = match usize::try_from(size) {
            Ok(0) => DEFAULT_PAGE,
            Ok(size) => size.min(LARGEST_PAGE),
            Err(_) => return Err(limits::too_small("page_size", size, 0)),
        };
        let after = (!token.is_empty()).then(|| read(list, token)).transpose()?;
        Ok(Self { list, size, after })
    }

    /// The names that this page may contain, as a range of an ordered map: from the beginning, or
    /// after the last page.
    pub(super) fn range<'page>(&'page self, beginning: &'page str) -> (Bound<&'page str>, Bound<&'page str>) {
        let start = self.after.as_deref().map_or(Bound::Included(beginning), Bound::Excluded);
        (start, Bound::Unbounded)
    }

    /// Cuts the page out of the items in that range; returns it with the next page's token, which
    /// is empty after the last page.
    pub(super) fn cut<'name, T>(&self, names: impl Iterator<Item = (&'name Name, T)>) -> (Vec<T>, String) {
        let mut names = names.peekable();
        let mut page = Vec::new();
        let mut last = None;
        while page.len() < self.size
            && let Some((name, item)) = names.next()
        {
            last = Some(name);
            page.push(item);
        }
        let token = match last {
            Some(last) if names.peek().is_some() => write(self.list, last),
            Some(_) | None => String::new(),
        };
        (page, token)
    }
}

fn write(list: &str, last: &str) -> String {
    let mut token = format!("{:016x}", checksum(list, last));
    for byte in last.bytes() {
        token.push_str(&format!("{byte:02x}"));
    }
    token
}

fn read(list: &str, token: &str) -> Answer<String> {
    decode(token)
        .filter(|(sum, last)| *sum == checksum(list, last))
        .map(|(_, last)| last)
        .ok_or_else(|| Refusal::invalid(format!("Invalid page token given (token={token}).")))
}

fn decode(token: &str) -> Option<(u64, String)> {
    let (sum, digits) = token.split_at_checked(16)?;
    let sum = u64::from_str_radix(sum, 16).ok()?;
    let bytes: Option<Vec<u8>> = digits
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    Some((sum, String::from_utf8(bytes?).ok()?))
}

/// FNV-1a: against mistakes, not against attacks.
fn checksum(list: &str, last: &str) -> u64 {
    let bytes = list.bytes().chain([0]).chain(last.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn page(names: &BTreeSet<Name>, size: i32, token: &str) -> Answer<(Vec<String>, String)> {
        let page = Page::of("n/", size, token)?;
        let range = names.range::<str, _>(page.range("n/")).take_while(|name| name.starts_with("n/"));
        Ok(page.cut(range.map(|name| (name, name.to_string()))))
    }

    fn names(ids: &[&str]) -> BTreeSet<Name> {
        ids.iter().map(|id| Name::from(*id)).collect()
    }

    #[test]
    fn pages_follow_one_another_and_the_last_has_no_token() {
        let names = names(&["m/z", "n/a", "n/b", "n/c", "o/a"]);
        let (first, token) = page(&names, 2, "").unwrap();
        assert_eq!(first, ["n/a", "n/b"]);
        let (second, token) = page(&names, 2, &token).unwrap();
        assert_eq!((second, token), (vec!["n/c".to_owned()], String::new()));
        assert_eq!(page(&names, 3, "").unwrap().1, "");
    }

    #[test]
    fn a_list_that_changes_between_pages_loses_and_repeats_nothing() {
        let mut set = names(&["n/a", "n/b", "n/c", "n/d"]);
        let (_, token) = page(&set, 2, "").unwrap();
        set.remove("n/b");
        set.remove("n/a");
        set.insert("n/aa".into());
        set.insert("n/bb".into());
        assert_eq!(page(&set, 9, &token).unwrap().0, ["n/bb", "n/c", "n/d"]);
    }

    #[test]
    fn tokens_that_the_list_did_not_give_are_refused() {
        let set = names(&["n/a", "n/b"]);
        let (_, token) = page(&set, 1, "").unwrap();
        assert!(Page::of("other/", 1, &token).is_err());
        for token in ["garbage", "n/a", "0", &token[1..], &format!("{token}00"), "äöüäöüäöüäöüäöüäöü"]
        {
            let refusal = page(&set, 1, token).unwrap_err();
            assert_eq!(refusal.message, format!("Invalid page token given (token={token})."));
        }
    }

    #[test]
    fn sizes_are_bounded() {
        assert!(Page::of("n/", -1, "").is_err());
        assert_eq!(Page::of("n/", 0, "").unwrap().size, DEFAULT_PAGE);
        assert_eq!(Page::of("n/", i32::MAX, "").unwrap().size, LARGEST_PAGE);
    }
}
