//! One set of tests for every database, and the faults of PostgreSQL.
//!
//! SQLite always runs. PostgreSQL runs where `OPENSANDBOX_TEST_POSTGRESQL` is the URL of a database
//! for tests, which `cargo xtask test` starts; its role creates schemas and ends connections.

mod accounts;
mod audit;
mod changes;
mod commands;
mod creates;
mod history;
mod imports;
mod metrics;
mod pools;
mod postgres_faults;
mod postgres_tls;
mod sessions;
mod snapshot_migration;
mod snapshots;
mod start;
mod templates;
mod tools;
mod webhooks;
mod writes;

use std::sync::Arc;

use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, postgres::PgConnectOptions};
use url::Url;
use uuid::Uuid;

use crate::{Location, PostgresOptions, Store, StoreError};

/// URL of the database for tests.
const DATABASE: &str = "OPENSANDBOX_TEST_POSTGRESQL";

/// A place for one store.
struct Stage {
    location: Location,
    database: Option<Database>,
    _folder: Option<tempfile::TempDir>,
}

impl Stage {
    fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            location: Location::Sqlite(folder.path().join("deep/er/store.db")),
            database: None,
            _folder: Some(folder),
        }
    }

    /// `None`, with a note, without a database.
    async fn postgres() -> Option<Self> {
        let database = Database::find().await?;
        Some(Self {
            location: database.location(),
            database: Some(database),
            _folder: None,
        })
    }

    async fn open(&self) -> Arc<dyn Store> {
        self.try_open().await.unwrap()
    }

    async fn open_shared(&self) -> Option<Arc<dyn Store>> {
        crate::open_shared(&self.location).await.unwrap()
    }

    async fn try_open(&self) -> Result<Arc<dyn Store>, StoreError> {
        crate::open(&self.location).await
    }
}

/// A schema of its own in the database for tests.
struct Database {
    url: Url,
    schema: String,
}

impl Database {
    async fn find() -> Option<Self> {
        let Ok(url) = std::env::var(DATABASE) else {
            eprintln!("SKIPPED: PostgreSQL is not tested, {DATABASE} is not set");
            return None;
        };
        let database = Self {
            url: Url::parse(&url).unwrap(),
            schema: format!("test_{}", Uuid::new_v4().simple()),
        };
        let create = format!("CREATE SCHEMA {}", database.schema);
        run(&mut database.connect().await, create).await;
        Some(database)
    }

    /// A connection of another program.
    async fn connect(&self) -> PgConnection {
        let options: PgConnectOptions = self.url.as_str().parse().unwrap();
        options.connect().await.unwrap()
    }

    /// The URL of the schema. Its connections have the schema's name.
    fn dsn(&self) -> Url {
        let mut dsn = self.url.clone();
        dsn.query_pairs_mut()
            .append_pair("options", &format!("-c search_path={}", self.schema))
            .append_pair("application_name", &self.schema);
        dsn
    }

    fn location(&self) -> Location {
        location(&self.dsn())
    }
}

fn location(dsn: &Url) -> Location {
    Location::Postgres(PostgresOptions {
        dsn: dsn.as_str().into(),
        ..PostgresOptions::default()
    })
}

async fn run(connection: &mut PgConnection, statement: String) {
    let statement = sqlx::raw_sql(AssertSqlSafe(statement));
    statement.execute(connection).await.unwrap();
}

/// Runs each test on every database.
macro_rules! on_every_database {
    ($($module:ident::$test:ident,)*) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $test() {
                    super::$module::$test(super::Stage::sqlite()).await;
                }
            )*
        }

        mod postgres {
            $(
                #[tokio::test]
                async fn $test() {
                    if let Some(stage) = super::Stage::postgres().await {
                        super::$module::$test(stage).await;
                    }
                }
            )*
        }
    };
}

