output "secret" {
  description = "Id of the secret with WAKEQ_SECRET_KEY; available once the secret has a version and its readers have access."
  value       = google_secret_manager_secret.this.secret_id
  depends_on = [
    google_secret_manager_secret_version.this,
    google_secret_manager_secret_iam_member.reader,
  ]
}
