output "network" {
  description = "The network's id; available once its peering exists, so that the database can get a private address."
  value       = google_compute_network.this.id
  depends_on  = [google_service_networking_connection.services]
}

output "subnetwork" {
  description = "The subnetwork's id."
  value       = google_compute_subnetwork.this.id
}
