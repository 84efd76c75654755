//! Subscriptions: the sources that each subscriber is assigned. Every write restates that the
//! caller is the coordinator.

use uuid::Uuid;

use super::{json, sources};
use crate::event::{NewSubscription, NodeId, SubscriberId, Subscription, Term};
use crate::store::Store;
use wakeq::{Name, StoreError};

/// Maximum number of subscriptions of all groups.
const SUBSCRIPTIONS_MAX: i64 = 100_000;

impl Store {
    /// Takes everything from subscribers whose lease has run out and removes them, and nodes whose
    /// lease has. An unhealthy subscriber on a live node keeps its row, so that it can be seen.
    ///
    /// The rows are locked before they are checked again: a heartbeat that came in between is not
    /// overlooked, and one that comes later finds nothing to write. They are locked in the order of
    /// their ids, as heartbeats do. Returns them, or `None` if nothing was done because the caller
    /// is no longer the coordinator.
    pub(crate) async fn remove_lapsed_subscribers(
        &self,
        lead: &Term,
    ) -> Result<Option<Vec<SubscriberId>>, StoreError> {
        let query = sqlx::query!(
            r#"with lead as (
                   select from wakeq.locks
                    where name = $1 and owner = $2 and term = $3 and expires_at >= clock_timestamp() for share
               ), lapsed as (
                   select s.subscriber_id,
                          s.unhealthy is not null and exists (select from wakeq.nodes n
                               where n.node_id = s.node_id and n.expires_at >= clock_timestamp()) as shown
                     from wakeq.subscribers s
                    where s.expires_at < clock_timestamp() and exists (select from lead)
                    order by s.subscriber_id for update of s
               ), ended as (
                   delete from wakeq.subscriptions
                    where subscriber_id = any (array(select subscriber_id from lapsed)) returning subscriber_id
               ), gone as (
                   delete from wakeq.subscribers
                    where subscriber_id = any (array(select subscriber_id from lapsed where not shown))
                returning subscriber_id
               ), nodes as (
                   delete from wakeq.nodes where expires_at < clock_timestamp() and exists (select from lead)
               )
               select exists (select from lead) as "lead!",
                      array(select subscriber_id from ended union select subscriber_id from gone) as "buried!""#,
            lead.name.as_str() as _,
            lead.owner,
            lead.term
        );
        let row = self.session().await?.one("remove lapsed subscribers", query).await?;
        Ok(row.lead.then(|| row.buried.into_iter().map(SubscriberId).collect()))
    }

    /// Writes these subscriptions, each under a new epoch, unless it was written by another process
    /// since it was read, or the subscriber is gone. Returns those that were written, or `None` if
    /// none was because the caller is no longer the coordinator.
    pub(crate) async fn write_subscriptions(
        &self,
        lead: &Term,
        new: &[NewSubscription],
    ) -> Result<Option<Vec<SubscriberId>>, StoreError> {
        let names: Vec<String> = new.iter().map(|one| one.group.to_string()).collect();
        let ids: Vec<Uuid> = new.iter().map(|one| one.subscriber.0).collect();
        let nodes: Vec<Uuid> = new.iter().map(|one| one.node.0).collect();
        let lists: Vec<String> = new.iter().map(|one| json(&one.sources)).collect();
        let releasing: Vec<String> = new.iter().map(|one| json(&one.releasing)).collect();
        let seen: Vec<i64> = new.iter().map(|one| one.seen_epoch).collect();
        let query = sqlx::query!(
            r#"with lead as (
                   select from wakeq.locks
                    where name = $1 and owner = $2 and term = $3 and expires_at >= clock_timestamp() for share
               ), written as (
                   insert into wakeq.subscriptions as s (subscriber_name, subscriber_id, node_id,
                                                         subscriber_event_sources, releasing, epoch, term)
                   select new.name, new.id, new.node, new.sources::json, new.releasing::json,
                          nextval('wakeq.allocation_epochs'), $3
                     from lead, unnest($4::text[], $5::uuid[], $6::uuid[], $7::text[], $8::text[])
                                    as new (name, id, node, sources, releasing)
                    where exists (select from wakeq.subscribers r
                                   where r.subscriber_id = new.id and r.node_id = new.node for key share)
                       on conflict (subscriber_id) do update
                      set subscriber_event_sources = excluded.subscriber_event_sources,
                          releasing = excluded.releasing, epoch = excluded.epoch, term = excluded.term,
                          updated_at = now()
                    where s.epoch = ($9::bigint[])[array_position($5, s.subscriber_id)]
                returning subscriber_id
               )
               select exists (select from lead) as "lead!",
                      array(select subscriber_id from written) as "written!""#,
            lead.name.as_str() as _,
            lead.owner,
            lead.term,
            &names,
            &ids,
            &nodes,
            &lists,
            &releasing,
            &seen
        );
        let row = self.session().await?.one("write subscriptions", query).await?;
        Ok(row.lead.then(|| row.written.into_iter().map(SubscriberId).collect()))
    }

    /// Takes new epochs, for brokers that keep their subscriptions elsewhere.
    pub(crate) async fn next_epochs(&self, count: usize) -> Result<Vec<i64>, StoreError> {
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let query = sqlx::query_scalar!(
            r#"select nextval('wakeq.allocation_epochs') as "epoch!" from generate_series(1, $1)"#,
            count
        );
        self.session().await?.all("take epochs", query).await
    }

    /// The subscriptions of all subscribers, or of those of a group.
    #[doc(hidden)]
    pub async fn subscriptions(&self, group: Option<&Name>) -> Result<Vec<Subscription>, StoreError> {
        let query = sqlx::query_as!(
            SubscriptionRow,
            r#"select subscriber_name::text as "name!", subscriber_id, node_id,
                      subscriber_event_sources::text as "sources!", releasing::text as "releasing!", epoch, term
                 from wakeq.subscriptions where $1::text is null or subscriber_name = $1
                order by subscriber_name, subscriber_id limit $2"#,
            group.map(Name::as_str),
            SUBSCRIPTIONS_MAX
        );
        let rows = self.session().await?.all("list subscriptions", query).await?;
        Ok(rows.into_iter().filter_map(SubscriptionRow::read).collect())
    }

    /// The subscriptions of the subscribers on a node.
    pub(crate) async fn subscriptions_of(&self, node: NodeId) -> Result<Vec<Subscription>, StoreError> {
        let query = sqlx::query_as!(
            SubscriptionRow,
            r#"select subscriber_name::text as "name!", subscriber_id, node_id,
                      subscriber_event_sources::text as "sources!", releasing::text as "releasing!", epoch, term
                 from wakeq.subscriptions where node_id = $1 order by subscriber_id limit $2"#,
            node.0,
            SUBSCRIPTIONS_MAX
        );
        let rows = self.session().await?.all("read the subscriptions of a node", query).await?;
        Ok(rows.into_iter().filter_map(SubscriptionRow::read).collect())
    }
}

struct SubscriptionRow {
    name: String,
    subscriber_id: Uuid,
    node_id: Uuid,
    sources: String,
    releasing: String,
    epoch: i64,
    term: i64,
}

impl SubscriptionRow {
    fn read(self) -> Option<Subscription> {
        Some(Subscription {
            group: self.name.parse().ok()?,
            subscriber: SubscriberId(self.subscriber_id),
            node: NodeId(self.node_id),
            sources: sources(&self.sources),
            releasing: sources(&self.releasing),
            epoch: self.epoch,
            term: self.term,
        })
    }
}
