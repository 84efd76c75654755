//! Doubly linked lists through the items of one vector: inserting or removing an item takes
//! constant time and no allocation, wherever it is.
//!
//! It knows nothing of what the items are.

/// No item.
pub(super) const NONE: u32 = u32::MAX;

/// An item's neighbours in a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    pub(super) before: u32,
    pub(super) after: u32,
}

impl Links {
    pub(super) const UNLINKED: Self = Self { before: NONE, after: NONE };
}

/// An item of the vector. `Lane` distinguishes the lists that it can be in at the same time.
pub(super) trait Linked {
    type Lane: Copy;
    fn links(&self, lane: Self::Lane) -> Links;
    fn links_mut(&mut self, lane: Self::Lane) -> &mut Links;
}

/// The ends of a list; the items hold the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) head: u32,
    pub(super) tail: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE };

    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    pub(super) fn push_back<T: Linked>(&mut self, items: &mut [T], lane: T::Lane, item: u32) {
        self.insert_before(items, lane, item, NONE);
    }

    pub(super) fn push_front<T: Linked>(&mut self, items: &mut [T], lane: T::Lane, item: u32) {
        self.insert_before(items, lane, item, self.head);
    }

    /// Inserts an item before another one of the list; at the end if that is [`NONE`].
    pub(super) fn insert_before<T: Linked>(
        &mut self,
        items: &mut [T],
        lane: T::Lane,
        item: u32,
        follower: u32,
    ) {
        let before = if follower == NONE { self.tail } else { items[follower as usize].links(lane).before };
        *items[item as usize].links_mut(lane) = Links { before, after: follower };
        self.join(items, lane, before, item);
        self.join(items, lane, item, follower);
    }

    pub(super) fn remove<T: Linked>(&mut self, items: &mut [T], lane: T::Lane, item: u32) {
        let links = std::mem::replace(items[item as usize].links_mut(lane), Links::UNLINKED);
        self.join(items, lane, links.before, links.after);
    }

    fn join<T: Linked>(&mut self, items: &mut [T], lane: T::Lane, before: u32, after: u32) {
        if before == NONE {
            self.head = after;
        } else {
            items[before as usize].links_mut(lane).after = after;
        }
        if after == NONE {
            self.tail = before;
        } else {
            items[after as usize].links_mut(lane).before = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Item(Links);

    impl Linked for Item {
        type Lane = ();
        fn links(&self, (): ()) -> Links {
            self.0
        }
        fn links_mut(&mut self, (): ()) -> &mut Links {
            &mut self.0
        }
    }

    fn forwards(list: &List, items: &[Item]) -> Vec<u32> {
        std::iter::successors((!list.is_empty()).then_some(list.head), |item| {
            Some(items[*item as usize].0.after).filter(|after| *after != NONE)
        })
        .collect()
    }

    fn backwards(list: &List, items: &[Item]) -> Vec<u32> {
        std::iter::successors((!list.is_empty()).then_some(list.tail), |item| {
            Some(items[*item as usize].0.before).filter(|before| *before != NONE)
        })
        .collect()
    }

    #[test]
    fn items_enter_and_leave_anywhere() {
        let mut items: Vec<Item> = (0..6).map(|_| Item(Links::UNLINKED)).collect();
        let mut list = List::EMPTY;
        list.push_back(&mut items, (), 1);
        list.push_back(&mut items, (), 2);
        list.push_front(&mut items, (), 0);
        list.push_back(&mut items, (), 4);
        list.insert_before(&mut items, (), 3, 4);
        assert_eq!(forwards(&list, &items), [0, 1, 2, 3, 4]);
        assert_eq!(backwards(&list, &items), [4, 3, 2, 1, 0]);

        list.remove(&mut items, (), 2);
        list.remove(&mut items, (), 0);
        list.remove(&mut items, (), 4);
        assert_eq!(forwards(&list, &items), [1, 3]);
        assert_eq!(backwards(&list, &items), [3, 1]);

        list.remove(&mut items, (), 1);
        list.remove(&mut items, (), 3);
        assert!(list.is_empty());
        assert_eq!(list.tail, NONE);
    }
}
