# Cloud SQL for Postgres with a private address, and its URL as a secret for each role. The events are here and nowhere else.

locals {
  # What an installation may want to set in another way.
  flags = merge({
    # A session that forgot its transaction keeps vacuum from removing what has completed.
    "idle_in_transaction_session_timeout" = "600000"
  }, var.flags)

  # What sqlx connects to: the socket that Cloud Run's connector, and the proxy of deploy/kubernetes, make for the
  # instance. No port is open, and no certificate has to be kept.
  socket = "/cloudsql/${google_sql_database_instance.this.connection_name}"

  # The owner of the schema migrates. The others get what they need from `wakeq migrate --api-role … --worker-role …`.
  users = {
    owner  = var.user
    api    = "${var.user}_api"
    worker = "${var.user}_worker"
  }
}

resource "google_sql_database_instance" "this" {
  # checkov:skip=CKV_GCP_79:15 and newer will do; which one is the installation's choice
  # checkov:skip=CKV_GCP_108:through the connector every host is the same
  # checkov:skip=CKV2_GCP_13:log_duration logs a line per statement, several per event
  # checkov:skip=CKV_GCP_55:`warning` is what Postgres itself thinks should be looked at
  # checkov:skip=CKV_GCP_109:`error` is Postgres' own default
  # checkov:skip=CKV_GCP_110:pgaudit would write the values of events into the log
  # checkov:skip=CKV_GCP_111:`ddl` logs what changes the schema; `all` would log several statements per event
  project             = var.project
  region              = var.region
  name                = var.name
  database_version    = var.database_version
  deletion_protection = var.deletion_protection

  settings {
    edition                     = var.edition
    tier                        = var.tier
    availability_type           = var.availability_type
    disk_type                   = "PD_SSD"
    disk_autoresize             = true
    deletion_protection_enabled = var.deletion_protection
    retain_backups_on_delete    = true
    # Only the connector gets in, which knows accounts: a password alone is not enough.
    connector_enforcement = "REQUIRED"

    ip_configuration {
      ipv4_enabled    = false
      private_network = var.network
      ssl_mode        = "TRUSTED_CLIENT_CERTIFICATE_REQUIRED"
    }

    backup_configuration {
      enabled                        = true
      start_time                     = var.backup_start_time
      location                       = var.backup_location
      point_in_time_recovery_enabled = true
      transaction_log_retention_days = var.recovery_days

      backup_retention_settings {
        retained_backups = var.retained_backups
      }
    }

    maintenance_window {
      day          = var.maintenance.day
      hour         = var.maintenance.hour
      update_track = "stable"
    }

    insights_config {
      query_insights_enabled  = true
      query_string_length     = 1024
      record_application_tags = false
      record_client_address   = false
    }

    # An acknowledged event must survive a crash: processes refuse to start on a server that is set otherwise.
    database_flags {
      name  = "synchronous_commit"
      value = "on"
    }

    # Looked for when a batch waits: who held the row.
    database_flags {
      name  = "log_lock_waits"
      value = "on"
    }

    # Who connected, for how long, and what was changed in the schema: never values of events.
    database_flags {
      name  = "log_connections"
      value = "on"
    }
    database_flags {
      name  = "log_disconnections"
      value = "on"
    }
    database_flags {
      name  = "log_checkpoints"
      value = "on"
    }
    database_flags {
      name  = "log_duration"
      value = "off"
    }
    database_flags {
      name  = "log_statement"
      value = "ddl"
    }
    database_flags {
      name  = "log_min_duration_statement"
      value = "-1"
    }
    database_flags {
      name  = "log_min_messages"
      value = "warning"
    }
    database_flags {
      name  = "log_min_error_statement"
      value = "error"
    }

    dynamic "database_flags" {
      for_each = local.flags
      content {
        name  = database_flags.key
        value = database_flags.value
      }
    }
  }

  lifecycle {
    # The disk grows by itself.
    ignore_changes = [settings[0].disk_size]
  }
}

resource "google_sql_database" "this" {
  project         = var.project
  instance        = google_sql_database_instance.this.name
  name            = var.database
  deletion_policy = "ABANDON"
}

# Made anew in each run, and taken only when `password_version` changes: the user and the secret then get the same one.
ephemeral "random_password" "this" {
  for_each = local.users

  length  = 40
  special = false
}

resource "google_sql_user" "this" {
  for_each = local.users

  project             = var.project
  instance            = google_sql_database_instance.this.name
  name                = each.value
  password_wo         = ephemeral.random_password.this[each.key].result
  password_wo_version = var.password_version
  deletion_policy     = "ABANDON"
}

resource "google_secret_manager_secret" "url" {
  for_each = local.users

  project   = var.project
  secret_id = "${var.name}-database-url-${each.key}"

  replication {
    user_managed {
      replicas {
        location = var.region
      }
    }
  }
}

resource "google_secret_manager_secret_version" "url" {
  for_each = local.users

  secret                 = google_secret_manager_secret.url[each.key].id
  secret_data_wo         = "postgres://${each.value}:${ephemeral.random_password.this[each.key].result}@localhost/${var.database}?host=${local.socket}"
  secret_data_wo_version = var.password_version
}

resource "google_secret_manager_secret_iam_member" "reader" {
  for_each = var.clients

  project   = var.project
  secret_id = google_secret_manager_secret.url[each.value.role].secret_id
  role      = "roles/secretmanager.secretAccessor"
  member    = "serviceAccount:${each.value.account}"
}

# Of this instance only: the role stands on the project, where it would open every database.
resource "google_project_iam_member" "client" {
  for_each = var.clients

  project = var.project
  role    = "roles/cloudsql.client"
  member  = "serviceAccount:${each.value.account}"

  condition {
    title      = "${var.name} only"
    expression = "resource.service == 'sqladmin.googleapis.com' && resource.name == 'projects/${var.project}/instances/${var.name}'"
  }
}
