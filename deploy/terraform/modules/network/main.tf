# A network for the database and its clients. If you have one already, leave this module out: the others take any network
# and subnetwork with private services access.

resource "google_compute_network" "this" {
  # checkov:skip=CKV2_GCP_18:a network without firewall rules of its own denies all ingress
  project                 = var.project
  name                    = var.name
  auto_create_subnetworks = false
}

resource "google_compute_subnetwork" "this" {
  project       = var.project
  name          = var.name
  region        = var.region
  network       = google_compute_network.this.id
  ip_cidr_range = var.ip_cidr_range

  # Reaches Pub/Sub and Secret Manager without internet access.
  private_ip_google_access = true

  log_config {
    aggregation_interval = "INTERVAL_10_MIN"
    flow_sampling        = 0.1
  }
}

# The address range for the database, in Google's network that is peered with this one.
resource "google_compute_global_address" "services" {
  project       = var.project
  name          = "${var.name}-services"
  network       = google_compute_network.this.id
  purpose       = "VPC_PEERING"
  address_type  = "INTERNAL"
  prefix_length = 20
}

resource "google_service_networking_connection" "services" {
  network                 = google_compute_network.this.id
  service                 = "servicenetworking.googleapis.com"
  reserved_peering_ranges = [google_compute_global_address.services.name]
  deletion_policy         = "ABANDON"
}
