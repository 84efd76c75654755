//! Every call of every method: gRPC and REST both pass through here, where faults are injected.
//!
//! It knows nothing of HTTP, and nothing of what a method does: that is the broker's.

mod methods;
mod publish;
mod pull;
mod schemas;

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tonic::Code;

use super::core::{Core, stopping};
use crate::broker::{Answer, Broker, CallFaults, Method, Refusal, Time};

pub(super) use publish::publish_without_faults;
pub(super) use pull::PullGuard;

/// How often something is compared without the lock while somebody changes the schema each time.
const CHECKS_MAX: usize = 3;

/// The methods of all services.
#[derive(Clone)]
pub(super) struct Calls {
    core: Arc<Core>,
}

impl Calls {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Calls any method except pulls, by its full name (`google.pubsub.v1.Publisher/GetTopic`) and
    /// with a request in JSON.
    pub(super) async fn json(&self, method: &str, request: Value) -> Answer<Value> {
        let answer = match method.split_once('/') {
            Some(("google.pubsub.v1.Publisher", "Publish")) => Some(self.publish_json(request).await),
            Some(("google.pubsub.v1.Publisher", rpc)) => self.publisher_json(rpc, request).await,
            Some(("google.pubsub.v1.Subscriber", rpc)) => self.subscriber_json(rpc, request).await,
            Some(("google.iam.v1.IAMPolicy", rpc)) => self.policy_json(rpc, request).await,
            Some(("google.pubsub.v1.SchemaService", rpc)) => self.schema_json(rpc, request).await,
            Some(_) | None => None,
        };
        answer.unwrap_or_else(|| {
            Err(Refusal::unsupported(format!("The method {method} is not available over REST.")))
        })
    }

    /// Injects the faults of a call before it is carried out.
    pub(super) async fn admit(&self, method: Method) -> Answer<()> {
        let faults = self.core.with(|broker, _| broker.draw_faults(method));
        self.inject(faults).await
    }

    async fn call<T>(
        &self,
        method: Option<Method>,
        work: impl FnOnce(&mut Broker, Time) -> Answer<T>,
    ) -> Answer<T> {
        let reads = method.is_some_and(Method::reads_only);
        // There is hardly ever a fault, and then the broker is locked only once.
        let done = self.turn(reads, |broker, now| {
            let faults = method.map(|method| broker.draw_faults(method)).unwrap_or_default();
            if faults == CallFaults::default() { Ok(work(broker, now)) } else { Err((faults, work)) }
        });
        match done.await? {
            Ok(answer) => answer,
            Err((faults, work)) => {
                self.inject(faults).await?;
                self.turn(reads, work).await?
            }
        }
    }

    /// Carries out what only reads at once, even if nothing can be written.
    async fn turn<T>(&self, reads: bool, work: impl FnOnce(&mut Broker, Time) -> T) -> Answer<T> {
        if reads { Ok(self.core.with(work)) } else { self.core.change(work).await }
    }

    async fn inject(&self, faults: CallFaults) -> Answer<()> {
        if !faults.slow.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(faults.slow) => {}
                () = self.core.stop().cancelled() => return Err(stopping()),
            }
        }
        faults.refusal.map_or(Ok(()), Err)
    }

    async fn transcode<Request: DeserializeOwned, Response: Serialize>(
        &self,
        method: Option<Method>,
        request: Value,
        work: impl FnOnce(&mut Broker, Time, Request) -> Answer<Response>,
    ) -> Answer<Value> {
        let request = from_json(request)?;
        to_json(&self.call(method, |broker, now| work(broker, now, request)).await?)
    }
}

/// Fields that hold users' values under users' keys.
const MAPS: &[&str] = &["attributes", "labels", "tags"];

/// Normalises JSON as proto3 reads it: `null` is an unset field, and `10.0` is an integer.
fn plain(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            for (_, value) in fields.iter_mut().filter(|(name, _)| !MAPS.contains(&name.as_str())) {
                plain(value);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(plain),
        Value::Number(number) => {
            let fraction = number.as_f64().filter(|_| number.is_f64());
            if let Some(whole) = fraction.and_then(|number| number.to_string().parse::<i64>().ok()) {
                *value = whole.into();
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn from_json<Request: DeserializeOwned>(mut request: Value) -> Answer<Request> {
    plain(&mut request);
    serde_json::from_value(request)
        .map_err(|error| Refusal::invalid(format!("Invalid JSON payload received: {error}.")))
}

fn to_json(response: &impl Serialize) -> Answer<Value> {
    serde_json::to_value(response).map_err(|error| {
        Refusal::new(Code::Internal, format!("The response cannot be written as JSON: {error}."))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::proto::pubsub::{PublishRequest, PullRequest, Subscription};

    #[test]
    fn null_is_not_set_and_a_whole_number_may_have_a_point() {
        let request = json!({"name": "n", "filter": null, "pushConfig": {"pushEndpoint": null},
            "ackDeadlineSeconds": 1.2e1, "labels": null});
        let read: Subscription = from_json(request).unwrap();
        assert_eq!((read.name.as_str(), read.filter.as_str(), read.ack_deadline_seconds), ("n", "", 12));
        assert_eq!(read.push_config, Some(Default::default()));
        assert_eq!(from_json::<PullRequest>(json!({"maxMessages": 10.0})).unwrap().max_messages, 10);
        for refused in [json!({"maxMessages": 10.5}), json!({"maxMessages": 1e300})] {
            assert!(from_json::<PullRequest>(refused).is_err());
        }
        let value = json!({"messages": [{"attributes": {"a": null}}]});
        assert!(from_json::<PublishRequest>(value).is_err(), "a map's values are no fields");
    }
}
