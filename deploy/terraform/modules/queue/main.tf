# The topic, and one subscription: pull, or push if an endpoint is given. The settings are those that
# `wakeq topics check` compares; docs/operations.md says why each is what it is.

resource "google_pubsub_topic" "this" {
  # checkov:skip=CKV_GCP_83:a notification names a row and says nothing else; Google's own keys are enough for that
  project = var.project
  name    = var.name

  dynamic "message_storage_policy" {
    for_each = length(var.regions) == 0 ? [] : [var.regions]
    content {
      allowed_persistence_regions = message_storage_policy.value
    }
  }
}

resource "google_pubsub_subscription" "this" {
  project = var.project
  name    = var.name
  topic   = google_pubsub_topic.this.id

  # Pull: as long as a lease, so that a dead worker's event and its notification become free together.
  # Push: as long as a request may take; what takes longer is delivered again, and finds the event locked.
  ack_deadline_seconds = var.push == null ? 60 : min(600, var.push.handler_timeout_s + 20)

  message_retention_duration   = "604800s"
  retain_acked_messages        = false
  enable_message_ordering      = false
  enable_exactly_once_delivery = false

  # An idle subscription would vanish after 31 days.
  expiration_policy {
    ttl = ""
  }

  # How long what was put back waits.
  retry_policy {
    minimum_backoff = "10s"
    maximum_backoff = "600s"
  }

  # No dead_letter_policy: Pub/Sub counts deliveries, and a lost race or a delay is not a failure. Retries and losses
  # are counted in the event's row.

  dynamic "push_config" {
    for_each = var.push == null ? [] : [var.push]
    content {
      push_endpoint = push_config.value.endpoint

      oidc_token {
        service_account_email = push_config.value.account
        audience              = push_config.value.audience
      }
    }
  }
}

resource "google_pubsub_topic_iam_member" "publisher" {
  for_each = var.publishers

  project = var.project
  topic   = google_pubsub_topic.this.name
  role    = "roles/pubsub.publisher"
  member  = "serviceAccount:${each.value}"
}

resource "google_pubsub_subscription_iam_member" "subscriber" {
  for_each = var.subscribers

  project      = var.project
  subscription = google_pubsub_subscription.this.name
  role         = "roles/pubsub.subscriber"
  member       = "serviceAccount:${each.value}"
}

# For the look from the side every 15 s, which notices a broken stream, and for `wakeq doctor`.
resource "google_pubsub_subscription_iam_member" "viewer" {
  for_each = merge(var.subscribers, var.viewers)

  project      = var.project
  subscription = google_pubsub_subscription.this.name
  role         = "roles/pubsub.viewer"
  member       = "serviceAccount:${each.value}"
}

# Broadcasts: a topic on which every emitted event is published again, for whoever listens. Nothing depends on it.

resource "google_pubsub_topic" "broadcast" {
  # checkov:skip=CKV_GCP_83:what is broadcast is kept for ten minutes at most, and encrypted with Google's keys like the database
  count = var.broadcast ? 1 : 0

  project = var.project
  name    = "${var.name}-broadcast"

  dynamic "message_storage_policy" {
    for_each = length(var.regions) == 0 ? [] : [var.regions]
    content {
      allowed_persistence_regions = message_storage_policy.value
    }
  }
}

resource "google_pubsub_topic_iam_member" "broadcaster" {
  for_each = var.broadcast ? var.publishers : {}

  project = var.project
  topic   = google_pubsub_topic.broadcast[0].name
  role    = "roles/pubsub.publisher"
  member  = "serviceAccount:${each.value}"
}

# Each process with listeners creates a subscription of its own, and deletes it at its end. Pub/Sub grants that in a project only, and
# conditions of IAM don't know the names of subscriptions, so it is as few permissions as it can be; still, these accounts can read and
# delete every subscription of the project, wakeq's own included. What that costs is bounded: messages have ids and no values, and a
# subscription that is gone is made up for by the promises of the rows once `wakeq topics create` has made it again. Where the project has
# other subscriptions, give wakeq a project of its own, or leave `listeners` empty.
resource "google_project_iam_custom_role" "listener" {
  count = var.broadcast ? 1 : 0

  project     = var.project
  role_id     = "${replace(var.name, "-", "_")}_listener"
  title       = "${var.name} listener"
  description = "Creates, reads and deletes subscriptions of its own."
  permissions = [
    "pubsub.subscriptions.consume",
    "pubsub.subscriptions.create",
    "pubsub.subscriptions.delete",
    "pubsub.subscriptions.get",
  ]
}

resource "google_project_iam_member" "listener" {
  for_each = var.broadcast ? var.listeners : {}

  project = var.project
  role    = google_project_iam_custom_role.listener[0].id
  member  = "serviceAccount:${each.value}"
}

# On the topic it is the right to attach a subscription.
resource "google_pubsub_topic_iam_member" "listener" {
  for_each = var.broadcast ? var.listeners : {}

  project = var.project
  topic   = google_pubsub_topic.broadcast[0].name
  role    = "roles/pubsub.subscriber"
  member  = "serviceAccount:${each.value}"
}
