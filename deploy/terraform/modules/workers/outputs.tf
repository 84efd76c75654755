output "name" {
  description = "Name of the pool."
  value       = google_cloud_run_v2_worker_pool.this.name
}
