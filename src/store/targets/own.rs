//! The deployment's own origins and audiences: written by the processes that serve them, read by
//! all.

use crate::event::OwnDeployment;
use crate::store::kernel::{Store, StoreError};

impl Store {
    /// The deployment, as deliveries need to know it.
    #[doc(hidden)]
    pub async fn own_deployment(&self) -> Result<OwnDeployment, StoreError> {
        let query = sqlx::query!("select namespace, names from wakeq.deployment");
        let row = self.session().await?.one("read the deployment's own names", query).await?;
        Ok(OwnDeployment::new(row.namespace, row.names))
    }

    /// Adds origins and audiences to the deployment's own, unless it has them; returns whether
    /// there was room for all, at most 100.
    #[doc(hidden)]
    pub async fn add_own_names(&self, names: &[String]) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with added as (
                   update wakeq.deployment d
                      set names = (select array_agg(distinct name order by name) from unnest(d.names || $1) as all_names (name))
                    where not d.names @> $1
                      and (select count(distinct name) from unnest(d.names || $1) as all_names (name)) <= 100
                returning sole
               )
               select exists (select from added) or names @> $1 as "added!" from wakeq.deployment"#,
            names
        );
        self.session().await?.one("write the deployment's own names", query).await
    }
}
