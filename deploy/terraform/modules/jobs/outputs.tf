output "names" {
  description = "Names of the jobs, by purpose."
  value       = { for key, job in google_cloud_run_v2_job.this : key => job.name }
}
