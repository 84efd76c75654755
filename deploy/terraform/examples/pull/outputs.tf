output "url" {
  description = "Where the API answers; null with Kubernetes."
  value       = one(module.service[*].url)
}

output "jobs" {
  description = "What to run before a release."
  value       = module.jobs.names
}

output "connection_name" {
  description = "The instance, as the proxy in deploy/kubernetes takes it."
  value       = module.database.connection_name
}

output "audience" {
  description = "What ID tokens for the API are made for."
  value       = local.api_audience
}

output "operator" {
  description = "The account to let in first: `wakeq accounts allow …`."
  value       = module.accounts.operator
}
