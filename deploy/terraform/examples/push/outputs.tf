output "url" {
  description = "Where the API answers."
  value       = module.service.url
}

output "jobs" {
  description = "What to run before a release."
  value       = module.jobs.names
}
