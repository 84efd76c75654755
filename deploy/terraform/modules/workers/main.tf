# Workers on Cloud Run: a pool of instances that pull, from your own image with the handlers.

locals {
  urgent = var.urgent_subscription == null ? {} : { WAKEQ_URGENT_SUBSCRIPTION = var.urgent_subscription }

  env = merge({
    GOOGLE_CLOUD_PROJECT = var.project
    WAKEQ_TOPIC          = var.topic
    WAKEQ_SUBSCRIPTION   = var.subscription
    WAKEQ_CAPACITY       = tostring(var.capacity)
    WAKEQ_URGENT_SLOTS   = tostring(var.urgent_slots)
  }, local.urgent, var.env)

  secrets = merge({ DATABASE_URL = var.database.secret }, var.secrets)
}

# Cloud Run kills an instance ten seconds after SIGTERM. wakeq detects Cloud Run and gives handlers eight of these seconds,
# so WAKEQ_SHUTDOWN_GRACE stays unset.
resource "google_cloud_run_v2_worker_pool" "this" {
  project             = var.project
  location            = var.region
  name                = var.name
  launch_stage        = var.launch_stage
  deletion_protection = var.deletion_protection

  scaling {
    scaling_mode          = "MANUAL"
    manual_instance_count = var.instances
  }

  template {
    service_account = var.account

    containers {
      image = var.image
      args  = ["work"]

      resources {
        limits = var.limits
      }

      dynamic "env" {
        for_each = local.env
        content {
          name  = env.key
          value = env.value
        }
      }

      dynamic "env" {
        for_each = local.secrets
        content {
          name = env.key
          value_source {
            secret_key_ref {
              secret  = env.value
              version = "latest"
            }
          }
        }
      }

      volume_mounts {
        name       = "cloudsql"
        mount_path = "/cloudsql"
      }
    }

    volumes {
      name = "cloudsql"
      cloud_sql_instance {
        instances = [var.database.connection_name]
      }
    }

    vpc_access {
      egress = var.egress
      network_interfaces {
        network    = var.network
        subnetwork = var.subnetwork
      }
    }
  }

  lifecycle {
    # An autoscaler may change it between two runs.
    ignore_changes = [scaling[0].manual_instance_count]
  }
}
