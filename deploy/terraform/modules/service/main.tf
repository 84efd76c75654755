# `wakeq serve` on Cloud Run. With `push` it also runs the events that Pub/Sub pushes to it, and scales to zero between
# them.

locals {
  is_push = var.push != null
  # In addition to the longest handler: up to 10 s in which an event may wait in the request until it is due, and 10 s to
  # store the outcome.
  timeout_s = local.is_push ? var.push.handler_timeout_s + 20 : 60

  env = merge(
    {
      GOOGLE_CLOUD_PROJECT = var.project
      WAKEQ_TOPIC          = var.topic
    },
    var.audience == null ? {} : { WAKEQ_AUDIENCE = var.audience },
    length(var.trusted_proxies) == 0 ? {} : { WAKEQ_TRUSTED_PROXIES = join(",", var.trusted_proxies) },
    local.is_push ? {
      # No notification can be kept in memory between two requests.
      WAKEQ_HORIZON       = "0s"
      WAKEQ_PUSH_AUDIENCE = var.push.audience
      WAKEQ_PUSH_ACCOUNTS = var.push.account
      WAKEQ_CAPACITY      = tostring(var.capacity)
    } : {},
    var.env,
  )
}

resource "google_cloud_run_v2_service" "this" {
  project              = var.project
  location             = var.region
  name                 = var.name
  ingress              = var.ingress
  deletion_protection  = var.deletion_protection
  invoker_iam_disabled = true # Cloud Run's check would remove the signature from the token, which wakeq verifies itself.

  template {
    service_account                  = var.account
    timeout                          = "${local.timeout_s}s"
    max_instance_request_concurrency = var.capacity

    scaling {
      min_instance_count = var.min_instances
      max_instance_count = var.max_instances
    }

    containers {
      image = var.image
      args  = ["serve"]

      ports {
        container_port = 8080
      }

      resources {
        # CPU only during requests. Nothing is missed between them: the workers make the minute's pass, or Cloud Scheduler
        # requests it.
        cpu_idle          = true
        startup_cpu_boost = true
        limits            = var.limits
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
            secret  = var.database.secret
            version = "latest"
          }
        }
      }

      dynamic "env" {
        for_each = var.secrets
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

      startup_probe {
        period_seconds    = 2
        timeout_seconds   = 2
        failure_threshold = 40

        http_get {
          path = "/readyz"
        }
      }

      liveness_probe {
        period_seconds    = 30
        timeout_seconds   = 5
        failure_threshold = 3

        http_get {
          path = "/livez"
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
}

# Requests the minute's pass (overdue events, resume jobs, crons) from a service that has no process between requests.
resource "google_cloud_scheduler_job" "wake" {
  count = local.is_push ? 1 : 0

  project          = var.project
  region           = var.region
  name             = "${var.name}-wake"
  description      = "wakes overdue events"
  schedule         = "* * * * *"
  time_zone        = "Etc/UTC"
  attempt_deadline = "180s"

  # No retries: the next attempt is a minute later.
  retry_config {
    retry_count = 0
  }

  http_target {
    http_method = "POST"
    uri         = "${google_cloud_run_v2_service.this.uri}/v1/wake"

    oidc_token {
      service_account_email = var.push.account
      audience              = var.push.audience
    }
  }
}
