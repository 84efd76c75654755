# What differs between push and pull, checked on plans without a cloud.

mock_provider "google" {}

variables {
  project    = "my-project"
  region     = "europe-west1"
  image      = "registry.example/wakeq:0.1.0"
  account    = "api@my-project.iam.gserviceaccount.com"
  topic      = "wakeq"
  database   = { connection_name = "my-project:europe-west1:wakeq", secret = "wakeq-database-url" }
  network    = "network"
  subnetwork = "subnetwork"
}

run "push" {
  command = plan

  variables {
    capacity = 40
    push = {
      account           = "invoker@my-project.iam.gserviceaccount.com"
      audience          = "my-project/wakeq/push"
      handler_timeout_s = 300
    }
  }

  assert {
    condition     = google_cloud_run_v2_service.this.template[0].timeout == "320s"
    error_message = "the timeout must be longer than the longest handler"
  }
  assert {
    condition     = google_cloud_run_v2_service.this.template[0].max_instance_request_concurrency == 40
    error_message = "an instance must take as many requests as it runs handlers"
  }
  assert {
    condition     = google_cloud_run_v2_service.this.template[0].scaling[0].min_instance_count == 0
    error_message = "the service must scale to zero"
  }
  assert {
    condition = {
      for env in google_cloud_run_v2_service.this.template[0].containers[0].env : env.name => env.value if env.value != null && startswith(env.name, "WAKEQ_")
      } == {
      WAKEQ_CAPACITY        = "40"
      WAKEQ_TOPIC           = "wakeq"
      WAKEQ_HORIZON         = "0s"
      WAKEQ_PUSH_AUDIENCE   = "my-project/wakeq/push"
      WAKEQ_PUSH_ACCOUNTS   = "invoker@my-project.iam.gserviceaccount.com"
      WAKEQ_TRUSTED_PROXIES = "169.254.0.0/16"
    }
    error_message = "the variables must be those of push mode"
  }
  assert {
    condition     = google_cloud_scheduler_job.wake[0].schedule == "* * * * *" && google_cloud_scheduler_job.wake[0].http_target[0].http_method == "POST"
    error_message = "the minute's pass must be requested each minute"
  }
  assert {
    condition     = google_cloud_scheduler_job.wake[0].http_target[0].oidc_token[0].audience == "my-project/wakeq/push"
    error_message = "the audience must be the same as Pub/Sub's"
  }
}

run "pull" {
  command = plan

  assert {
    condition     = length(google_cloud_scheduler_job.wake) == 0
    error_message = "the workers make the minute's pass, not Cloud Scheduler"
  }
  assert {
    condition     = !contains([for env in google_cloud_run_v2_service.this.template[0].containers[0].env : env.name], "WAKEQ_HORIZON")
    error_message = "the horizon must be left to the deployment's setting"
  }
}

run "behind_a_load_balancer" {
  command = plan

  variables {
    trusted_proxies = ["169.254.0.0/16", "35.191.0.0/16", "130.211.0.0/22", "203.0.113.7/32"]
  }

  assert {
    condition     = contains([for env in google_cloud_run_v2_service.this.template[0].containers[0].env : env.value], "169.254.0.0/16,35.191.0.0/16,130.211.0.0/22,203.0.113.7/32")
    error_message = "the ranges must be joined as wakeq parses them"
  }
}

run "no_proxy_at_all" {
  command = plan

  variables {
    trusted_proxies = []
  }

  assert {
    condition     = !contains([for env in google_cloud_run_v2_service.this.template[0].containers[0].env : env.name], "WAKEQ_TRUSTED_PROXIES")
    error_message = "no proxy may be trusted"
  }
}

run "an_invalid_range" {
  command = plan

  variables {
    trusted_proxies = ["130.211.0.1/22"]
  }

  expect_failures = [var.trusted_proxies]
}

run "a_handler_longer_than_pubsub_waits" {
  command = plan

  variables {
    push = { account = "a", audience = "b", handler_timeout_s = 601 }
  }

  expect_failures = [var.push]
}
