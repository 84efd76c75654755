output "url" {
  description = "URL of the service."
  value       = google_cloud_run_v2_service.this.uri
}
