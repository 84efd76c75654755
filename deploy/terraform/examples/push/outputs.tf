output "url" {
  description = "Where the API answers."
  value       = module.service.url
}

output "jobs" {
  description = "What to run before a release."
  value       = module.jobs.names
}

output "audience" {
  description = "What ID tokens for the API are made for."
  value       = local.api_audience
}

output "operator" {
  description = "The account to let in first: `wakeq accounts allow …`."
  value       = module.accounts.operator
}
