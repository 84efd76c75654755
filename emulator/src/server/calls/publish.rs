//! Publish: messages are checked against the schema of their topic while the broker is not locked,
//! since that reads each of them, and other calls would wait.

use serde_json::Value;
use tokio::time::Instant;

use super::{CHECKS_MAX, Calls, from_json, to_json};
use crate::broker::{Answer, Method, Offered};
use crate::proto::pubsub::{PublishRequest, PublishResponse};
use crate::server::core::Core;
use crate::server::head_start::LastPublish;

impl Calls {
    /// Publishes messages, and notes it where the streams of the caller's connection look.
    pub(super) async fn publish_noted(
        &self,
        request: PublishRequest,
        noted: Option<LastPublish>,
    ) -> Answer<PublishResponse> {
        let offered = self.call(Some(Method::Publish), |broker, now| {
            note(noted.as_ref());
            broker.publish_checked(now, request, None)
        });
        check_and_publish(&self.core, offered.await?, noted.as_ref()).await
    }

    /// The same with JSON.
    pub(super) async fn publish_json(&self, request: Value) -> Answer<Value> {
        to_json(&self.publish_noted(from_json(request)?, None).await?)
    }
}

/// Publishes messages without the faults that are set for calls.
pub(in crate::server) async fn publish_without_faults(
    core: &Core,
    request: PublishRequest,
) -> Answer<PublishResponse> {
    let offered = core.change(|broker, now| broker.publish_checked(now, request, None)).await??;
    check_and_publish(core, offered, None).await
}

/// Goes on with what was offered unchecked, if it was.
async fn check_and_publish(
    core: &Core,
    mut offered: Offered,
    noted: Option<&LastPublish>,
) -> Answer<PublishResponse> {
    for _ in 0..CHECKS_MAX {
        let (request, schema) = match offered {
            Offered::Published(response) => return Ok(response),
            Offered::Unchecked(request, schema) => (request, schema),
        };
        let checked = schema.check(&request.messages)?;
        let again = core.change(|broker, now| {
            note(noted);
            broker.publish_checked(now, request, Some(&checked))
        });
        offered = again.await??;
    }
    match offered {
        Offered::Published(response) => Ok(response),
        Offered::Unchecked(request, _) => {
            let locked = core.change(|broker, now| {
                note(noted);
                broker.publish(now, request)
            });
            locked.await?
        }
    }
}

fn note(noted: Option<&LastPublish>) {
    if let Some(noted) = noted {
        noted.note(Instant::now());
    }
}
