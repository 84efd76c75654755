output "network" {
  description = "The network's id, once its peering stands: a database that waits for it can get a private address."
  value       = google_compute_network.this.id
  depends_on  = [google_service_networking_connection.services]
}

output "subnetwork" {
  description = "The subnetwork's id."
  value       = google_compute_subnetwork.this.id
}
