terraform {
  required_version = ">= 1.11"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 6.50, < 8"
    }
    random = {
      source  = "hashicorp/random"
      version = ">= 3.7, < 4"
    }
  }

  # Configure your own backend for the state, for example:
  # backend "gcs" {
  #   bucket = "my-terraform-state"
  #   prefix = "wakeq"
  # }
}

provider "google" {
  project = var.project
  region  = var.region
}
