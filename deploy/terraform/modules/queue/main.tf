# The topic, and one subscription, or a second one for urgent notifications: pull, or push if an endpoint is given. The settings
# are those that `wakeq topics check` compares; docs/operations.md gives the reason for each.

locals {
  # Each notification belongs to one of them. A filter can't be changed: Terraform makes the subscription anew.
  filters = merge(
    { ordinary = var.urgent ? "NOT attributes.urgent = \"true\"" : null },
    var.urgent ? { urgent = "attributes.urgent = \"true\"" } : {},
  )

  subscriptions = merge(
    { ordinary = google_pubsub_subscription.this.name },
    { for subscription in google_pubsub_subscription.urgent : "urgent" => subscription.name },
  )

  # Each account at each subscription, under a key that is known before the subscriptions are.
  subscribers = merge([for class in keys(local.filters) : {
    for key, account in var.subscribers : class == "ordinary" ? key : "${key}-${class}" => { class = class, account = account }
  }]...)
  viewers = merge([for class in keys(local.filters) : {
    for key, account in merge(var.subscribers, var.viewers) : class == "ordinary" ? key : "${key}-${class}" => { class = class, account = account }
  }]...)
}

resource "google_pubsub_topic" "this" {
  # checkov:skip=CKV_GCP_83:a notification contains only the id of a row; Google-managed keys are enough for that
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
  filter  = local.filters.ordinary

  # Pull: as long as a lease, so that a dead worker's event and its notification become available at the same time.
  # Push: as long as a request may take; after that it is delivered again, and finds the event locked.
  ack_deadline_seconds = var.push == null ? 60 : min(600, var.push.handler_timeout_s + 20)

  message_retention_duration   = "604800s"
  retain_acked_messages        = false
  enable_message_ordering      = false
  enable_exactly_once_delivery = false

  # By default an idle subscription is deleted after 31 days.
  expiration_policy {
    ttl = ""
  }

  # The delay before a nacked message is delivered again.
  retry_policy {
    minimum_backoff = "10s"
    maximum_backoff = "600s"
  }

  # No dead_letter_policy: Pub/Sub counts deliveries, and a lost race for an event or a delay is not a failure. Retries
  # and lost workers are counted in the event's row.

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

# Urgent notifications do not wait behind the others. The settings are those of the other subscription.
resource "google_pubsub_subscription" "urgent" {
  count = var.urgent ? 1 : 0

  project = var.project
  name    = "${var.name}-urgent"
  topic   = google_pubsub_topic.this.id
  filter  = local.filters["urgent"]

  ack_deadline_seconds         = var.push == null ? 60 : min(600, var.push.handler_timeout_s + 20)
  message_retention_duration   = "604800s"
  retain_acked_messages        = false
  enable_message_ordering      = false
  enable_exactly_once_delivery = false

  expiration_policy {
    ttl = ""
  }

  retry_policy {
    minimum_backoff = "10s"
    maximum_backoff = "600s"
  }

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
  for_each = local.subscribers

  project      = var.project
  subscription = local.subscriptions[each.value.class]
  role         = "roles/pubsub.subscriber"
  member       = "serviceAccount:${each.value.account}"
}

# For the check every 15 s that notices a broken stream, and for `wakeq doctor`.
resource "google_pubsub_subscription_iam_member" "viewer" {
  for_each = local.viewers

  project      = var.project
  subscription = local.subscriptions[each.value.class]
  role         = "roles/pubsub.viewer"
  member       = "serviceAccount:${each.value.account}"
}

# Broadcasts: a second topic to which every emitted event is published, for listeners. Nothing depends on it.

resource "google_pubsub_topic" "broadcast" {
  # checkov:skip=CKV_GCP_83:broadcasts are kept for ten minutes at most, and encrypted with Google-managed keys like the database
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

# Each process with listeners creates its own subscription, and deletes it when it ends. Pub/Sub can grant this only on the project, and
# IAM conditions can't match the names of subscriptions. So the role has the fewest permissions possible, but these accounts can still
# consume and delete every subscription of the project, including wakeq's own. The damage is limited: notifications contain ids but no
# values, and if the subscription is deleted, `wakeq topics create` creates it again, and the minute's pass wakes what was missed. If the
# project has other subscriptions, give wakeq a project of its own, or leave `listeners` empty.
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

# On a topic, this role is the right to attach subscriptions.
resource "google_pubsub_topic_iam_member" "listener" {
  for_each = var.broadcast ? var.listeners : {}

  project = var.project
  topic   = google_pubsub_topic.broadcast[0].name
  role    = "roles/pubsub.subscriber"
  member  = "serviceAccount:${each.value}"
}
