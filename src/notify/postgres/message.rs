//! The messages about events that processes send each other, as bytes, which are sealed before they
//! are sent.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use super::seal::CONTENT_BYTES_MAX;
use crate::event::{CanvasId, EventId, Notification};

/// Bytes of an id.
const ID_BYTES: usize = 16;
/// Bytes of a canvas: its id, and the number of its events.
const CANVAS_BYTES: usize = ID_BYTES + 2;

/// The content of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The sender has begun to listen, and wants to know what it missed.
    Hello,
    /// It is there.
    Here,
    /// It takes no events any more.
    Bye,
    /// It was interrupted for this long, and publishes what was missed since then. Whole seconds.
    Looking(Duration),
    /// These events are to be looked at.
    Wake(Vec<Notification>),
    /// So are these, which were found waiting by a process that had no room for their
    /// notifications.
    Again(Vec<Notification>),
}

impl News {
    /// The messages that say it: several if it names many events.
    pub(super) fn contents(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Hello => vec![vec![0]],
            Self::Here => vec![vec![1]],
            Self::Bye => vec![vec![2]],
            Self::Looking(missed) => {
                let seconds = u32::try_from(missed.as_secs()).unwrap_or(u32::MAX);
                vec![[&[3], &seconds.to_be_bytes()[..]].concat()]
            }
            Self::Wake(notifications) => of_each_class([4, 6], notifications),
            Self::Again(notifications) => of_each_class([5, 7], notifications),
        }
    }

    /// Reads a message; `None` if it is another release's.
    pub(super) fn read(content: &[u8]) -> Option<Self> {
        let (kind, rest) = content.split_first()?;
        match (kind, rest) {
            (0, []) => Some(Self::Hello),
            (1, []) => Some(Self::Here),
            (2, []) => Some(Self::Bye),
            (3, rest) => {
                let seconds = u32::from_be_bytes(rest.try_into().ok()?);
                Some(Self::Looking(Duration::from_secs(seconds.into())))
            }
            (4, rest) => notifications(rest, false).map(Self::Wake),
            (5, rest) => notifications(rest, false).map(Self::Again),
            (6, rest) => notifications(rest, true).map(Self::Wake),
            (7, rest) => notifications(rest, true).map(Self::Again),
            _ => None,
        }
    }
}

/// The messages that carry these notifications, urgent ones first: of the first kind those that are
/// not urgent, of the second those that are.
fn of_each_class([others, urgent]: [u8; 2], all: &[Notification]) -> Vec<Vec<u8>> {
    if all.iter().all(|notification| !notification.urgent) {
        return wakes(others, all.iter());
    }
    let (first, rest) = (all.iter().filter(|told| told.urgent), all.iter().filter(|told| !told.urgent));
    [wakes(urgent, first), wakes(others, rest)].concat()
}

/// The messages of this kind that carry these notifications, in their order.
fn wakes<'a>(kind: u8, all: impl Iterator<Item = &'a Notification>) -> Vec<Vec<u8>> {
    let mut contents = Vec::new();
    let (mut events, mut bytes) = (BTreeMap::<CanvasId, Vec<EventId>>::new(), 1);
    for Notification { id, canvas, .. } in all {
        let more = ID_BYTES + if events.contains_key(canvas) { 0 } else { CANVAS_BYTES };
        if bytes + more > CONTENT_BYTES_MAX {
            contents.push(wake(kind, &std::mem::take(&mut events)));
            bytes = 1 + CANVAS_BYTES + ID_BYTES;
        } else {
            bytes += more;
        }
        events.entry(*canvas).or_default().push(*id);
    }
    if !events.is_empty() {
        contents.push(wake(kind, &events));
    }
    contents
}

/// One message: each canvas with the number of its events, and the events.
fn wake(kind: u8, events: &BTreeMap<CanvasId, Vec<EventId>>) -> Vec<u8> {
    let mut content = vec![kind];
    for (canvas, ids) in events {
        content.extend_from_slice(canvas.0.as_bytes());
        // A message has room for fewer than 400.
        content.extend_from_slice(&u16::try_from(ids.len()).unwrap_or(u16::MAX).to_be_bytes());
        ids.iter().for_each(|id| content.extend_from_slice(id.0.as_bytes()));
    }
    content
}

