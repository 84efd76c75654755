//! Publish: messages are checked against the schema of their topic while the broker is not locked,
//! since that reads each of them, and other calls would wait.

use serde_json::Value;
use tokio::time::Instant;

use super::{Calls, from_json, to_json};
use crate::broker::{Answer, Method, Offered};
use crate::proto::pubsub::{PublishRequest, PublishResponse};
use crate::server::head_start::LastPublish;

/// How often messages are checked without the lock while somebody changes the schema each time.
const CHECKS_MAX: usize = 3;

impl Calls {
    /// Publishes messages, and notes it where the streams of the caller's connection look.
    pub(super) async fn publish_noted(
        &self,
        request: PublishRequest,
        noted: Option<LastPublish>,
    ) -> Answer<PublishResponse> {
        let note = || {
            if let Some(noted) = &noted {
                noted.note(Instant::now());
            }
        };
        let offered = self.call(Some(Method::Publish), |broker, now| {
            note();
            broker.publish_checked(now, request, None)
        });
        let mut offered = offered.await?;
        for _ in 0..CHECKS_MAX {
            let (request, schema) = match offered {
                Offered::Published(response) => return Ok(response),
                Offered::Unchecked(request, schema) => (request, schema),
            };
            let checked = schema.check(&request.messages)?;
            let again = self.core.change(|broker, now| {
                note();
                broker.publish_checked(now, request, Some(&checked))
            });
            offered = again.await??;
        }
        match offered {
            Offered::Published(response) => Ok(response),
            Offered::Unchecked(request, _) => {
                let locked = self.core.change(|broker, now| {
                    note();
                    broker.publish(now, request)
                });
                locked.await?
            }
        }
    }

    /// The same with JSON.
    pub(super) async fn publish_json(&self, request: Value) -> Answer<Value> {
        to_json(&self.publish_noted(from_json(request)?, None).await?)
    }
}
