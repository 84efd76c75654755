# A network for the database and what talks to it. Leave the module out where there is one already: the others take a
# network, a subnetwork and a peering from anywhere.

resource "google_compute_network" "this" {
  # checkov:skip=CKV2_GCP_18:a network without rules of its own refuses all that comes in
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

  # Pub/Sub and Secret Manager without a way to the internet.
  private_ip_google_access = true

  log_config {
    aggregation_interval = "INTERVAL_10_MIN"
    flow_sampling        = 0.1
  }
}

# Where Google puts the database: a range of our network, peered with Google's.
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
