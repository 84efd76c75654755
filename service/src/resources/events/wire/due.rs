//! When an event is due, to be changed.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use wakeq::events::Due;

/// When the event is due from now on: one of the two.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetDue {
    /// The moment. One that has passed means now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) delay_until: Option<DateTime<Utc>>,
    /// How long from now, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, example = 3600)]
    pub(crate) delay_s: Option<f64>,
}

/// The event that is due at another time.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DueEvent {
    pub(crate) id: Uuid,
    /// When the event is due.
    pub(crate) delay_until: DateTime<Utc>,
}

impl SetDue {
    /// As the queue takes it, or what is wrong with it.
    pub(crate) fn read(&self) -> Result<Due, &'static str> {
        match (self.delay_until, self.delay_s) {
            (Some(moment), None) => Ok(Due::At(moment)),
            (None, Some(delay)) => Duration::try_from_secs_f64(delay)
                .map(Due::After)
                .map_err(|_| "`delay_s` is a number of seconds from now, not below zero"),
            (Some(_), Some(_)) | (None, None) => Err("give either `delay_until` or `delay_s`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_the_two_says_when() {
        let read = |json: &str| serde_json::from_str::<SetDue>(json).unwrap().read();
        assert_eq!(read(r#"{"delay_s": 1.5}"#), Ok(Due::After(Duration::from_millis(1500))));
        let moment = "2030-01-31T08:00:00Z".parse().unwrap();
        assert_eq!(read(r#"{"delay_until": "2030-01-31T08:00:00Z"}"#), Ok(Due::At(moment)));
        for refused in
            ["{}", r#"{"delay_s": -1}"#, r#"{"delay_s": 1, "delay_until": "2030-01-31T08:00:00Z"}"#]
        {
            assert!(read(refused).is_err(), "{refused}");
        }
    }
}
