//! `wakeq migrate`: creates the tables, and grants roles their rights on them. Creates no roles.

use std::cell::RefCell;

use clap::Args;

use crate::cli::progress::Progress;
use crate::cli::{Context, show};
use wakeq::Store;
use wakeq::database::{MigrationStatus, RoleKind};

#[derive(Args)]
pub(crate) struct Migrate {
    /// Show what would be done, without changing anything
    #[arg(long)]
    dry_run: bool,
    /// Grant this database role the API's rights; the role must exist. Repeatable
    #[arg(long, env = "WAKEQ_API_ROLE", value_name = "ROLE", value_delimiter = ',')]
    api_role: Vec<String>,
    /// Grant this database role the workers' rights; the role must exist. Repeatable
    #[arg(long, env = "WAKEQ_WORKER_ROLE", value_name = "ROLE", value_delimiter = ',')]
    worker_role: Vec<String>,
}

impl Migrate {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        context.without_server()?;
        let (url, config) = (context.database.url()?, context.database.to_migrate());
        let now = RefCell::new("looking for missing migrations".to_owned());
        let tell = |version, description: &str| {
            now.replace(format!("migration {version}: {description}"));
        };
        let migrating = Store::migrate_with_progress(url, self.dry_run, &config, tell);
        let mut newer = Vec::new();
        for migration in Progress::on_stderr().watch(migrating, || now.borrow().clone()).await? {
            let status = match migration.status {
                MigrationStatus::Present => "present",
                MigrationStatus::Applied => "applied",
                MigrationStatus::Missing => "missing",
                MigrationStatus::Newer => "newer",
            };
            show::line(format_args!("{:>4}  {status:8} {}", migration.version, migration.description))?;
            if migration.status == MigrationStatus::Newer {
                newer.push(migration.version.to_string());
            }
        }
        if !newer.is_empty() {
            let newer = newer.join(", ");
            show::line(format_args!("      the schema is newer than this program: {newer}"))?;
        }
        let api = self.api_role.iter().map(|role| (role, RoleKind::Api));
        let worker = self.worker_role.iter().map(|role| (role, RoleKind::Worker));
        for (role, kind) in api.chain(worker).filter(|(role, _)| !role.is_empty()) {
            if !self.dry_run {
                Store::grant_rights(url, &config, role, kind).await?;
            }
            show::line(format_args!("      granted  the rights of the kind `{kind}` to {role}"))?;
        }
        Ok(())
    }
}
