output "url" {
  description = "URL of the API."
  value       = module.service.url
}

output "jobs" {
  description = "Names of the jobs to run before a release."
  value       = module.jobs.names
}

output "audience" {
  description = "Audience of ID tokens for the API."
  value       = local.api_audience
}

output "operator" {
  description = "The service account to give access to first: `wakeq accounts allow …`."
  value       = module.accounts.operator
}
