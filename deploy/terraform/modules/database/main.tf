# Cloud SQL for Postgres with a private address, and a secret with its URL for each role. This is the only place where
# events are stored.

locals {
  # Flags that a deployment may override.
  flags = merge({
    # A session that leaves its transaction open keeps vacuum from removing the rows of completed events.
    "idle_in_transaction_session_timeout" = "600000"
  }, var.flags)

  # What sqlx connects to: the Unix socket that Cloud Run's connector, or the proxy of deploy/kubernetes, creates for the
  # instance. No port is open, and there is no certificate to keep.
  socket = "/cloudsql/${google_sql_database_instance.this.connection_name}"

  # The owner of the schema runs the migrations. The others get their rights from `wakeq migrate --api-role … --worker-role …`.
  users = {
    owner  = var.user
    api    = "${var.user}_api"
    worker = "${var.user}_worker"
  }
}

resource "google_sql_database_instance" "this" {
  # checkov:skip=CKV_GCP_79:Postgres 15 or newer is enough; the deployment chooses the version
  # checkov:skip=CKV_GCP_108:all connections come through the connector, so the host name says nothing
  # checkov:skip=CKV2_GCP_13:log_duration logs a line per statement, which is several per event
  # checkov:skip=CKV_GCP_55:`warning` is Postgres's own default
  # checkov:skip=CKV_GCP_109:`error` is Postgres's own default
  # checkov:skip=CKV_GCP_110:pgaudit would log the values of events
  # checkov:skip=CKV_GCP_111:`ddl` logs schema changes; `all` would log several statements per event
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
    # Only the connector is admitted, and it checks IAM: a password alone is not enough.
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

    # An acknowledged event must survive a crash: processes refuse to start if this is set otherwise.
    database_flags {
      name  = "synchronous_commit"
      value = "on"
    }

    # Shows which session held a row when a batch waited for it.
    database_flags {
      name  = "log_lock_waits"
      value = "on"
    }

    # Logs connections, their duration and schema changes, but never the values of events.
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
    # The disk grows automatically.
    ignore_changes = [settings[0].disk_size]
  }
}

resource "google_sql_database" "this" {
  project         = var.project
  instance        = google_sql_database_instance.this.name
  name            = var.database
  deletion_policy = "ABANDON"
}

# Generated in each run, and used only when `password_version` changes: the user and the secret then get the same one.
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

# The role is granted on the project, where it would admit to every instance; the condition limits it to this one.
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
