# The key under which the signing secrets of HTTP targets are encrypted in the database: WAKEQ_SECRET_KEY. A backup of the database
# and this secret together are what signs deliveries, so that they belong into different hands.

# 64 random letters and digits, hashed to the 32 bytes of a key; made anew in each run, and taken in the first one only.
ephemeral "random_password" "this" {
  length  = 64
  special = false
}

resource "google_secret_manager_secret" "this" {
  project   = var.project
  secret_id = "${var.name}-secret-key"

  replication {
    user_managed {
      replicas {
        location = var.region
      }
    }
  }
}

# A rotation adds versions by hand, NEW,OLD and then NEW (docs/running.md): Terraform never replaces the first one.
resource "google_secret_manager_secret_version" "this" {
  secret                 = google_secret_manager_secret.this.id
  secret_data_wo         = sha256(ephemeral.random_password.this.result)
  secret_data_wo_version = 1
}

resource "google_secret_manager_secret_iam_member" "reader" {
  for_each = var.readers

  project   = var.project
  secret_id = google_secret_manager_secret.this.secret_id
  role      = "roles/secretmanager.secretAccessor"
  member    = "serviceAccount:${each.value}"
}
