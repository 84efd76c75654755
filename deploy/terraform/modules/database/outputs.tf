output "connection_name" {
  description = "`project:region:instance`, for the connector and the proxy."
  value       = google_sql_database_instance.this.connection_name
}

output "roles" {
  description = "Names of the roles: owner, api, worker."
  value       = local.users
}

output "secrets" {
  description = "Ids of the secrets with DATABASE_URL, by role (owner, api, worker); available once they have a version and their readers have access."
  value       = { for role, secret in google_secret_manager_secret.url : role => secret.secret_id }
  depends_on = [
    google_secret_manager_secret_version.url,
    google_secret_manager_secret_iam_member.reader,
    google_project_iam_member.client,
    google_sql_user.this,
    google_sql_database.this,
  ]
}
