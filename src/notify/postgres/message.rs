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
            Self::Wake(notifications) => wakes(4, notifications),
            Self::Again(notifications) => wakes(5, notifications),
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
            (4, rest) => notifications(rest).map(Self::Wake),
            (5, rest) => notifications(rest).map(Self::Again),
            _ => None,
        }
    }
}

/// The messages of this kind that carry these notifications, in their order.
fn wakes(kind: u8, all: &[Notification]) -> Vec<Vec<u8>> {
    let mut contents = Vec::new();
    let (mut events, mut bytes) = (BTreeMap::<CanvasId, Vec<EventId>>::new(), 1);
    for Notification { id, canvas } in all {
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

fn notifications(mut rest: &[u8]) -> Option<Vec<Notification>> {
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (canvas, counted) = rest.split_at_checked(ID_BYTES)?;
        let (count, ids) = counted.split_at_checked(2)?;
        let count = usize::from(u16::from_be_bytes(count.try_into().ok()?));
        let (ids, others) = ids.split_at_checked(count * ID_BYTES)?;
        let canvas = CanvasId(Uuid::from_slice(canvas).ok()?);
        for id in ids.chunks_exact(ID_BYTES) {
            all.push(Notification { id: EventId(Uuid::from_slice(id).ok()?), canvas });
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
        let sent = News::Wake(vec![Notification { id, canvas: CanvasId(Uuid::from_u128(7)) }]);
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
    fn pages_are_full_and_within_what_the_server_accepts() {
        let one = CanvasId(Uuid::new_v4());
        for canvases in [1, 3, 1_000] {
            let canvases: Vec<_> = (0..canvases).map(|_| CanvasId(Uuid::new_v4())).chain([one]).collect();
            let sent: Vec<_> = (0..1_000)
                .map(|place| Notification { id: EventId::new(), canvas: canvases[place % canvases.len()] })
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
