# What workers rely on, checked on plans without a cloud.

mock_provider "google" {}

variables {
  project    = "my-project"
  publishers = { api = "api@my-project.iam.gserviceaccount.com" }
}

run "pull" {
  command = plan

  variables {
    subscribers = { worker = "worker@my-project.iam.gserviceaccount.com" }
  }

  assert {
    condition     = length(google_pubsub_subscription.this.dead_letter_policy) == 0
    error_message = "a dead-letter policy would remove notifications of events"
  }
  assert {
    condition     = google_pubsub_subscription.this.retry_policy[0].minimum_backoff == "10s" && google_pubsub_subscription.this.retry_policy[0].maximum_backoff == "600s"
    error_message = "`wakeq topics check` requires 10 s to 600 s"
  }
  assert {
    condition     = google_pubsub_subscription.this.expiration_policy[0].ttl == ""
    error_message = "the subscription must never expire"
  }
  assert {
    condition     = google_pubsub_subscription.this.message_retention_duration == "604800s"
    error_message = "`wakeq topics check` requires 7 days"
  }
  assert {
    condition     = google_pubsub_subscription.this.ack_deadline_seconds == 60 && length(google_pubsub_subscription.this.push_config) == 0
    error_message = "the deadline must be as long as a lease, and the mode pull"
  }
  assert {
    condition     = { for key, member in google_pubsub_topic_iam_member.publisher : key => member.role } == { api = "roles/pubsub.publisher" }
    error_message = "only publishers may publish"
  }
  assert {
    condition     = length(google_pubsub_topic.broadcast) + length(google_project_iam_custom_role.listener) + length(google_pubsub_topic_iam_member.broadcaster) == 0
    error_message = "nothing may be broadcast unless enabled"
  }
  assert {
    condition     = length(google_pubsub_subscription.urgent) == 0 && google_pubsub_subscription.this.filter == null
    error_message = "one subscription must get all notifications unless there are two"
  }
}

run "urgent" {
  command = plan

  variables {
    urgent      = true
    subscribers = { worker = "worker@my-project.iam.gserviceaccount.com" }
  }

  assert {
    condition     = google_pubsub_subscription.urgent[0].filter == "attributes.urgent = \"true\"" && google_pubsub_subscription.this.filter == "NOT attributes.urgent = \"true\""
    error_message = "each notification must belong to one of them, as `wakeq topics check` requires"
  }
  assert {
    condition     = google_pubsub_subscription.urgent[0].name == "wakeq-urgent" && google_pubsub_subscription.urgent[0].ack_deadline_seconds == 60
    error_message = "the second one must be like the first"
  }
  assert {
    condition     = { for key, member in google_pubsub_subscription_iam_member.subscriber : key => member.subscription } == { worker = "wakeq", worker-urgent = "wakeq-urgent" }
    error_message = "workers must be able to pull from both"
  }
}

run "broadcasts" {
  command = plan

  variables {
    broadcast = true
    listeners = { api = "api@my-project.iam.gserviceaccount.com" }
  }

  assert {
    condition     = google_pubsub_topic.broadcast[0].name == "wakeq-broadcast"
    error_message = "the name must be the default of WAKEQ_BROADCAST_TOPIC"
  }
  assert {
    condition     = { for key, member in google_pubsub_topic_iam_member.broadcaster : key => member.role } == { api = "roles/pubsub.publisher" }
    error_message = "accounts that emit must be able to broadcast"
  }
  assert {
    condition     = !contains(google_project_iam_custom_role.listener[0].permissions, "pubsub.topics.publish") && length(google_project_iam_custom_role.listener[0].permissions) == 4
    error_message = "a listener may only listen"
  }
  assert {
    condition     = { for key, member in google_pubsub_topic_iam_member.listener : key => member.role } == { api = "roles/pubsub.subscriber" }
    error_message = "a listener must be able to attach subscriptions"
  }
}

run "push" {
  command = plan

  variables {
    viewers = { api = "api@my-project.iam.gserviceaccount.com" }
    push = {
      endpoint          = "https://wakeq.example/v1/push"
      account           = "invoker@my-project.iam.gserviceaccount.com"
      audience          = "my-project/wakeq/push"
      handler_timeout_s = 300
    }
  }

  assert {
    condition     = google_pubsub_subscription.this.push_config[0].push_endpoint == "https://wakeq.example/v1/push"
    error_message = "Pub/Sub must call this endpoint"
  }
  assert {
    condition     = google_pubsub_subscription.this.push_config[0].oidc_token[0].audience == "my-project/wakeq/push"
    error_message = "the audience must be passed on unchanged"
  }
  assert {
    condition     = google_pubsub_subscription.this.ack_deadline_seconds == 320
    error_message = "the deadline must be as long as the service may take"
  }
  assert {
    condition     = length(google_pubsub_subscription_iam_member.subscriber) == 0
    error_message = "no account may pull"
  }
  assert {
    condition     = { for key, member in google_pubsub_subscription_iam_member.viewer : key => member.role } == { api = "roles/pubsub.viewer" }
    error_message = "the doctor must be able to read the subscription"
  }
}

run "the_longest_push" {
  command = plan

  variables {
    push = {
      endpoint          = "https://wakeq.example/v1/push"
      account           = "invoker@my-project.iam.gserviceaccount.com"
      audience          = "my-project/wakeq/push"
      handler_timeout_s = 600
    }
  }

  assert {
    condition     = google_pubsub_subscription.this.ack_deadline_seconds == 600
    error_message = "Pub/Sub allows at most 600 s"
  }
}

run "tokens_go_to_https_only" {
  command = plan

  variables {
    push = { endpoint = "http://wakeq.example/v1/push", account = "a", audience = "b", handler_timeout_s = 1 }
  }

  expect_failures = [var.push]
}
