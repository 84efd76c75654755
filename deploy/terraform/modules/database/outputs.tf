output "connection_name" {
  description = "`project:region:instance`, as the connector and the proxy take it."
  value       = google_sql_database_instance.this.connection_name
}

output "secret" {
  description = "Id of the secret with DATABASE_URL, once it has a version and its readers."
  value       = google_secret_manager_secret.url.secret_id
  depends_on = [
    google_secret_manager_secret_version.url,
    google_secret_manager_secret_iam_member.reader,
    google_project_iam_member.client,
    google_sql_user.this,
    google_sql_database.this,
  ]
}