on_every_database! {
    accounts::users_have_unique_names_and_change_in_parts,
    accounts::keys_are_kept_until_they_are_revoked,
    accounts::every_change_counts_and_the_use_of_a_key_does_not,
    accounts::a_store_is_administered_beside_its_server,
    audit::entries_are_kept_in_order_and_once,
    audit::a_reader_meets_every_entry_once_while_others_are_written,
    audit::filters_select_and_combine,
    audit::the_oldest_are_pruned_in_bounded_steps,
    audit::entries_are_counted_whatever_their_places,
    audit::a_flood_of_refusals_displaces_no_act_that_was_done,
    audit::unreadable_entries_are_named,
    changes::changes_survive_a_restart_and_do_not_touch_each_other,
    changes::many_writers_queue_instead_of_failing,
    changes::every_change_keeps_the_tenant,
    commands::a_command_is_updated_by_its_end_and_the_oldest_go_first,
    commands::commands_of_a_sandbox_are_bounded_in_rows_and_bytes,
    commands::commands_are_kept_from_the_end_of_their_sandbox,
    commands::the_oldest_commands_of_all_go_first,
    creates::a_create_is_unanswered_until_it_is_answered_or_over,
    creates::a_key_is_claimed_once_until_it_is_freed_or_expires,
    creates::concurrent_claims_of_a_key_have_one_winner,
    history::finishing_moves_a_sandbox_from_changes_to_history_once,
    history::the_last_use_of_each_image_is_known,
    history::a_busy_tenant_does_not_hide_the_history_of_another,
    history::any_text_can_be_stored_and_looked_up,
    history::pages_of_the_history_meet_every_entry_once,
    history::an_entry_of_an_earlier_release_is_read,
    imports::an_import_is_kept_with_its_files_until_the_sandbox_is_gone,
    metrics::a_stretch_replaces_the_one_in_its_place,
    metrics::metrics_are_kept_from_the_end_of_their_sandbox,
    sessions::many_sessions_are_pruned_at_once,
    sessions::sessions_are_created_once_and_pruned_by_expiry,
    snapshot_migration::a_dry_run_writes_nothing_and_a_second_run_skips,
    snapshot_migration::a_file_from_before_tenants_is_read,
    snapshot_migration::what_cannot_be_read_is_named_and_nothing_is_copied,
    pools::a_pool_and_its_members_are_read_back_whole_after_a_restart,
    pools::a_name_is_taken_within_a_tenant,
    pools::a_member_is_claimed_once,
    pools::a_member_whose_id_is_known_already_drains,
    pools::what_waits_drains_with_its_pool_or_template,
    pools::a_member_needs_its_pool_with_its_template,
    pools::a_member_that_is_added_beside_another_template_drains_or_is_refused,
    pools::the_history_of_a_sandbox_forgets_its_membership,
    snapshots::a_snapshot_is_read_back_whole_after_a_restart,
    snapshots::lists_are_filtered_ordered_and_paged,
    snapshots::a_snapshot_changes_only_from_the_state_that_was_seen,
    snapshots::concurrent_changes_have_one_winner,
    snapshots::open_snapshots_states_and_totals_are_found,
    templates::a_template_is_read_back_whole_after_a_restart,
    templates::lists_are_filtered_by_labels_and_paged,
    templates::a_template_changes_only_from_the_phase_that_was_seen,
    templates::a_template_is_marked_as_deleted_once_from_any_phase,
    templates::concurrent_changes_of_a_template_have_one_winner,
    templates::open_templates_phases_and_totals_are_found,
    tools::a_store_in_use_is_inspected,
    tools::damage_of_every_column_is_found,
    tools::tables_that_are_missing_or_not_of_the_store_are_named,
    tools::unreadable_rows_are_named,
    tools::many_damaged_rows_are_counted_and_the_first_named,
    start::a_second_server_is_rejected_until_the_first_has_closed,
    webhooks::subscriptions_are_kept_with_their_secrets,
    webhooks::messages_are_added_with_what_they_announce,
    webhooks::an_end_waits_to_be_announced_once_and_only_while_tracking,
    webhooks::deliveries_are_due_in_order_and_end_once,
    webhooks::deliveries_are_given_up_redelivered_and_pruned_in_batches,
    writes::every_write_works,
}
