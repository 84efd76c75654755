//! `wakeq migrate`.

use clap::Args;

use super::{Context, show};
use crate::store::{MigrationStatus, Store};

#[derive(Args)]
pub(crate) struct Migrate {
    /// Show what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl Migrate {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        context.without_server()?;
        for migration in Store::migrate(context.database.url()?, self.dry_run).await? {
            let status = match migration.status {
                MigrationStatus::Present => "present",
                MigrationStatus::Applied => "applied",
                MigrationStatus::Missing => "missing",
            };
            show::line(format_args!("{:>4}  {status:8} {}", migration.version, migration.description))?;
        }
        Ok(())
    }
}