fn notifications(mut rest: &[u8], urgent: bool) -> Option<Vec<Notification>> {
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (canvas, counted) = rest.split_at_checked(ID_BYTES)?;
        let (count, ids) = counted.split_at_checked(2)?;
        let count = usize::from(u16::from_be_bytes(count.try_into().ok()?));
        let (ids, others) = ids.split_at_checked(count * ID_BYTES)?;
        let canvas = CanvasId(Uuid::from_slice(canvas).ok()?);
        for id in ids.chunks_exact(ID_BYTES) {
            let id = EventId(Uuid::from_slice(id).ok()?);
            all.push(Notification::new(id, canvas).urgent_if(urgent));
        }
        rest = others;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_as_agreed() {
        let id = EventId("0190aaaa-bbbb-7ccc-8ddd-eeeeffff0000".parse().unwrap());
        let sent = News::Wake(vec![Notification::new(id, CanvasId(Uuid::from_u128(7)))]);
        let [content] = sent.contents().try_into().unwrap();
        let expected = [&[4][..], Uuid::from_u128(7).as_bytes(), &[0, 1], id.0.as_bytes()].concat();
        assert_eq!(content, expected);
        assert_eq!(News::read(&content), Some(sent));
        let again = [&[5][..], &content[1..]].concat();
        let News::Wake(found) = News::read(&content).unwrap() else { panic!("{content:?}") };
        assert_eq!(News::Again(found.clone()).contents(), [again.as_slice()]);
        assert_eq!(News::read(&again), Some(News::Again(found)));
        for (news, byte) in [(News::Hello, 0), (News::Here, 1), (News::Bye, 2)] {
            assert_eq!(news.contents(), [[byte]]);
            assert_eq!(News::read(&[byte]), Some(news));
        }
        let looking = News::Looking(Duration::from_secs(258));
        assert_eq!(
            (looking.contents(), News::read(&[3, 0, 0, 1, 2])),
            (vec![vec![3, 0, 0, 1, 2]], Some(looking))
        );
        for nonsense in [&[][..], &[9], &[0, 0], &[3, 0], &content[..34], &content[..18], &[4, 1]] {
            assert_eq!(News::read(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn urgent_ones_are_in_messages_of_their_own_that_are_sent_first() {
        let canvas = CanvasId(Uuid::from_u128(7));
        let of = |number| Notification::new(EventId(Uuid::from_u128(number)), canvas);
        let sent = vec![of(1), of(2).urgent_if(true), of(3)];
        for (news, kinds) in [(News::Wake(sent.clone()), [6, 4]), (News::Again(sent.clone()), [7, 5])] {
            let [urgent, others] = news.contents().try_into().unwrap();
            assert_eq!([urgent[0], others[0]], kinds);
            let read = [urgent, others].map(|content| match News::read(&content) {
                Some(News::Wake(read) | News::Again(read)) => read,
                other => panic!("{other:?}"),
            });
            assert_eq!(read, [vec![sent[1]], vec![sent[0], sent[2]]]);
        }
    }

    #[test]
    fn pages_are_full_and_within_what_the_server_accepts() {
        let one = CanvasId(Uuid::new_v4());
        for canvases in [1, 3, 1_000] {
            let canvases: Vec<_> = (0..canvases).map(|_| CanvasId(Uuid::new_v4())).chain([one]).collect();
            let sent: Vec<_> = (0..1_000)
                .map(|place| Notification::new(EventId::new(), canvases[place % canvases.len()]))
                .collect();
            let contents = News::Wake(sent.clone()).contents();
            let mut received = Vec::new();
            for content in &contents {
                assert!(content.len() <= CONTENT_BYTES_MAX, "{}", content.len());
                let Some(News::Wake(more)) = News::read(content) else { panic!("{content:?}") };
                received.extend(more);
            }
            let total: usize = contents.iter().map(Vec::len).sum();
            assert!(contents.len() <= total / 5_900 + 1, "{} messages for {total} bytes", contents.len());
            received.sort_by_key(|notification| notification.id);
            assert_eq!(received, sent, "ids are ordered by time");
        }
        assert!(News::Wake(Vec::new()).contents().is_empty());
    }
}
