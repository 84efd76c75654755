# WAKEQ_SECRET_KEY: the key that encrypts the signing secrets of HTTP targets in the database. Whoever has both a backup of the
# database and this key can forge deliveries, so give access to them to different people.

# 64 random letters and digits, hashed to the 32 bytes of a key. Generated in each run, but used only in the first one.
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

# To rotate the key, add versions by hand (docs/running.md): Terraform never replaces the first one.
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
