//! Subscribers: their nodes, the sources that they request, their health, and the epochs that they
//! have confirmed.

use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::{json, lock_group, requests_of_others, sources};
use crate::event::{NodeId, SubscriberId, SubscriberState};
use crate::store::Store;
use wakeq::internals::interval;
use wakeq::log::EventSource;
use wakeq::{Name, StoreError};

/// Maximum number of subscribers of all groups.
const SUBSCRIBERS_MAX: i64 = 100_000;

/// The outcome of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RegisterOutcome {
    /// It is a member.
    Done,
    /// Another member requests the first of these sources, and this one the second in its place.
    Differs {
        /// The sources that the other member requests.
        known: EventSource,
        /// The sources that this member requests.
        asked: EventSource,
    },
}

struct NewSubscriber<'a> {
    group: &'a Name,
    id: SubscriberId,
    node: NodeId,
    requests: &'a [EventSource],
    lease: Duration,
}

impl Store {
    /// Registers a subscriber as healthy, also if it was registered before, unless another live
    /// member of its group requests something else. The members of a group are registered one after
    /// the other, so that of two that start together the second sees the first.
    pub(crate) async fn register_subscriber(
        &self,
        group: &Name,
        id: SubscriberId,
        node: NodeId,
        requests: &[EventSource],
        lease: Duration,
    ) -> Result<RegisterOutcome, StoreError> {
        let new = NewSubscriber { group, id, node, requests, lease };
        let mut session = self.session().await?.for_statements(3);
        let registered = session.limit(|connection| register(connection, &new)).await;
        session.answered("register a subscriber", registered).await
    }

    /// Writes heartbeats and confirmed epochs; returns those subscribers that are registered. One
    /// whose lease has run out is not: a subscriber with other requests may have been registered
    /// since.
    pub(crate) async fn beat_subscribers(
        &self,
        beats: &[(SubscriberId, i64)],
        lease: Duration,
    ) -> Result<Vec<SubscriberId>, StoreError> {
        let (ids, epochs): (Vec<Uuid>, Vec<i64>) = beats.iter().map(|(id, epoch)| (id.0, *epoch)).unzip();
        let query = sqlx::query_scalar!(
            "update wakeq.subscribers
                set heartbeat_timestamp = clock_timestamp(), expires_at = clock_timestamp() + $3::interval,
                    confirmed_epoch = greatest(confirmed_epoch, ($2::bigint[])[array_position($1, subscriber_id)])
              where subscriber_id = any ($1) and unhealthy is null and expires_at >= clock_timestamp()
             returning subscriber_id",
            &ids,
            &epochs,
            interval(lease)
        );
        let rows = self.session().await?.all("write the heartbeats of subscribers", query).await?;
        Ok(rows.into_iter().map(SubscriberId).collect())
    }

    /// Writes a confirmed epoch, whether or not the subscriber is healthy. This does not count as a
    /// heartbeat.
    pub(crate) async fn confirm_epoch(&self, id: SubscriberId, epoch: i64) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "update wakeq.subscribers set confirmed_epoch = $2 where subscriber_id = $1 and confirmed_epoch < $2",
            id.0,
            epoch
        );
        self.session().await?.execute("confirm an epoch", query).await.map(drop)
    }

    /// Marks a subscriber as unable to work, with the reason.
    pub(crate) async fn set_unhealthy(&self, id: SubscriberId, why: &str) -> Result<(), StoreError> {
        let query =
            sqlx::query!("update wakeq.subscribers set unhealthy = $2 where subscriber_id = $1", id.0, why);
        self.session().await?.execute("mark a subscriber as unhealthy", query).await.map(drop)
    }

    /// Removes subscribers that have stopped, with their subscriptions.
    pub(crate) async fn remove_subscribers(&self, ids: &[SubscriberId]) -> Result<(), StoreError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let query = sqlx::query!("delete from wakeq.subscribers where subscriber_id = any ($1)", &ids);
        self.session().await?.execute("remove subscribers", query).await.map(drop)
    }

    /// The subscribers of all groups, or of one.
    pub(crate) async fn subscribers(&self, group: Option<&Name>) -> Result<Vec<SubscriberState>, StoreError> {
        let query = sqlx::query!(
            r#"select subscriber_name::text as "name!", subscriber_id, node_id, heartbeat_timestamp,
                      requests::text as "requests!", unhealthy, confirmed_epoch,
                      expires_at < clock_timestamp() as "lapsed!"
                 from wakeq.subscribers where $1::text is null or subscriber_name = $1
                order by subscriber_name, subscriber_id limit $2"#,
            group.map(Name::as_str),
            SUBSCRIBERS_MAX
        );
        let rows = self.session().await?.all("list subscribers", query).await?;
        let states = rows.into_iter().filter_map(|row| {
            Some(SubscriberState {
                group: row.name.parse().ok()?,
                id: SubscriberId(row.subscriber_id),
                node: NodeId(row.node_id),
                requests: sources(&row.requests),
                unhealthy: row.unhealthy,
                confirmed_epoch: row.confirmed_epoch,
                heartbeat_at: row.heartbeat_timestamp,
                lapsed: row.lapsed,
            })
        });
        Ok(states.collect())
    }

    /// All sources of each group, or of one: the longest requests among its healthy members.
    #[doc(hidden)]
    pub async fn group_sources(
        &self,
        group: Option<&Name>,
    ) -> Result<Vec<(Name, Vec<EventSource>)>, StoreError> {
        let query = sqlx::query!(
            r#"select subscriber_name::text as "name!", event_sources::text as "sources!"
                 from wakeq.subscription_sources where $1::text is null or subscriber_name = $1
                order by subscriber_name limit $2"#,
            group.map(Name::as_str),
            SUBSCRIBERS_MAX
        );
        let rows = self.session().await?.all("list the sources of groups", query).await?;
        let of = |(name, list): (String, String)| Some((name.parse().ok()?, sources(&list)));
        Ok(rows.into_iter().filter_map(|row| of((row.name, row.sources))).collect())
    }
}

async fn register(
    connection: &mut PgConnection,
    new: &NewSubscriber<'_>,
) -> Result<RegisterOutcome, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    lock_group(&mut transaction, new.group).await?;
    let others = requests_of_others(&mut transaction, new.group, Some(new.id)).await?;
    if let Some((known, asked)) =
        others.iter().find_map(|known| EventSource::incomparable(known, new.requests))
    {
        transaction.rollback().await?;
        return Ok(RegisterOutcome::Differs { known, asked });
    }
    let member = sqlx::query!(
        "insert into wakeq.subscribers
             (subscriber_name, subscriber_id, node_id, heartbeat_timestamp, expires_at, requests, request_count)
         values ($1, $2, $3, clock_timestamp(), clock_timestamp() + $5::interval, $4::text::json, $6)
         on conflict (subscriber_id) do update
            set heartbeat_timestamp = excluded.heartbeat_timestamp, expires_at = excluded.expires_at,
                requests = excluded.requests, request_count = excluded.request_count, unhealthy = null",
        new.group.as_str() as _,
        new.id.0,
        new.node.0,
        json(new.requests),
        interval(new.lease),
        i32::try_from(new.requests.len()).unwrap_or(i32::MAX)
    );
    member.execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(RegisterOutcome::Done)
}
