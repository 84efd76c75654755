//! The embedded migrations, and which of them a database has.

use std::sync::{Arc, LazyLock};

use sqlx::migrate::{Migrate, MigrateError, Migrator};
use sqlx::{ConnectOptions, Connection};

use super::engine::ForeignEngine;
use super::route::DatabaseRoute;
use super::{Store, StoreConfig, StoreError};

/// Migrations of a newer release do no harm: each leaves the schema as the release before needs it.
static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrations = sqlx::migrate!();
    migrations.set_ignore_missing(true);
    migrations
});

/// A migration and whether the database has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MigrationState {
    /// Its version number.
    pub version: i64,
    /// What it does, from its file name.
    pub description: String,
    /// Whether it was applied, before or just now.
    pub status: MigrationStatus,
}

/// Whether a migration was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationStatus {
    /// Applied by an earlier run.
    Present,
    /// Applied by this run.
    Applied,
    /// Not applied.
    Missing,
    /// Applied by a newer program; this one does not have it, and can work with it.
    Newer,
}

/// How a database's migrations differ from those of this program, as version numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationDifferences {
    /// This program has them, the database does not.
    pub missing: Vec<i64>,
    /// The database has them, this program does not.
    pub unknown: Vec<i64>,
    /// Their checksums differ.
    pub changed: Vec<i64>,
    /// They were started and not finished.
    pub unfinished: Vec<i64>,
}

impl Store {
    /// Whether the database has every migration of this program. Newer ones do no harm. Also calls
    /// a function, which looks at nothing and returns true: on a server that can't load PL/pgSQL
    /// hardly any statement works.
    pub(crate) async fn is_migrated(&self) -> Result<bool, StoreError> {
        let versions: Vec<i64> = MIGRATIONS.iter().map(|migration| migration.version).collect();
        let query = sqlx::query_scalar!(
            r#"select count(*) = cardinality($1::bigint[]) and wakeq.is_shown(null) as "all!"
                 from wakeq._migrations where version = any ($1) and success"#,
            &versions
        );
        self.session().await?.one("look for migrations", query).await
    }

    /// Applies the migrations that the database lacks, each in its own transaction, one process at
    /// a time.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), wakeq::StoreError> {
    /// for migration in wakeq::Store::migrate("postgres://localhost/app", false).await? {
    ///     println!("{} {} {:?}", migration.version, migration.description, migration.status);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// With `dry_run` nothing is changed. Migrations of a newer release are left as they are, and
    /// come last as [`MigrationStatus::Newer`]. Uses a connection of its own, without a time limit.
    pub async fn migrate(url: &str, dry_run: bool) -> Result<Vec<MigrationState>, StoreError> {
        Self::migrate_with(url, dry_run, &StoreConfig::default()).await
    }

    /// As [`Store::migrate`]; of `config` only [`StoreConfig::allow_unverified_database`] is used,
    /// and [`StoreConfig::transaction_pooler`], through which nothing can be migrated.
    pub async fn migrate_with(
        url: &str,
        dry_run: bool,
        config: &StoreConfig,
    ) -> Result<Vec<MigrationState>, StoreError> {
        Self::migrate_with_progress(url, dry_run, config, |_, _| {}).await
    }

    /// Also tells the version and description of each migration before it is applied.
    #[doc(hidden)]
    pub async fn migrate_with_progress(
        url: &str,
        dry_run: bool,
        config: &StoreConfig,
        tell: impl Fn(i64, &str),
    ) -> Result<Vec<MigrationState>, StoreError> {
        let refused = |error| StoreError::from_sqlx("migrate", error);
        if config.transaction_pooler {
            return Err(StoreError::Config(
                "a pooler in transaction mode can't migrate: connect directly for this",
            ));
        }
        let options: sqlx::postgres::PgConnectOptions = url.parse().map_err(refused)?;
        DatabaseRoute::check(&options, config.allow_unverified_database)?;
        let mut connection = options.application_name("wakeq migrate").connect().await.map_err(refused)?;
        if let Some(engine) = ForeignEngine::ask(&mut connection).await.map_err(refused)? {
            return Err(StoreError::ForeignEngine(format!("{engine}: {}", ForeignEngine::ADVICE)));
        }
        let before = applied(&mut connection).await?;
        if !dry_run {
            for missing in MIGRATIONS.iter().filter(|migration| !before.contains(&migration.version)) {
                tell(missing.version, &missing.description);
                MIGRATIONS.run_to(missing.version, &mut connection).await.map_err(failed)?;
            }
            // Also compares those that were there.
            MIGRATIONS.run(&mut connection).await.map_err(failed)?;
        }
        connection.close().await.map_err(refused)?;
        let status = |version: i64| match (before.contains(&version), dry_run) {
            (true, _) => MigrationStatus::Present,
            (false, true) => MigrationStatus::Missing,
            (false, false) => MigrationStatus::Applied,
        };
        let states = MIGRATIONS.iter().map(|migration| MigrationState {
            version: migration.version,
            description: migration.description.to_string(),
            status: status(migration.version),
        });
        let newer = before.iter().filter(|version| !MIGRATIONS.version_exists(**version));
        let newer = newer.map(|version| MigrationState {
            version: *version,
            description: "of a newer release".to_owned(),
            status: MigrationStatus::Newer,
        });
        Ok(states.chain(newer).collect())
    }

    /// Which migrations the database lacks, and which of its own differ from this program's.
    #[doc(hidden)]
    pub async fn migration_differences(&self) -> Result<MigrationDifferences, StoreError> {
        let query = sqlx::query!(
            "select version, success, checksum from wakeq._migrations order by version limit 10000"
        );
        let mut found = MigrationDifferences::default();
        let rows = match self.session().await?.all("look at the migrations", query).await {
            Err(StoreError::NotMigrated(_)) => Vec::new(),
            rows => rows?,
        };
        for row in &rows {
            match MIGRATIONS.iter().find(|known| known.version == row.version) {
                None => found.unknown.push(row.version),
                Some(_) if !row.success => found.unfinished.push(row.version),
                Some(known) if known.checksum.as_ref() != row.checksum => found.changed.push(row.version),
                Some(_) => {}
            }
        }
        let is_there = |version: i64| rows.iter().any(|row| row.version == version);
        found.missing =
            MIGRATIONS.iter().map(|known| known.version).filter(|version| !is_there(*version)).collect();
        Ok(found)
    }

    /// A hash over all migrations of this program: two databases to which programs with the same
    /// hash have applied theirs have the same schema.
    pub fn migrations_hash() -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};

        let mut hasher = DefaultHasher::new();
        for migration in MIGRATIONS.iter() {
            migration.checksum.hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// The versions that the database has; empty before the first run.
async fn applied(connection: &mut sqlx::PgConnection) -> Result<Vec<i64>, StoreError> {
    let exists: bool = sqlx::query_scalar("select to_regclass('wakeq._migrations') is not null")
        .fetch_one(&mut *connection)
        .await
        .map_err(|error| StoreError::from_sqlx("look for the table of migrations", error))?;
    if !exists {
        return Ok(Vec::new());
    }
    let applied = connection.list_applied_migrations("wakeq._migrations").await.map_err(failed)?;
    Ok(applied.into_iter().map(|migration| migration.version).collect())
}

fn failed(error: MigrateError) -> StoreError {
    if let MigrateError::Dirty(version) = error {
        return StoreError::PartlyMigrated(version);
    }
    StoreError::Migration(Arc::new(error))
}
