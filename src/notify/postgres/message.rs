//! What the processes send each other: JSON of at most 7,999 bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::event::{CanvasId, EventId, Notification};
use crate::store::PAYLOAD_BYTES_MAX;

/// Bytes of a message without its events.
const FRAME_BYTES: usize = 80;
/// Bytes of a canvas: `"<uuid>":[],`.
const CANVAS_BYTES: usize = 42;
/// Bytes of an event: `"<uuid>",`.
const EVENT_BYTES: usize = 39;

/// A message on the channel.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Message {
    /// The process that sent it.
    pub(super) from: Uuid,
    pub(super) news: News,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum News {
    /// It has begun to listen, and wants to know what it missed.
    Hello,
    /// It is there.
    Here,
    /// It takes no events any more.
    Bye,
    /// These events are to be looked at.
    Wake(BTreeMap<CanvasId, Vec<EventId>>),
}

impl Message {
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The messages that carry these notifications, in their order.
pub(super) fn wakes(from: Uuid, notifications: &[Notification]) -> Vec<String> {
    let mut texts = Vec::new();
    let (mut events, mut bytes) = (BTreeMap::<_, Vec<_>>::new(), FRAME_BYTES);
    for Notification { id, canvas } in notifications {
        let more = EVENT_BYTES + if events.contains_key(canvas) { 0 } else { CANVAS_BYTES };
        if bytes + more > PAYLOAD_BYTES_MAX {
            texts.push(Message { from, news: News::Wake(std::mem::take(&mut events)) }.text());
            bytes = FRAME_BYTES + CANVAS_BYTES + EVENT_BYTES;
        } else {
            bytes += more;
        }
        events.entry(*canvas).or_default().push(*id);
    }
    if !events.is_empty() {
        texts.push(Message { from, news: News::Wake(events) }.text());
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_as_agreed() {
        let from: Uuid = "11111111-2222-4333-8444-555555555555".parse().unwrap();
        let id = "0190aaaa-bbbb-7ccc-8ddd-eeeeffff0000".parse().unwrap();
        let texts = wakes(from, &[Notification { id, canvas: CanvasId::DEFAULT }]);
        assert_eq!(
            texts,
            [
                r#"{"from":"11111111-2222-4333-8444-555555555555","news":{"wake":{"00000000-0000-0000-0000-000000000000":["0190aaaa-bbbb-7ccc-8ddd-eeeeffff0000"]}}}"#
            ]
        );
        assert_eq!(
            Message { from, news: News::Hello }.text(),
            r#"{"from":"11111111-2222-4333-8444-555555555555","news":"hello"}"#
        );
    }

    #[test]
    fn pages_are_full_and_within_what_the_server_accepts() {
        let from = Uuid::new_v4();
        let one = CanvasId(Uuid::new_v4());
        for canvases in [1, 3, 1_000] {
            let canvases: Vec<_> = (0..canvases).map(|_| CanvasId(Uuid::new_v4())).chain([one]).collect();
            let sent: Vec<_> = (0..1_000)
                .map(|place| Notification { id: EventId::new(), canvas: canvases[place % canvases.len()] })
                .collect();
            let texts = wakes(from, &sent);
            let mut received = Vec::new();
            for text in &texts {
                assert!(text.len() <= PAYLOAD_BYTES_MAX, "{}", text.len());
                let message: Message = serde_json::from_str(text).unwrap();
                let News::Wake(events) = message.news else { panic!("{text}") };
                for (canvas, ids) in events {
                    received.extend(ids.into_iter().map(|id| Notification { id, canvas }));
                }
            }
            let total: usize = texts.iter().map(String::len).sum();
            assert!(texts.len() <= total / 7_800 + 1, "{} messages for {total} bytes", texts.len());
            let key = |notification: &Notification| notification.id;
            received.sort_by_key(key);
            assert_eq!(received, sent, "ids are ordered by time");
        }
        assert!(wakes(from, &[]).is_empty());
    }
}
