output "api" {
  description = "Address of the account that serves the API."
  value       = google_service_account.this["api"].email
}

output "worker" {
  description = "Address of the account that runs handlers."
  value       = google_service_account.this["worker"].email
}

output "migrate" {
  description = "Address of the account that migrates the schema."
  value       = google_service_account.this["migrate"].email
}

output "invoker" {
  description = "Address of the account whose tokens Pub/Sub and Cloud Scheduler send."
  value       = google_service_account.this["invoker"].email
}

output "operator" {
  description = "Address of the account whose tokens operators use."
  value       = google_service_account.this["operator"].email
}
