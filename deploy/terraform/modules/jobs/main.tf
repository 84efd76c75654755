# Cloud Run jobs: `wakeq migrate`, to run before each release, and `wakeq doctor`, to run when something looks wrong.
#
#   gcloud run jobs execute wakeq-migrate --region=… --wait

locals {
  urgent = var.urgent_subscription == null ? {} : { WAKEQ_URGENT_SUBSCRIPTION = var.urgent_subscription }

  env = merge({
    GOOGLE_CLOUD_PROJECT = var.project
    WAKEQ_TOPIC          = var.topic
    WAKEQ_SUBSCRIPTION   = var.subscription
  }, local.urgent, var.env)

  # The doctor runs as the account of the processes that it checks, and so has the same permissions.
  jobs = {
    migrate = {
      account = var.migrate_account
      secret  = var.database.secret
      secrets = {}
      args = concat(
        ["migrate"],
        [for role in var.api_roles : "--api-role=${role}"],
        [for role in var.worker_roles : "--worker-role=${role}"],
      )
    }
    doctor = { account = var.doctor_account, secret = var.doctor_secret, secrets = var.doctor_secrets, args = ["doctor"] }
  }
}

resource "google_cloud_run_v2_job" "this" {
  for_each = local.jobs

  project             = var.project
  location            = var.region
  name                = "${var.name}-${each.key}"
  deletion_protection = var.deletion_protection

  template {
    task_count  = 1
    parallelism = 1

    template {
      service_account = each.value.account
      # Each migration is a transaction of its own, and a failed run is not retried: the next one continues after the last
      # migration that succeeded.
      max_retries = 0
      timeout     = "1800s"

      containers {
        image = var.image
        args  = each.value.args

        resources {
          limits = { cpu = "1", memory = "512Mi" }
        }

        dynamic "env" {
          for_each = local.env
          content {
            name  = env.key
            value = env.value
          }
        }

        env {
          name = "DATABASE_URL"
          value_source {
            secret_key_ref {
              secret  = each.value.secret
              version = "latest"
            }
          }
        }

        dynamic "env" {
          for_each = each.value.secrets
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
        egress = "PRIVATE_RANGES_ONLY"
        network_interfaces {
          network    = var.network
          subnetwork = var.subnetwork
        }
      }
    }
  }
}
