# What must always hold for the database that stores the events, checked on plans without a cloud.

mock_provider "google" {}

variables {
  project = "my-project"
  region  = "europe-west1"
  network = "network"
  clients = { worker = { account = "worker@my-project.iam.gserviceaccount.com", role = "worker" } }
}

run "defaults" {
  command = plan

  assert {
    condition     = google_sql_database_instance.this.deletion_protection && google_sql_database_instance.this.settings[0].deletion_protection_enabled
    error_message = "the instance must be protected against accidental deletion"
  }
  assert {
    condition     = google_sql_database_instance.this.settings[0].backup_configuration[0].enabled && google_sql_database_instance.this.settings[0].backup_configuration[0].point_in_time_recovery_enabled
    error_message = "backups and point-in-time recovery must be on"
  }
  assert {
    condition     = google_sql_database_instance.this.settings[0].ip_configuration[0].ipv4_enabled == false
    error_message = "the instance must have no public address"
  }
  assert {
    condition     = { for flag in google_sql_database_instance.this.settings[0].database_flags : flag.name => flag.value }["synchronous_commit"] == "on"
    error_message = "an acknowledged event must survive a crash"
  }
  assert {
    condition     = one([for member in google_project_iam_member.client : member.condition[0].expression]) == "resource.service == 'sqladmin.googleapis.com' && resource.name == 'projects/my-project/instances/wakeq'"
    error_message = "clients may connect to this instance only"
  }
  assert {
    condition     = { for role, user in google_sql_user.this : role => user.name } == { owner = "wakeq", api = "wakeq_api", worker = "wakeq_worker" }
    error_message = "each kind of process must have its own role"
  }
  assert {
    condition     = one([for reader in google_secret_manager_secret_iam_member.reader : reader.secret_id]) == "wakeq-database-url-worker"
    error_message = "a worker may read only the password of workers"
  }
}

run "a_client_of_no_role" {
  command = plan

  variables {
    clients = { worker = { account = "worker@my-project.iam.gserviceaccount.com", role = "admin" } }
  }

  expect_failures = [var.clients]
}

run "a_flag_overrides_the_default" {
  command = plan

  variables {
    flags = { idle_in_transaction_session_timeout = "60000", max_connections = "500" }
  }

  assert {
    condition     = { for flag in google_sql_database_instance.this.settings[0].database_flags : flag.name => flag.value }["idle_in_transaction_session_timeout"] == "60000"
    error_message = "the deployment's value must win"
  }
}

run "an_old_postgres" {
  command = plan

  variables {
    database_version = "POSTGRES_14"
  }

  expect_failures = [var.database_version]
}
